"""One possible form: whatever is changed, cut off, added or reordered is found."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npubake.errors import StageError
from npubake.toolchains.canonical_zip import read, write

ENTRIES = {"b.bin": bytes(range(256)), "a.json": b'{"x": 1}\n', "c/empty": b""}
DATA = write(ENTRIES)


def test_round_trip_and_order() -> None:
    assert read(DATA, "file") == ENTRIES
    assert write(dict(reversed(ENTRIES.items()))) == DATA
    with zipfile.ZipFile(io.BytesIO(DATA)) as archive:  # any unzip reads it
        assert archive.namelist() == sorted(ENTRIES)
        assert archive.testzip() is None


@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_every_byte_counts(bit: int) -> None:
    for position in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[position] ^= bit
        with pytest.raises(StageError):
            read(bytes(damaged), "file")


@given(st.integers(0, len(DATA) - 1))
def test_truncated(length: int) -> None:
    with pytest.raises(StageError):
        read(DATA[:length], "file")


@given(st.binary(min_size=1, max_size=40), st.integers(0, len(DATA)))
def test_inserted(extra: bytes, position: int) -> None:
    with pytest.raises(StageError):
        read(DATA[:position] + extra + DATA[position:], "file")


def test_other_forms_of_the_same_entries() -> None:
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", compression) as archive:
            for name, content in ENTRIES.items():
                archive.writestr(name, content)
        with pytest.raises(StageError):
            read(buffer.getvalue(), "file")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    with pytest.raises(StageError) as caught:
        read(buffer.getvalue(), "file")
    assert "twice" in caught.value.faults[0].what


def test_nothing_is_unpacked_from_a_file_of_another_form() -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(1 << 24))
    with pytest.raises(StageError, match="compressed"):
        read(bomb.getvalue(), "file")
    overlapping = bytearray(write({"a": b"x" * 300, "b": b"x" * 300}))
    place = overlapping.rindex(b"PK\x01\x02")
    overlapping[place + 24 : place + 28] = (1 << 30).to_bytes(4, "little")  # the second entry's size
    with pytest.raises(StageError, match="claim more"):
        read(bytes(overlapping), "file")
