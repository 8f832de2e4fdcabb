"""Input lists and raw files against Python's struct."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from npubake.errors import StageError
from npubake.toolchains.qualcomm.qairt.raw_files import file_name, files_of, list_text, raw_bytes, read_raw


def test_a_raw_file_is_little_endian_float32_in_c_order() -> None:
    values = np.array([[1.5, -2.0], [0.25, 3.0]], np.float64)
    assert raw_bytes(values.T) == struct.pack("<4f", 1.5, 0.25, -2.0, 3.0)
    assert raw_bytes(values.astype(">f4")) == struct.pack("<4f", 1.5, -2.0, 0.25, 3.0)


def test_native_files_are_read_as_they_were_written() -> None:
    data = struct.pack("<3H", 1, 65535, 256)
    assert read_raw(data, "uint16", (1, 3), "out").tolist() == [[1, 65535, 256]]
    with pytest.raises(StageError) as refused:
        read_raw(data + data, "uint16", (1, 3), "out")
    assert "12 bytes" in refused.value.faults[0].what


def test_lists_of_one_and_of_several_inputs() -> None:
    assert list_text(["images"], 2) == "raw/00000_images.raw\nraw/00001_images.raw\n"
    assert list_text(["a/b", "c"], 1) == "a/b:=raw/00000_a_b.raw c:=raw/00000_c.raw\n"


def test_files_have_the_paths_of_the_list() -> None:
    example: dict[str, np.ndarray[Any, Any]] = {"a/b": np.ones((1, 2), np.float32), "ids": np.array([7], np.int64)}
    files = files_of(3, example, {"ids": "int64"})
    assert [file.path for file in files] == ["raw/00003_a_b.raw", "raw/00003_ids.raw"]
    assert files[1].data == struct.pack("<q", 7)


@pytest.mark.parametrize("names", [["a b", "c"], ["#x", "y"], ["a:=b", "c"], ["a/b", "a.b"]])
def test_names_that_a_list_cannot_hold(names: list[str]) -> None:
    with pytest.raises(StageError):
        list_text(names, 1)


def test_names_become_those_of_c() -> None:
    assert file_name("/model.24/m.0/Conv:0") == "_model_24_m_0_Conv_0"
