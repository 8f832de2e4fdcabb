"""Archives as the compiler writes them for several SoCs: checksums 0, and the time of the compile inside."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import pytest

from npubake.errors import StageError
from npubake.toolchains.qualcomm.htp.context_archive import NO_TIME, context_binaries, is_archive, without_time

BODIES = {
    "htp.cache.qcs8300.0": b"context 82",
    "htp.cache.qcs9100.0": b"context 77",
    "htp.shared.weights.<a>": b"w" * 9,
}


def archive(stamp: str = "2026-11-30 00:18:42 UTC", compression: int = zipfile.ZIP_STORED) -> bytes:
    """With every checksum set to 0, as the compiler leaves them."""
    moments = {"header": {"timestamp": stamp}, "cacheList": [{"socModel": 82, "timestamp": stamp}]}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as target:
        target.writestr(zipfile.ZipInfo("dlc.metadata2.3.0"), json.dumps(moments), compression)
        for name, body in BODIES.items():
            target.writestr(zipfile.ZipInfo(name), body, compression)
    data = bytearray(written.getvalue())
    for signature, place in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        at = data.find(signature)
        while at >= 0:
            struct.pack_into("<I", data, at + place, 0)
            at = data.find(signature, at + 4)
    return bytes(data)


def test_that_the_contexts_are_found_whatever_their_checksums() -> None:
    assert context_binaries(archive()) == {name: BODIES[name] for name in sorted(BODIES) if "cache" in name}


def test_that_only_the_time_changes() -> None:
    early, late = archive("2026-11-30 00:18:42 UTC"), archive("2027-01-02 03:04:05 UTC")
    assert early != late
    assert without_time(early) == without_time(late) == without_time(without_time(early))
    assert without_time(early) == early.replace(b"2026-11-30 00:18:42 UTC", NO_TIME.encode())


@pytest.mark.parametrize("stamp", ["2026-11-30T00:18:42Z", "today"])
def test_that_a_time_of_another_form_is_refused(stamp: str) -> None:
    with pytest.raises(StageError, match="time of the compile"):
        without_time(archive(stamp))


@pytest.mark.parametrize("cut", [4, 30, 200, -10])
def test_that_an_archive_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(StageError):
        context_binaries(archive()[:cut])


def test_that_compressed_members_are_refused() -> None:
    with pytest.raises(StageError, match="not stored"):
        context_binaries(archive(compression=zipfile.ZIP_DEFLATED))


def test_that_one_context_is_no_archive() -> None:
    assert is_archive(archive())
    assert not is_archive(b"\x00\x00\x00\x02\x00\x00\x00\x03")
