"""The store: what goes in comes out, or nothing does."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import StoreError, UsageError
from npubake.pipeline import locks
from npubake.pipeline.collection import fsck, gc, info
from npubake.pipeline.project import Project
from npubake.pipeline.store import Record, Store

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def keep(store: Store, data: bytes, **dictionary: Any) -> Record:
    """A record whose one output is ``data``."""
    with store.workspace() as folder:
        (folder / "out").write_bytes(data)
        blob = store.adopt(folder / "out")
    record = Record(outputs={"out": blob}, dictionary=dictionary, seconds=1.5, machine={"cpu": "x"})
    store.write_record(record)
    return record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_record_comes_back_with_its_blobs(store: Store, tmp_path: Path) -> None:
    record = keep(store, b"data", stage="s")
    blob = record.outputs["out"]
    assert (blob.digest, blob.size) == (hashlib.sha256(b"data").hexdigest(), 4)
    assert store.record(record.key) == record
    assert store.read(blob.digest) == b"data"
    assert store.restore(blob.digest, tmp_path / "deep" / "copy")
    assert (tmp_path / "deep" / "copy").read_bytes() == b"data"
    assert store.blob_path(blob.digest).stat().st_mode & 0o777 == 0o444
    assert store.record("0" * 64) is None
    assert store.read("0" * 64) is None


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "other key", "no blob", "not ours"])
def test_a_damaged_record_counts_as_absent(store: Store, harm: str) -> None:
    record = keep(store, b"data", stage="s")
    (path,) = store.root.glob("ac/*/*.json")
    text = path.read_bytes()
    path.chmod(0o644)
    match harm:
        case "cut":
            path.write_bytes(text[: len(text) // 2])
        case "flip":
            path.write_bytes(text.replace(record.outputs["out"].digest.encode(), b"0" * 64))
        case "empty":
            path.write_bytes(b"")
        case "other key":
            other = keep(store, b"data", stage="other")
            path.write_bytes(next(p for p in store.root.glob("ac/*/*.json") if p != path).read_bytes())
            assert store.record(other.key) == other
        case "no blob":
            store.blob_path(record.outputs["out"].digest).unlink()
        case "not ours":
            path.write_bytes(json.dumps({"sum": 1, "outputs": []}).encode())
    assert store.record(record.key) is None
    assert fsck(store).dropped_records == (record.key,)
    assert not path.exists()


def test_a_damaged_blob_is_dropped_and_not_served(store: Store, tmp_path: Path) -> None:
    digest = keep(store, b"data", stage="s").outputs["out"].digest
    store.blob_path(digest).chmod(0o644)
    store.blob_path(digest).write_bytes(b"evil")
    (tmp_path / "target").write_bytes(b"as it was")
    assert not store.restore(digest, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"as it was"
    assert not store.has(digest)


def test_a_damaged_blob_is_replaced_when_it_is_made_again(store: Store) -> None:
    record = keep(store, b"data", stage="s")
    path = store.blob_path(record.outputs["out"].digest)
    path.chmod(0o644)
    path.write_bytes(b"evil")
    keep(store, b"data", stage="s")
    assert store.read(record.outputs["out"].digest) == b"data"


def test_sources_are_copied_with_the_digest_of_the_copy(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"source")
    digest = store.put_file(tmp_path / "file")
    assert digest == hashlib.sha256(b"source").hexdigest()
    (tmp_path / "file").write_bytes(b"edited")
    assert store.read(digest) == b"source"
    store.put(b"literal", hashlib.sha256(b"literal").hexdigest())
    assert store.read(hashlib.sha256(b"literal").hexdigest()) == b"literal"


def test_folders_of_dead_processes_are_swept_and_those_at_work_stay(store: Store) -> None:
    code = (
        f"import os, sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n"
        "from pathlib import Path; from npubake.pipeline.store import Store\n"
        f"with Store(Path({str(store.root)!r})).workspace() as f: (f / 'x').write_text('x'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len(list((store.root / "tmp").iterdir())) == 2
    with store.workspace() as mine:
        store.sweep()
        assert [path.name for path in (store.root / "tmp").iterdir() if path.is_dir()] == [mine.name]
    assert list((store.root / "tmp").iterdir()) == []


def test_a_lock_goes_with_its_holder(store: Store) -> None:
    waits: list[int] = []
    with store.lock("k"):
        assert locks.try_exclusive(store.root / "lock" / "k") is None
    with store.lock("k", lambda: waits.append(1)):
        pass
    assert waits == []
    assert list((store.root / "lock").iterdir()) == []


CANNOT = [
    (errno.ENOSPC, "no space left"),
    (errno.EROFS, "read-only"),
    (errno.EACCES, "permission denied"),
    (errno.EDQUOT, "quota"),
    (errno.EIO, "input/output error"),
]


@pytest.mark.parametrize(("number", "said"), CANNOT)
def test_every_trouble_is_told_with_what_to_do(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def failing(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    record = keep(store, b"data", stage="s")
    monkeypatch.setattr(os, "write", failing)
    with pytest.raises(StoreError) as refused:
        store.write_record(record)
    (fault,) = refused.value.faults
    assert said in fault.what
    assert fault.where == str(store.root)
    assert fault.hint


def as_nobody(script: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Run Python statements as a user without rights (the tests may run as root)."""
    lower = f"import os\nif os.getuid() == 0: os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    head = "import sys; from pathlib import Path\nfrom npubake.pipeline.store import Store\n"
    return subprocess.run(
        [sys.executable, "-c", f"{head}{lower}{script}", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def reachable(path: Path) -> None:
    """Let others pass through the folders above (pytest makes them private)."""
    for folder in path.parents:
        if folder.stat().st_uid == os.getuid() and len(folder.parts) > 2:
            folder.chmod(folder.stat().st_mode | 0o055)


def test_a_store_that_cannot_be_written_still_serves(store: Store, tmp_path: Path) -> None:
    record = keep(store, b"data", stage="s")
    reachable(store.root / "x")
    for path in store.root.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    store.root.chmod(0o555)
    free = tmp_path / "free"
    free.mkdir()
    free.chmod(0o777)
    done = as_nobody(
        "store = Store(Path(sys.argv[1]))\n"
        f"with store.in_use(): print(store.record({record.key!r}) is not None)\n"
        f"print(store.restore({record.outputs['out'].digest!r}, Path(sys.argv[2]) / 'copy'))\n"
        "store.put(b'new', '0' * 64)",
        store.root,
        free,
    )
    assert done.stdout.split() == ["True", "True"]
    assert "StoreError" in done.stderr
    assert "permission denied" in done.stderr
    assert (free / "copy").read_bytes() == b"data"
    for path in [store.root, *store.root.rglob("*")]:
        path.chmod(0o755)


def test_a_store_that_cannot_be_read_is_told(store: Store) -> None:
    record = keep(store, b"data", stage="s")
    reachable(store.root / "x")
    (store.root / "ac").chmod(0o700)
    done = as_nobody(f"Store(Path(sys.argv[1])).record({record.key!r})", store.root)
    if os.getuid() != 0:
        pytest.skip("needs root to give up its rights")
    assert "the store cannot be read: permission denied" in done.stderr


def test_a_file_in_the_place_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        Project(tmp_path, tmp_path / "file")
    with pytest.raises(StoreError):
        Store(tmp_path / "file").put(b"x", "0" * 64)


def test_the_stores_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NPUBAKE_STORE", raising=False)
    assert Project(tmp_path).store.root == tmp_path / ".npubake/store"
    monkeypatch.setenv("NPUBAKE_STORE", str(tmp_path / "shared"))
    assert Project(tmp_path).store.root == tmp_path / "shared"
    assert Project(tmp_path, Path("own")).store.root == tmp_path / "own"
    monkeypatch.setenv("NPUBAKE_STORE", "")
    assert Project(tmp_path).store.root == tmp_path / ".npubake/store"


def aged(store: Store, *ages: float) -> list[Record]:
    """Records of 100 bytes each, last used so many seconds ago."""
    records = []
    for age in ages:
        record = keep(store, f"{age:0100}".encode(), age=age)
        path = store.root / "ac" / record.key[:2] / f"{record.key[2:]}.json"
        os.utime(path, (time.time() - age, time.time() - age))
        records.append(record)
    return records


def test_info_counts(store: Store) -> None:
    assert (info(store).records, info(store).blobs, info(store).oldest_use) == (0, 0, None)
    aged(store, 10, 1000)
    found = info(store)
    assert (found.records, found.blobs, found.size) == (2, 2, 200)
    assert found.oldest_use == pytest.approx(time.time() - 1000, abs=5)


def test_gc_removes_the_old_then_the_longest_unused(store: Store) -> None:
    new, middle, old = aged(store, 10, 1000, 2000)
    store.put(b"orphan", hashlib.sha256(b"orphan").hexdigest())
    told = gc(store, max_age=1500, dry_run=True)
    assert told.keys == (old.key,)
    assert told.freed == 106
    assert info(store).records == 3
    assert gc(store, max_age=1500) == told
    assert store.record(old.key) is None
    kept = gc(store, max_size=150, keep=frozenset({middle.key}))
    assert kept.keys == (new.key,)
    assert store.record(middle.key) is not None
    assert gc(store, max_size=0, keep=frozenset({middle.outputs["out"].digest})).left == 100
    assert store.read(middle.outputs["out"].digest) is not None


def test_gc_keeps_blobs_that_another_record_holds(store: Store) -> None:
    one, two = keep(store, b"same", n=1), keep(store, b"same", n=2)
    path = store.root / "ac" / one.key[:2] / f"{one.key[2:]}.json"
    os.utime(path, (0, 0))
    gc(store, max_age=100)
    assert store.record(one.key) is None
    assert store.record(two.key) == two


def test_gc_and_fsck_wait_for_no_build_but_refuse(store: Store) -> None:
    keep(store, b"data", stage="s")
    with store.in_use():
        for care in (gc, fsck):
            with pytest.raises(StoreError) as refused:
                care(store)
            assert "a build is using the store" in refused.value.faults[0].what
        gc(store, dry_run=True)
    assert fsck(store).blobs == 1


def test_a_record_that_is_used_stays_young(store: Store) -> None:
    (record,) = aged(store, 10_000)
    store.record(record.key)
    assert gc(store, max_age=5000).keys == ()


def test_fsck_names_what_it_dropped(store: Store) -> None:
    good, bad = keep(store, b"good", n=1), keep(store, b"bad", n=2)
    digest = bad.outputs["out"].digest
    store.blob_path(digest).chmod(0o644)
    store.blob_path(digest).write_bytes(b"BAD")
    checked = fsck(store)
    assert (checked.blobs, checked.records) == (2, 2)
    assert checked.damaged_blobs == (digest,)
    assert checked.dropped_records == (bad.key,)
    assert store.record(good.key) == good


def test_care_of_a_store_that_is_not_there(store: Store) -> None:
    assert fsck(store).blobs == 0
    assert gc(store, max_size=0).freed == 0
    assert not store.root.exists()
