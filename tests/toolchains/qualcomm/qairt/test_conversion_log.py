"""What the converters print of encodings: the figures of AIMET issue 4090, and what each state of them means."""

from __future__ import annotations

import pytest

from npubake.errors import StageError
from npubake.toolchains.qualcomm.qairt.conversion_log import Statistics, refuse_unmatched, statistics

ISSUE_4090 = """\
2026-04-15 10:00:00,123 - INFO - Processing...
[MISSING ENC.   ] 271 of 1117 (24%) tensors were missing encodings.
  [PROPAGATED   ] 135 of 271 (50%) tensors had encoding propagated.
  [FP16 FALLBACK] 136 of 271 (50%) tensors were assumed to be fp16.
[CONVERTS       ] 284 Convert/Cast ops injected.
"""


def test_the_figures_are_read() -> None:
    assert statistics(ISSUE_4090) == Statistics(
        stated=True, tensors=1117, missing=271, propagated=135, fell_to_float=136, converts=284
    )


def test_a_silent_log_is_not_a_good_one() -> None:
    assert statistics("INFO_CONVERSION_SUCCESS: Conversion completed successfully") == Statistics(stated=False)


def test_tensors_that_became_float_block() -> None:
    with pytest.raises(StageError) as refused:
        refuse_unmatched(statistics(ISSUE_4090), 0)
    assert "136 of 1117" in refused.value.faults[0].what


def test_tensors_that_were_meant_to_be_float_do_not() -> None:
    refuse_unmatched(statistics(ISSUE_4090), 136)
    with pytest.raises(StageError):
        refuse_unmatched(statistics(ISSUE_4090), 135)


def test_propagated_encodings_are_encodings() -> None:
    refuse_unmatched(Statistics(stated=True, tensors=10, missing=4, propagated=4), 0)


def test_what_is_neither_propagated_nor_float_blocks() -> None:
    with pytest.raises(StageError) as refused:
        refuse_unmatched(Statistics(stated=True, tensors=10, missing=4, propagated=3), 0)
    assert "1 of 10" in refused.value.faults[0].what


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: encoding for tensor 'conv1.out' was not found in the graph",
        "WARNING_ENCODINGS: no tensor named 'conv1.out' for the given encoding",
        'override "conv1.out" does not exist in the model',
    ],
)
def test_an_encoding_of_no_tensor_is_named(line: str) -> None:
    found = statistics(line)
    assert found.unmatched == ("conv1.out",)
    with pytest.raises(StageError) as refused:
        refuse_unmatched(found, 9)
    assert refused.value.faults[0].where == "conv1.out"
