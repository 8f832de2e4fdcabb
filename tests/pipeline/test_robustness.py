"""What must not go wrong: kills at every write, two builds at once, a full disk, a store that cannot be written."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from npubake.pipeline.collection import fsck
from npubake.pipeline.project import Project
from tests.pipeline.dummies import ran

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = {"s0.txt": "in a", "s1.txt": "in ab", "s2.txt": "in abc"}
PAIR = 'texts=["a", "b"]'


def start(project: Project, *options: str, preexec: str = "", **environment: str) -> subprocess.Popen[str]:
    """A build in a process of its own. preexec: Python statements that it executes first."""
    paths = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    code = f"import sys\n{preexec}\nfrom tests.pipeline.drive import main\nsys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, str(project.root), *options],
        cwd=ROOT,
        env=os.environ | paths | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcomes(process: subprocess.Popen[str], code: int = 0) -> list[str]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    return [result["outcome"] for result in json.loads(out)]


def published(project: Project) -> dict[str, str]:
    folder = project.root / "build/target"
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith(".")}


def finished(project: Project) -> int:
    return len(list(project.store.root.glob("ac/*/*.json")))


def wait_until_gone(project: Project) -> None:
    """Until no process works in the project (what a killed build left dies with it)."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(str(project.root).encode() in _command(path) for path in Path("/proc").glob("[0-9]*")):
            return
        time.sleep(0.02)
    raise AssertionError("a worker outlived its build")


def _command(process: Path) -> bytes:
    try:
        return b"" if int(process.name) == os.getpid() else str((process / "cwd").readlink()).encode()
    except OSError:
        return b""


def write_points(tmp_path: Path) -> list[tuple[str, int]]:
    """Every failpoint of a clean build of the chain, with its count."""
    root = tmp_path / "traced"
    root.mkdir()
    (root / "in.txt").write_text("in ")
    trace = tmp_path / "trace"
    assert outcomes(start(Project(root), PAIR, NPUBAKE_FAILPOINT_TRACE=str(trace))) == ["ran"] * 2
    names = trace.read_text().split()
    return [(name, names[: place + 1].count(name)) for place, name in enumerate(names)]


def test_killed_at_every_write_point(tmp_path: Path) -> None:
    """Each point is killed at where it is last reached, when a finished stage could be lost; at records also before."""
    points = write_points(tmp_path)
    assert {name for name, _ in points} >= {
        "source.named", "worker.started", "worker.ran", "blob.written", "blob.synced", "blob.named",
        "record.written", "record.synced", "record.named", "publish.written", "publish.named", "last.named",
    }  # fmt: skip
    chosen = {name: (name, count) for name, count in points}
    for name, count in [*chosen.values(), ("record.synced", 1), ("record.named", 1)]:
        root = tmp_path / f"{name}-{count}"
        root.mkdir()
        (root / "in.txt").write_text("in ")
        victim = Project(root)
        trace = str(tmp_path / f"{root.name}.trace")
        process = start(victim, PAIR, NPUBAKE_FAILPOINT=f"{name}:{count}", NPUBAKE_FAILPOINT_TRACE=trace)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, name
        wait_until_gone(victim)
        ran(victim)
        done = finished(victim)
        assert outcomes(start(victim, PAIR)).count("ran") == 2 - done, name
        assert len(ran(victim)) == 2 - done, name
        assert published(victim) == {name: EXPECTED[name] for name in ("s0.txt", "s1.txt")}, name
        assert not list((victim.store.root / "tmp").iterdir()), name
        checked = fsck(victim.store)
        assert (checked.damaged_blobs, checked.dropped_records) == ((), ()), name


def test_killed_at_random_moments(project: Project) -> None:
    chance = random.Random(5)
    seen = 0
    for _ in range(8):
        process = start(project, "sleep=0.1")
        time.sleep(chance.uniform(0.05, 0.7))
        process.kill()
        process.communicate()
        wait_until_gone(project)
        assert finished(project) >= seen
        seen = finished(project)
    ran(project)
    assert outcomes(start(project, "sleep=0.1")).count("ran") == 3 - seen
    assert len(ran(project)) == 3 - seen
    assert published(project) == EXPECTED
    assert not list((project.store.root / "tmp").iterdir())


def test_killed_build_leaves_no_worker(project: Project) -> None:
    process = start(project, "sleep=60")
    log = project.root / "log"
    deadline = time.monotonic() + 20
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    wait_until_gone(project)


def test_two_builds_at_once_share_the_work(project: Project, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "in.txt").write_text("in ")
    log = json.dumps(str(project.root / "log"))
    store = str(project.store.root)
    both = [start(Project(root), "sleep=0.4", f"log={log}", NPUBAKE_STORE=store) for root in (project.root, clone)]
    same = start(project, "sleep=0.4", f"log={log}", NPUBAKE_STORE=store)
    found = [outcomes(process) for process in (*both, same)]
    assert ran(project) == ["s0", "s1", "s2"]
    assert sum(names.count("ran") for names in found) == 3
    assert published(project) == published(Project(clone)) == EXPECTED


def test_a_full_disk_is_told_and_loses_nothing(project: Project) -> None:
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    assert outcomes(start(project)) == ["ran"] * 3
    full = start(
        project,
        f"texts={json.dumps(['a', 'x' * 30_000, 'c'])}",
        preexec=limit + "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))",
    )
    out, err = full.communicate(timeout=60)
    assert full.returncode == 1
    assert "npubake cache gc" in err
    assert [result["outcome"] for result in json.loads(out)] == ["reused", "failed", "skipped"]
    assert published(project) == EXPECTED
    assert outcomes(start(project)) == ["reused"] * 3
    assert fsck(project.store).damaged_blobs == ()


def test_a_full_disk_for_real(project: Project, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        options = tmp_path / "options"
        options.write_text(f"texts={json.dumps(['a' * 30_000] * 12)}")
        full = start(project, f"@{options}", NPUBAKE_STORE=str(place))
        out, err = full.communicate(timeout=60)
        names = [result["outcome"] for result in json.loads(out)]
        assert "no space left" in err
        assert "failed" in names
        assert 1 <= names.count("ran") < 12
        out, _ = start(project, f"@{options}", NPUBAKE_STORE=str(place)).communicate(timeout=60)
        assert [result["outcome"] for result in json.loads(out)].count("ran") == 0
        assert fsck(Project(project.root, place).store).damaged_blobs == ()
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("mask", ["0o077", "0o022"])
def test_modes_of_blobs_and_files(project: Project, mask: str) -> None:
    assert outcomes(start(project, preexec=f"import os; os.umask({mask})")) == ["ran"] * 3
    blobs = list(project.store.root.glob("cas/*/*"))
    assert {path.stat().st_mode & 0o777 for path in blobs} == {0o444}
    shown = (project.root / "build/target/s2.txt").stat().st_mode & 0o777
    assert shown == 0o666 & ~int(mask, 8)


def test_keys_do_not_depend_on_surroundings(tmp_path: Path) -> None:
    found = set()
    log = json.dumps(str(tmp_path / "log"))
    for number, (seed, locale) in enumerate([("0", "C"), ("1", "C.UTF-8"), ("2", "POSIX")]):
        root = tmp_path / f"folder {number}"
        root.mkdir()
        (root / "in.txt").write_text("in ")
        process = start(Project(root), f"log={log}", PYTHONHASHSEED=seed, LC_ALL=locale, TZ=f"UTC+{number}")
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        found.add(json.dumps([[result["key"], result["outputs"]] for result in json.loads(out)]))
    assert len(found) == 1
