"""What ran again against what was recorded: to the bit, every output, whichever of the two lacks one."""

from __future__ import annotations

import numpy as np
import pytest

from npubake.errors import StageError
from npubake.toolchains.board_edges import Arrays
from npubake.toolchains.qualcomm.release.verification import refuse_differences
from npubake.toolchains.recorded import Recorded

CODES = np.array([1, 2], np.uint8)


def examples(*outputs: Arrays) -> list[Recorded]:
    return [Recorded(example=f"{index}.png", inputs={}, outputs=each) for index, each in enumerate(outputs)]


def test_the_same_bytes_are_the_record() -> None:
    refuse_differences(examples({"y": CODES}), [{"y": CODES.copy()}], ran="the emulator", hint="")


def test_every_difference_is_told_at_once() -> None:
    recorded = examples({"y": CODES, "z": CODES}, {"y": CODES}, {"y": CODES})
    repeated: list[Arrays] = [{"y": CODES + np.uint8(3), "z": CODES.astype(np.int8)}, {"y": CODES, "z": CODES}, {}]
    with pytest.raises(StageError) as refused:
        refuse_differences(recorded, repeated, ran="the emulator", hint="why", where="a.bundle: ")
    faults = refused.value.faults
    assert [fault.where for fault in faults] == ["a.bundle: y", "a.bundle: z", "a.bundle: ", "a.bundle: "]
    assert "0.png: the emulator differs from the record by 3 " in faults[0].what
    assert [fault.what.partition(":")[0] for fault in faults] == ["0.png", "0.png", "1.png", "2.png"]
    assert {fault.hint for fault in faults} == {"why"}
