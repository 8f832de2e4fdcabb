"""Whole builds in one process: what runs, what is restored, what a failure holds up."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from npubake.errors import GateError, RecipeError, StageError, StoreError, UsageError
from npubake.pipeline.freshness import assess
from npubake.pipeline.graph import plan
from npubake.pipeline.pool import StageBug
from npubake.pipeline.project import Project
from npubake.pipeline.runrecord import RunRecord, Silence, TaskResult
from npubake.pipeline.scheduler import execute
from npubake.pipeline.session import Session
from npubake.pipeline.task import Publish, Task
from tests.pipeline import dummies
from tests.pipeline.conftest import again
from tests.pipeline.dummies import chain, of, ran, source, task


def outcomes(record: RunRecord) -> list[str]:
    return [result.outcome for result in record.results]


def test_builds_then_has_nothing_to_do(project: Project) -> None:
    tasks = chain(project.root)
    first = execute(project, tasks)
    assert outcomes(first) == ["ran"] * 3
    assert ran(project) == ["s0", "s1", "s2"]
    assert (project.root / "build/target/s2.txt").read_text() == "in abc"
    second = execute(again(project), tasks)
    assert outcomes(second) == ["reused"] * 3
    assert ran(project) == []
    assert [r.outputs for r in second.results] == [r.outputs for r in first.results]


def test_changed_parameter_runs_from_there_on_and_back_is_restored(project: Project) -> None:
    execute(project, chain(project.root))
    changed = chain(project.root, texts=("a", "B", "c"))
    probes = assess(again(project), changed)
    assert [probe.outcome for probe in probes] == ["reuse", "run", "unknown"]
    assert probes[1].reasons == ('text: "b" → "B"',)
    assert probes[2].reasons == ("s1 will be made anew",)
    ran(project)
    assert outcomes(execute(again(project), changed)) == ["reused", "ran", "ran"]
    assert ran(project) == ["s1", "s2"]
    back = assess(again(project), chain(project.root))[1]
    assert back.reasons == ("build/target/s1.txt holds what another build wrote",)
    assert outcomes(execute(again(project), chain(project.root))) == ["reused", "restored", "restored"]
    assert ran(project) == []
    assert (project.root / "build/target/s2.txt").read_text() == "in abc"


def test_equal_bytes_of_a_rerun_stage_stop_there(project: Project) -> None:
    def tasks() -> tuple[Task, ...]:
        first = task(dummies.LENGTH, {"log": str(project.root / "log")}, {"text": of(head)})
        return plan([head, first, task(dummies.JOIN, {"log": str(project.root / "log")}, {"text": of(first)})])

    head = task(dummies.JOIN, {}, {"file": source("in.txt")})
    execute(project, tasks())
    assert ran(project) == ["length", "join"]
    (project.root / "in.txt").write_text("IN ")
    assert outcomes(execute(again(project), tasks())) == ["ran", "ran", "reused"]
    assert ran(project) == ["length"]


def test_touch_runs_nothing(project: Project) -> None:
    execute(project, chain(project.root))
    ran(project)
    os.utime(project.root / "in.txt")
    (project.root / "build/target/s1.txt").write_text("in ab")
    assert outcomes(execute(again(project), chain(project.root))) == ["reused"] * 3


def test_replaced_in_place_with_size_and_time_kept_is_noticed(project: Project) -> None:
    path = project.root / "in.txt"
    os.utime(path, ns=(10**18, 10**18))
    time.sleep(0.03)  # past the clock's tick, so that the digest is remembered
    execute(project, chain(project.root))
    ran(project)
    path.write_text("IN ")
    os.utime(path, ns=(10**18, 10**18))
    assert outcomes(execute(again(project), chain(project.root))) == ["ran"] * 3
    assert (project.root / "build/target/s0.txt").read_text() == "IN a"


@pytest.mark.parametrize("harm", ["edit", "delete"])
def test_published_files_are_put_right(project: Project, harm: str) -> None:
    execute(project, chain(project.root))
    ran(project)
    path = project.root / "build/target/s1.txt"
    time.sleep(0.03)
    execute(again(project), chain(project.root))
    if harm == "edit":
        path.write_text("IN ab")
    else:
        path.unlink()
    (probe,) = [p for p in assess(again(project), chain(project.root)) if p.outcome != "reuse"]
    assert probe.outcome == "restore"
    assert probe.reasons == (f"build/target/s1.txt {'was changed' if harm == 'edit' else 'is missing'}",)
    assert outcomes(execute(again(project), chain(project.root))) == ["reused", "restored", "reused"]
    assert path.read_text() == "in ab"
    assert ran(project) == []


def test_another_checkout_with_the_same_store_restores(project: Project, tmp_path: Path) -> None:
    tasks = chain(project.root)
    execute(project, tasks)
    ran(project)
    clone = tmp_path / "elsewhere" / "clone"
    clone.mkdir(parents=True)
    (clone / "in.txt").write_text("in ")
    assert outcomes(execute(Project(clone, project.store.root), tasks)) == ["restored"] * 3
    assert ran(project) == []
    assert (clone / "build/target/s2.txt").read_text() == "in abc"


def test_editing_a_published_file_leaves_the_store_alone(project: Project) -> None:
    record = execute(project, chain(project.root))
    digest = record.results[0].outputs["text"].digest
    with (project.root / "build/target/s0.txt").open("r+") as stream:
        stream.write("XX")
    assert project.store.read(digest) == b"in a"


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("harm", ["flip", "cut", "delete"])
def test_damaged_blob_is_never_served(project: Project, which: int, harm: str) -> None:
    record = execute(project, chain(project.root))
    ran(project)
    blob = project.store.blob_path(record.results[which].outputs["text"].digest)
    blob.chmod(0o644)
    if harm == "delete":
        blob.unlink()
    else:
        blob.write_bytes(b"IN" if harm == "cut" else b"X" + blob.read_bytes()[1:])
    for number in range(3):
        (project.root / f"build/target/s{number}.txt").unlink()
    after = execute(again(project), chain(project.root))
    assert outcomes(after).count("ran") == 1
    assert ran(project) == [f"s{which}"]
    assert [(project.root / f"build/target/s{n}.txt").read_text() for n in range(3)] == ["in a", "in ab", "in abc"]
    assert project.store.verified(record.results[which].outputs["text"].digest)


def test_damaged_input_blob_is_made_again_for_its_reader(project: Project) -> None:
    record = execute(project, chain(project.root))
    ran(project)
    blob = project.store.blob_path(record.results[0].outputs["text"].digest)
    blob.chmod(0o644)
    blob.write_bytes(b"evil")
    changed = chain(project.root, texts=("a", "B", "c"))
    after = execute(again(project), changed)
    assert outcomes(after) == ["ran", "ran", "ran"]
    assert ran(project) == ["s0", "s1", "s2"]
    assert (project.root / "build/target/s1.txt").read_text() == "in aB"


def test_damaged_source_blob_is_copied_again(project: Project) -> None:
    execute(project, chain(project.root))
    ran(project)
    blob = project.store.blob_path(project.digests.digest(project.root / "in.txt"))
    blob.chmod(0o644)
    blob.write_bytes(b"evil")
    assert outcomes(execute(again(project), chain(project.root, texts=("A",)))) == ["ran"]
    assert (project.root / "build/target/s0.txt").read_text() == "in A"


def gated(project: Project, limit: int, text: str = "a") -> tuple[Task, ...]:
    log = str(project.root / "log")
    made = task(dummies.JOIN, {"log": log, "text": text}, {"file": source("in.txt")}, role="made")
    gate = task(dummies.GATE, {"log": log, "limit": limit}, {"text": of(made)}, role="gate")
    shipped = task(
        dummies.LENGTH, {"log": log}, {"text": of(made)}, after=(gate.id,), publish="build/shipped", role="shipped"
    )
    last = task(dummies.JOIN, {"log": log, "name": "last"}, {"text": of(shipped)}, role="last")
    other = task(dummies.JOIN, {"log": log, "name": "other"}, role="other")
    return plan([made, gate, shipped, last, other])


def test_failing_gate_holds_up_its_successors_and_leaves_the_last_good_file(project: Project) -> None:
    execute(project, gated(project, 10))
    assert (project.root / "build/shipped").read_text() == "4"
    ran(project)
    tasks = gated(project, 10, "far too long for the gate")
    record = execute(again(project), tasks, keep_going=True)
    by_role = {result.task.name: result for result in record.results}
    assert {name: result.outcome for name, result in by_role.items()} == {
        "made": "ran", "gate": "failed", "shipped": "skipped", "last": "skipped", "other": "reused",
    }  # fmt: skip
    (failure,) = record.failures
    assert isinstance(failure.error, GateError)
    assert [fault.what for fault in failure.error.faults] == ["28 bytes are over the limit", "a second fault"]
    assert failure.error.faults[0].hint == "say less"
    assert by_role["shipped"].reasons == ("waits for gate, which failed",)
    assert (project.root / "build/shipped").read_text() == "4"
    (gate,) = [p for p in assess(again(project), tasks) if p.task.name == "gate"]
    assert gate.reasons == ("it failed last time",)


def test_changed_threshold_runs_only_the_gate(project: Project) -> None:
    execute(project, gated(project, 10))
    ran(project)
    tasks = gated(project, 11)
    gate = next(p for p in assess(again(project), tasks) if p.outcome != "reuse")
    assert gate.reasons == ("limit: 10 → 11",)
    execute(again(project), tasks)
    assert ran(project) == ["gate"]


def test_first_failure_stops_the_build_unless_told_otherwise(project: Project) -> None:
    bad = task(dummies.GATE, {"limit": 0}, {"text": of(head := task(dummies.JOIN, {"text": "x"}))})
    late = task(dummies.JOIN, {"text": "late"})
    tasks = plan([head, bad, late])
    assert outcomes(execute(project, tasks)) == ["ran", "failed", "skipped"]
    assert outcomes(execute(project, tasks, keep_going=True)) == ["reused", "failed", "ran"]


def test_bug_of_a_stage_is_named_with_its_traceback(project: Project) -> None:
    (failure,) = execute(project, plan([task(dummies.BROKEN, {"text": "what"})])).failures
    assert isinstance(failure.error, StageBug)
    assert "KeyError: 'what'" in failure.error.faults[0].what
    assert failure.error.faults[0].where == failure.task.id
    assert "dummies.py" in failure.error.traceback
    assert "printed before the end" in failure.error.traceback


def test_missing_output_is_refused(project: Project) -> None:
    (failure,) = execute(project, plan([task(dummies.FORGETFUL)])).failures
    assert type(failure.error) is StageError
    assert "'text'" in failure.error.faults[0].what


def test_killed_worker_is_told(project: Project) -> None:
    (failure,) = execute(project, plan([task(dummies.SUICIDAL)])).failures
    assert isinstance(failure.error, StageBug)
    assert "SIGKILL" in failure.error.faults[0].what


def test_all_missing_sources_are_told_at_once(project: Project) -> None:
    made = task(dummies.JOIN, {}, {"file": (*source("no.txt"), *source("in.txt"), *source("nor.txt"))})
    (failure,) = execute(project, plan([made])).failures
    assert isinstance(failure.error, RecipeError)
    assert [fault.where for fault in failure.error.faults] == ["no.txt", "nor.txt"]


def test_a_plan_tells_the_faults_of_all_tasks_at_once(project: Project) -> None:
    head = task(dummies.JOIN, {}, {"file": source("no.txt")})
    tasks = plan(
        [head, task(dummies.LENGTH, {}, {"text": of(head)}), task(dummies.JOIN, {}, {"file": source("nor.txt")})]
    )
    with pytest.raises(RecipeError) as refused:
        assess(project, tasks)
    assert [fault.where for fault in refused.value.faults] == ["no.txt", "nor.txt"]


def test_a_deep_plan_with_many_paths_is_assessed_quickly(project: Project) -> None:
    layers = [task(dummies.JOIN, {"text": "0"})]
    for depth in range(60):  # 2**60 paths lead from the last task to the first
        layers.append(task(dummies.JOIN, {"text": str(depth)}, {"text": (*of(layers[-1]), *of(layers[-1]))}))
    probes = assess(project, plan(layers))
    assert [probe.outcome for probe in probes] == ["run"] + ["unknown"] * 60
    last = Session(project, plan(layers)).probe(layers[-1].id)
    assert last.outcome == "unknown"


def test_two_parts_of_one_build_count_as_one(project: Project) -> None:
    tasks = chain(project.root)
    earlier = execute(project, tasks[:1])
    later = execute(project, tasks)
    assert outcomes(later) == ["reused", "ran", "ran"]
    both = later.after(earlier)
    assert outcomes(both) == ["ran", "ran", "ran"]
    assert both[tasks[0].id].seconds == earlier.results[0].seconds
    assert both.seconds == earlier.seconds + later.seconds


def test_worker_sees_a_fixed_environment(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    record = execute(project, plan([task(dummies.SNOOP)]), threads=2)
    text = project.store.read(record.results[0].outputs["text"].digest)
    assert text == b"PYTHONHASHSEED=0\nLC_ALL=C.UTF-8\nOMP_NUM_THREADS=1\nSECRET=None\n0\n2"


def test_heavy_stage_with_a_preloaded_library(project: Project) -> None:
    record = execute(project, plan([task(dummies.HEAVY)]))
    assert outcomes(record) == ["ran"]
    assert set(record.results[0].record.dictionary["tools"]) == {"numpy"}  # type: ignore[union-attr]
    assert project.store.read(record.results[0].outputs["text"].digest) == b"45"


class Recorder(Silence):
    """Remembers the events."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self.results: list[TaskResult] = []

    def started(self, task: Task, reasons: tuple[str, ...]) -> None:
        self.events.append(("started", task.name, reasons))

    def progress(self, task: Task, done: int, total: int) -> None:
        self.events.append(("progress", task.name, done, total))

    def finished(self, result: TaskResult) -> None:
        self.events.append(("finished", result.task.name, result.outcome))


