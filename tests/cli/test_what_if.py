"""The words of ``what-if`` that stand in two rooms."""

from __future__ import annotations

from npubake.cli.parser import SORTS
from npubake.quant.thresholds import METHODS


def test_every_method_may_be_sorted_by() -> None:
    assert SORTS[: len(METHODS)] == METHODS
