"""``what-if``: words that stand in two rooms."""

from __future__ import annotations

from npubake.cli.parser import METHODS
from npubake.quant.thresholds import MEASURED_METHODS


def test_every_method_that_is_measured_has_a_column() -> None:
    assert METHODS == MEASURED_METHODS
