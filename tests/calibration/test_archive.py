"""Archives: the same entries give the same bytes, and damage is seen."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from npubake.calibration.archive import ArchiveReader, ArchiveWriter
from npubake.errors import StageError


def write(path: Path) -> bytes:
    with ArchiveWriter(path) as archive:
        archive.array("a.npy", np.arange(12, dtype=np.float32).reshape(3, 4).T)
        archive.array("scalar.npy", np.array(7))
        archive.json("facts.json", {"b": 1, "a": [1.5, None]})
    return path.read_bytes()


def test_neither_umask_nor_order_of_keys_nor_memory_layout_shows(tmp_path: Path) -> None:
    first = write(tmp_path / "a")
    before = os.umask(0o077)
    try:
        assert write(tmp_path / "b") == first
    finally:
        os.umask(before)
    with zipfile.ZipFile(tmp_path / "a") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.read("facts.json") == b'{\n "a": [\n  1.5,\n  null\n ],\n "b": 1\n}\n'


def test_numpy_reads_what_is_written(tmp_path: Path) -> None:
    write(tmp_path / "a.npz")
    with ArchiveReader(tmp_path / "a.npz") as archive:
        assert archive.array("scalar.npy").shape == ()
        assert np.array_equal(archive.array("a.npy"), np.arange(12).reshape(3, 4).T)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as loaded:
        assert np.array_equal(loaded["a"], np.arange(12).reshape(3, 4).T)


def read_all(path: Path) -> list[bytes]:
    with ArchiveReader(path) as archive:
        return [archive.bytes(name) for name in ("a.npy", "scalar.npy", "facts.json")]


@pytest.mark.parametrize("at", [40, 160, -30])
def test_a_changed_byte_is_seen(tmp_path: Path, at: int) -> None:
    data = bytearray(write(tmp_path / "a"))
    data[at] ^= 0x40
    (tmp_path / "a").write_bytes(bytes(data))
    with pytest.raises(StageError):
        read_all(tmp_path / "a")


def test_a_missing_entry_is_a_damaged_file(tmp_path: Path) -> None:
    write(tmp_path / "a")
    with pytest.raises(StageError), ArchiveReader(tmp_path / "a") as archive:
        archive.json("other.json")
