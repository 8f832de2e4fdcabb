"""quant: flat ends of functions, against scipy's own formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from npubake.quant.saturation import TAILS, useful_range

Function = Callable[[NDArray[np.float64]], Any]
FUNCTIONS: dict[str, Function] = {
    "sigmoid": special.expit,
    "tanh": np.tanh,
    "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: 0.5 * x * (1 + special.erf(x / np.sqrt(2))),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}
STEPS = st.floats(2.0**-18, 0.5)


def test_every_tail_has_an_independent_formula_here() -> None:
    assert FUNCTIONS.keys() == TAILS.keys()


@pytest.mark.parametrize("name", list(FUNCTIONS))
@given(step=STEPS)
def test_clipping_changes_no_output_by_more_than_half_a_step(name: str, step: float) -> None:
    span = useful_range(name, step)
    assert span is not None
    x = np.linspace(-80, 80, 20_001)
    error = np.abs(FUNCTIONS[name](x) - FUNCTIONS[name](np.clip(x, span.low, span.high)))
    assert error.max() <= step / 2 + 1e-12


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_no_more_is_kept_than_a_quarter_beyond_need(name: str) -> None:
    """One grid step nearer, the tail is above half an output step (or at the nearest end that is ever used)."""
    step = 1 / 255
    span = useful_range(name, step)
    assert span is not None
    limits = {"sigmoid": (0, 1), "tanh": (-1, 1)}.get(name, (0, None))
    for end, limit in zip((span.low, span.high), limits, strict=True):
        if limit is not None and abs(end) > 2:
            nearer = np.array([end - np.sign(end) * 0.25])
            assert abs(FUNCTIONS[name](nearer)[0] - limit) > step / 2


def test_functions_without_flat_ends_keep_everything() -> None:
    for name in ("relu", "exp", "abs", "", "leaky_relu"):
        assert useful_range(name, 0.01) is None
