"""File signatures, remembered digests and atomic writes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

from npubake.pipeline import files
from npubake.pipeline.digests import FileDigests
from npubake.pipeline.files import copy_atomic, is_young, signature, write_atomic


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose bytes are read from now on."""
    read: list[Path] = []
    real = files.sha256_file

    def counting(path: str | Path) -> str:
        read.append(Path(path))
        return real(path)

    monkeypatch.setattr("npubake.pipeline.digests.sha256_file", counting)
    return read


def test_a_digest_is_remembered_across_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("text")
    time.sleep(0.03)
    digests = FileDigests(tmp_path / "digests.json")
    assert digests.digest(path) == sha("text")
    digests.save()
    read = counted(monkeypatch)
    assert FileDigests(tmp_path / "digests.json").digest(path) == sha("text")
    assert read == []


def test_a_young_signature_is_not_trusted(tmp_path: Path) -> None:
    digests = FileDigests(tmp_path / "digests.json")
    path = tmp_path / "a"
    for number in range(200):  # many writes within one tick of the clock, all of the same size
        path.write_text(f"{number:04}")
        assert digests.digest(path) == sha(f"{number:04}")


@pytest.mark.parametrize("how", ["in place", "renamed"])
def test_same_size_and_time_are_not_enough(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    os.utime(path, ns=(10**18, 10**18 + 1))
    time.sleep(0.03)
    digests = FileDigests(tmp_path / "digests.json")
    assert digests.digest(path) == sha("old")
    other = path if how == "in place" else tmp_path / "b"
    other.write_text("new")
    os.utime(other, ns=(10**18, 10**18 + 1))
    other.replace(path)
    assert digests.digest(path) == sha("new")


def test_a_damaged_memory_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("text")
    for memory in ("", "[]", "{broken", '{"x": 1'):
        (tmp_path / "digests.json").write_text(memory)
        assert FileDigests(tmp_path / "digests.json").digest(path) == sha("text")


def test_missing_files_are_the_callers_matter(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileDigests(tmp_path / "digests.json").digest(tmp_path / "none")


def test_settled_signatures_are_old_enough(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("text")
    settled = FileDigests(tmp_path / "digests.json").settle([path])
    stamp, digest = settled[path]
    assert digest == sha("text")
    assert not is_young(stamp, time.time_ns())
    path.write_text("TEXT")
    assert signature(path) != stamp


def test_young_means_within_a_tick_and_whole_seconds_are_coarse() -> None:
    now = 1_700_000_000_500_000_000
    assert is_young((1, 1, 0, now - 1_000_000), now)
    assert not is_young((1, 1, 0, now - 30_000_000), now)
    assert is_young((1, 1, now + 10**12, 1), now)  # a time in the future says nothing
    whole = 1_700_000_000_000_000_000
    assert is_young((1, 1, whole, whole), whole + 1_500_000_000)
    assert not is_young((1, 1, whole, whole), whole + 2_500_000_000)


def test_atomic_writes_replace_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a"
    write_atomic(path, b"one", "test")
    before = path.stat().st_ino
    write_atomic(path, b"two", "test", durable=True, mode=0o444)
    assert path.read_bytes() == b"two"
    assert path.stat().st_ino != before
    assert path.stat().st_mode & 0o777 == 0o444
    assert [entry.name for entry in path.parent.iterdir()] == ["a"]


def test_what_a_killed_write_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".a.part").write_text("far longer than what comes now")
    write_atomic(tmp_path / "a", b"new", "test")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not (tmp_path / ".a.part").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomic(tmp_path / "a", b"old", "test")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(tmp_path / "a", b"new", "test")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("a", b"old")]


def test_copies_share_no_bytes_and_tell_their_digest(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"bytes" * 300_000)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert copy_atomic(source, tmp_path / "copy", "test", expected=digest)
    assert not copy_atomic(source, tmp_path / "other", "test", expected="0" * 64)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["copy", "source"]
    with (tmp_path / "copy").open("r+b") as stream:
        stream.write(b"X")
    assert source.read_bytes()[:5] == b"bytes"
    assert source.stat().st_ino != (tmp_path / "copy").stat().st_ino


def test_a_reflink_counts_as_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def clone(descriptor: int, request: int, other: int) -> int:
        assert request == 0x40049409  # FICLONE of linux/fs.h
        os.write(descriptor, os.pread(other, 1 << 20, 0))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", clone)
    (tmp_path / "source").write_bytes(b"bytes")
    assert copy_atomic(tmp_path / "source", tmp_path / "copy", "test", expected=sha("bytes"))
    assert (tmp_path / "copy").read_bytes() == b"bytes"


def test_writers_of_one_file_take_turns(tmp_path: Path) -> None:
    texts = [letter * 200_000 for letter in "abcd"]
    threads = [threading.Thread(target=write_atomic, args=(tmp_path / "a", text.encode(), "test")) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "a").read_text() in texts
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
