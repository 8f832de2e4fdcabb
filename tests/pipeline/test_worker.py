"""One task in a process of its own, given only its specification and the store."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import BuildError, Fault, GateError, RecipeError, StoreError
from npubake.pipeline.key import key
from npubake.pipeline.pool import Damaged, StageBug, WorkerPool, preload
from npubake.pipeline.store import Record, Store
from npubake.pipeline.worker import Event, Specification, error_from, execute
from tests.pipeline.hermetic import violations

ROOT = Path(__file__).resolve().parents[2]


def specification(store: Store, run: str, /, *, text: bytes = b"in ", **params: Any) -> Specification:
    """A task that reads one blob."""
    digest = hashlib.sha256(text).hexdigest()
    store.put(text, digest)
    dictionary = {"stage": "dummy", "version": 1, "params": params, "inputs": {"file": [digest]}, "tools": {}}
    return Specification(
        task="dummy-1", run=f"tests.pipeline.{run}", outputs=("text",), dictionary=dictionary, store=str(store.root)
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_another_machine_needs_the_specification_and_the_store_alone(store: Store, tmp_path: Path) -> None:
    wanted = specification(store, "dummies:join", text=b"in ")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(store.root, elsewhere / "store")
    moved = Specification.from_json(wanted.to_json().replace(str(store.root), str(elsewhere / "store")))
    path = elsewhere / "specification.json"
    path.write_text(moved.to_json())
    done = subprocess.run(
        [sys.executable, "-m", "npubake.pipeline.worker", str(path)],
        cwd=elsewhere,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["progress", "progress", "done"]
    found = Store(elsewhere / "store")
    record = found.record(key(wanted.dictionary))
    assert record is not None
    assert found.read(record.outputs["text"].digest) == b"in "
    assert record.machine["arch"]
    assert record.seconds > 0


def test_specifications_survive_json(store: Store) -> None:
    wanted = specification(store, "dummies:join", text=b"x", a=[1, 2.5, None])
    assert Specification.from_json(wanted.to_json()) == wanted
    with pytest.raises(TypeError):
        Specification.from_json('{"outputs": [], "preload": [], "more": 1}')


@pytest.mark.parametrize("error", [GateError, RecipeError, StoreError, BuildError])
def test_refusals_keep_their_class_faults_and_facts(error: type[BuildError]) -> None:
    faults = (Fault(what="one", where="w", path="$.p", hint="h"), Fault(what="two"))
    event: Event = {
        "event": "failed",
        "class": f"{error.__module__}:{error.__qualname__}",
        "faults": [{"what": f.what, "where": f.where, "path": f.path, "hint": f.hint} for f in faults],
        "facts": {"checks": [{"passed": False}]},
    }
    found = error_from(json.loads(json.dumps(event)))
    assert type(found) is error
    assert found.faults == faults
    assert found.facts == {"checks": [{"passed": False}]}


def test_damaged_and_absent_inputs_are_told_before_anything_runs(store: Store, tmp_path: Path) -> None:
    wanted = specification(store, "dummies:join", log=str(tmp_path / "log"))
    (digest,) = wanted.dictionary["inputs"]["file"]
    store.blob_path(digest).chmod(0o644)
    store.blob_path(digest).write_bytes(b"evil")
    events: list[Event] = []
    execute(wanted, events.append)
    assert events == [{"event": "damaged", "digests": [digest]}]
    assert not (tmp_path / "log").exists()


def test_a_pool_runs_many_and_ends_at_once(store: Store, tmp_path: Path) -> None:
    pool = WorkerPool(tmp_path / "cache")
    records = [pool.run(specification(store, "dummies:join", n=n), lambda *_: None) for n in range(3)]
    assert all(isinstance(record, Record) for record in records)
    absent = specification(store, "dummies:join", n=9)
    store.blob_path(absent.dictionary["inputs"]["file"][0]).unlink()
    assert isinstance(pool.run(absent, lambda *_: None), Damaged)
    pool.close()
    with pytest.raises(StageBug):
        pool.run(specification(store, "dummies:join", n=4), lambda *_: None)


def test_large_specifications_pass(store: Store, tmp_path: Path) -> None:
    pool = WorkerPool(tmp_path / "cache")
    record = pool.run(specification(store, "dummies:join", names=["x" * 100] * 20_000), lambda *_: None)
    pool.close()
    assert isinstance(record, Record)


def test_preloading_names_modules_of_known_tools() -> None:
    assert preload(("numpy", "pillow", "protobuf")) == ("numpy", "PIL.Image")


@pytest.mark.parametrize(
    ("run", "touched"),
    [
        ("naughty:reads_elsewhere", "reads /etc/hostname"),
        ("naughty:writes_elsewhere", "writes "),
        ("naughty:connects", "socket.__new__"),
        ("naughty:spawns", "subprocess.Popen"),
    ],
)
def test_the_watch_sees_what_is_not_declared(store: Store, tmp_path: Path, run: str, touched: str) -> None:
    found = violations(specification(store, run, path=str(tmp_path / "elsewhere")))
    assert any(line.startswith(touched) for line in found), found


@pytest.mark.parametrize("run", ["naughty:good", "dummies:join", "dummies:heavy"])
def test_good_stages_touch_nothing_else(store: Store, run: str) -> None:
    assert violations(specification(store, run)) == []
