"""The archive of recorded examples: what was written is read, and what was changed behind its digests is refused."""

from pathlib import Path

import numpy as np
import pytest

from npubake.calibration.archive import ArchiveWriter
from npubake.errors import StageError
from npubake.toolchains.recorded import RECORDED, Recorded, read_recorded, write_recorded

EXAMPLE = Recorded(
    example="a.png",
    inputs={"x": np.arange(6, dtype=np.uint8).reshape(2, 3)},
    outputs={"y": np.array([0.5, -1.0], np.float32)},
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "recorded.zip"
    write_recorded(path, [EXAMPLE, EXAMPLE])
    first, second = read_recorded(path.read_bytes(), "recorded.zip")
    for found in (first, second):
        assert found.example == "a.png"
        np.testing.assert_array_equal(found.inputs["x"], EXAMPLE.inputs["x"], strict=True)
        np.testing.assert_array_equal(found.outputs["y"], EXAMPLE.outputs["y"], strict=True)


def test_arrays_that_are_not_what_their_digests_say_are_refused_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "recorded.zip"
    with ArchiveWriter(path) as writer:
        writer.array("00000/inputs/x.npy", EXAMPLE.inputs["x"] + np.uint8(1))
        writer.array("00000/outputs/y.npy", EXAMPLE.outputs["y"].astype(np.float64))  # equal values of another type
        writer.json(RECORDED, {"version": 1, "runs": [EXAMPLE.facts()]})
    with pytest.raises(StageError) as caught:
        read_recorded(path.read_bytes(), "recorded.zip")
    assert [fault.where for fault in caught.value.faults] == [
        "recorded.zip: 00000/inputs/x.npy",
        "recorded.zip: 00000/outputs/y.npy",
    ]


def test_other_examples_than_were_verified_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "recorded.zip"
    facts = write_recorded(path, [EXAMPLE, EXAMPLE])
    assert len(read_recorded(path.read_bytes(), "recorded.zip", facts)) == 2
    for stated in (facts[:1], [*facts, *facts], []):
        with pytest.raises(StageError) as caught:
            read_recorded(path.read_bytes(), "recorded.zip", stated)
        assert [fault.where for fault in caught.value.faults] == ["recorded.zip"]
    write_recorded(path, [])
    with pytest.raises(StageError):
        read_recorded(path.read_bytes(), "recorded.zip", [])