def test_listener_hears_the_build(project: Project) -> None:
    recorder = Recorder()
    execute(project, chain(project.root, texts=("a",)), listener=recorder)
    assert recorder.events == [
        ("started", "s0", ("not built here before",)),
        ("progress", "s0", 1, 2),
        ("progress", "s0", 2, 2),
        ("finished", "s0", "ran"),
    ]


def test_listener_hears_that_another_build_is_at_the_task(project: Project) -> None:
    tasks = chain(project.root, texts=("a",))
    (probe,) = assess(project, tasks)
    assert probe.key is not None
    waits: list[str] = []
    released = threading.Event()

    class Waiting(Silence):
        def waiting(self, task: Task) -> None:
            waits.append(task.name)
            released.set()

    def hold(wanted: str) -> None:
        with project.store.lock(wanted):
            held.set()
            released.wait(20)

    held = threading.Event()
    other = threading.Thread(target=hold, args=(probe.key,))
    other.start()
    held.wait(20)
    assert outcomes(execute(project, tasks, listener=Waiting())) == ["ran"]
    other.join()
    assert waits == ["s0"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_jobs_and_shared_work(project: Project, jobs: int) -> None:
    tasks = plan([*chain(project.root, target="one"), *chain(project.root, target="two", texts=("a", "b", "C"))])
    assert len(tasks) == 4
    record = execute(project, tasks, jobs=jobs)
    assert outcomes(record) == ["ran"] * 4
    assert sorted(ran(project)) == ["s0", "s1", "s2", "s2"]
    for name, text in (("one", "in abc"), ("two", "in abC")):
        assert (project.root / f"build/{name}/s2.txt").read_text() == text
        assert (project.root / f"build/{name}/s0.txt").read_text() == "in a"
    assert record.to_json()[0]["targets"] == ["one", "two"]


def test_equal_keys_of_unequal_tasks_run_once(project: Project) -> None:
    log = str(project.root / "log")
    head = task(dummies.JOIN, {"text": "x"})
    params = {"log": log, "sleep": 0.2}
    twins = [
        task(dummies.JOIN, params, {"text": of(head)}, publish="build/a"),
        task(dummies.JOIN, params, {"text": of(head)}, after=(head.id,), publish="build/b"),
    ]
    record = execute(project, plan([head, *twins]), jobs=2)
    assert ran(project) == ["join"]
    assert sorted(outcomes(record)) == ["ran", "ran", "restored"]
    assert (project.root / "build/b").read_text() == "x"


def test_source_that_changes_while_it_is_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    real = project.store.put_file
    edits = iter(["two ", None])

    def edited(path: Path) -> str:
        text = next(edits)
        if text is not None:
            path.write_text(text)
        return real(path)

    monkeypatch.setattr(project.store, "put_file", edited)
    record = execute(project, chain(project.root, texts=("a",)))
    assert outcomes(record) == ["ran"]
    assert (project.root / "build/target/s0.txt").read_text() == "two a"


def test_folder_in_the_place_of_an_artifact(project: Project) -> None:
    (project.root / "build/target/s0.txt").mkdir(parents=True)
    (failure,) = execute(project, chain(project.root, texts=("a",))).failures
    assert isinstance(failure.error, StoreError)
    assert failure.error.faults[0].where == "build/target/s0.txt"


def test_new_target_of_a_finished_task_is_restored(project: Project) -> None:
    (made,) = chain(project.root, texts=("a",))
    execute(project, [made])
    more = replace(made, publish=(*made.publish, Publish(port="text", path="build/new/s0.txt")))
    assert outcomes(execute(again(project), [more])) == ["restored"]
    assert (project.root / "build/new/s0.txt").read_text() == "in a"


def test_interrupt_ends_the_workers(project: Project) -> None:
    timer = threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        execute(project, chain(project.root, texts=("a",), sleep=30))
    timer.join()
    assert time.monotonic() - started < 10
    assert outcomes(execute(again(project), chain(project.root, texts=("a",)))) == ["ran"]
    assert list((project.store.root / "tmp").iterdir()) == []


def test_senseless_numbers_are_refused(project: Project) -> None:
    with pytest.raises(UsageError):
        execute(project, (), jobs=0)
    with pytest.raises(UsageError):
        execute(project, (), threads=0)
