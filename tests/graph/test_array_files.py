"""npy and npz bytes: plain arrays, or one kind of error, whatever was changed in them."""

from __future__ import annotations

import io
import random
import zipfile
from typing import Any

import numpy as np
import pytest

from npubake.graph import array_files
from npubake.graph.array_files import UnreadableArrayError, read_npy, read_npz


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(compression: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("image.npy", npy(np.arange(60.0).reshape(3, 20)))
    return buffer.getvalue()


def with_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(64)


def test_arrays_come_back_by_name() -> None:
    assert read_npy(npy(np.array([1, 2], ">i2"))).dtype == np.dtype("=i2")
    assert read_npz(npz(zipfile.ZIP_DEFLATED))["image"].shape == (3, 20)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }\n",
        "{'descr': '<f4', b'x': 1, 'shape': (1,), }\n",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }\n",
        "(" * 3000,
    ],
)
def test_headers_that_lie(header: str) -> None:
    with pytest.raises(UnreadableArrayError):
        read_npy(with_header(header))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_changed_bytes_give_arrays_or_the_one_error(compression: int) -> None:
    whole, choice = npz(compression), random.Random(7)
    for _ in range(1000):
        changed = bytearray(whole)
        for _ in range(choice.choice((1, 2, 4))):
            changed[choice.randrange(len(changed))] = choice.randrange(256)
        try:
            read_npz(bytes(changed))
        except UnreadableArrayError as error:
            assert str(error)  # noqa: PT017 - either outcome is right; any other exception is not


def test_objects_are_told_apart() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([{}], dtype=object))
    with pytest.raises(UnreadableArrayError) as caught:
        read_npz(buffer.getvalue())
    assert caught.value.pickled
    assert caught.value.member == "x"


def test_a_decompression_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "MAX_UNPACKED", 1000)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.zeros(10_000))
    with pytest.raises(UnreadableArrayError, match="unpack"):
        read_npz(buffer.getvalue())


@pytest.mark.filterwarnings("ignore:Duplicate name")  # zipfile's own, where it writes one
def test_two_arrays_of_one_name_are_refused() -> None:
    array, packed = io.BytesIO(), io.BytesIO()
    np.save(array, np.ones(3, np.float32))
    with zipfile.ZipFile(packed, "w") as archive:
        for _ in range(2):
            archive.writestr("x.npy", array.getvalue())
    with pytest.raises(UnreadableArrayError) as caught:
        read_npz(packed.getvalue())
    assert caught.value.member == "x"
