"""``what-if``: words that stand in two rooms."""

from __future__ import annotations

from npubake.cli.parser import SORTS
from npubake.quant.thresholds import MEASURED_METHODS


def test_every_method_may_be_sorted_by() -> None:
    assert SORTS[: len(MEASURED_METHODS)] == MEASURED_METHODS
