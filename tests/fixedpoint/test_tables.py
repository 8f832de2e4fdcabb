"""Tables are correctly rounded: every entry against mpmath, ties, poles and bounds."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npubake.fixedpoint.decimal_functions import DECIMAL
from npubake.fixedpoint.double_functions import DOUBLE
from npubake.fixedpoint.functions import Step, evaluate_float64
from npubake.fixedpoint.tables import exponential_table, function_table, round_decimal
from npubake.quant.parameters import IntegerType, TensorParameters
from tests.fixedpoint.builds import node
from tests.fixedpoint.evaluator import mp_function, rounded

SMOOTH = ("Sigmoid", "Tanh", "Erf", "Gelu", "Softplus", "Elu", "Mish", "Atan", "Asinh", "Sin", "Cos", "Softsign")
FINITE = (*SMOOTH, "Exp", "Sinh", "Cosh", "HardSwish", "HardSigmoid", "LeakyRelu", "Relu", "Neg", "Abs")


def form(dtype: IntegerType, scale: float, zero_point: int = 0) -> TensorParameters:
    return TensorParameters(dtype=dtype, scale=float(np.float32(scale)), zero_point=zero_point, low=-1.0, high=1.0)


def step(op_type: str) -> Step:
    return Step(op_type=op_type, operands=(0,), is_constant=(False,), attributes={})


def expected(op_type: str, centred: int, source: TensorParameters, target: TensorParameters) -> int:
    """The entry by mpmath with 45 digits."""
    low, high = (0, 255) if target.dtype == "uint8" else (-32768, 32767)
    low, high = low - target.zero_point, high - target.zero_point
    with mpmath.workdps(45):
        value = mp_function(node(op_type, "x", "y"), [mpmath.mpf(source.scale) * centred])
        return int(min(max(rounded(value, (Fraction(target.scale), low, high)), low), high))


@settings(max_examples=3, deadline=None)
@given(st.floats(0.001, 0.2), st.floats(0.0005, 0.2), st.integers(0, 255), st.integers(0, 255))
@pytest.mark.parametrize("op_type", FINITE)
def test_bytes_are_correctly_rounded(op_type: str, s_in: float, s_out: float, z_in: int, z_out: int) -> None:
    source, target = form("uint8", s_in, z_in), form("uint8", s_out, z_out)
    found = function_table((step(op_type),), source, target).entries
    assert found.tolist() == [expected(op_type, q - z_in, source, target) for q in range(256)]


@pytest.mark.parametrize("op_type", SMOOTH)
def test_int16_is_correctly_rounded_where_a_wrong_digit_would_show(op_type: str) -> None:
    """Of 65,536 entries, those nearest to a tie, and a spread of others."""
    source, target = form("int16", 2**-13 * 1.1), form("int16", 2**-14 * 1.3)
    table = function_table((step(op_type),), source, target)
    values = evaluate_float64((step(op_type),), np.arange(-32768, 32768) * source.scale) / target.scale
    closeness = np.abs(np.abs(values - np.floor(values)) - 0.5)
    chosen = np.concatenate([np.argsort(closeness)[:20], np.arange(0, 65536, 3001)])
    for index in chosen:
        assert table.entries[index] == expected(op_type, int(index) - 32768, source, target)
    assert 0 < table.decided < 100


def test_ties_go_to_even() -> None:
    """Halving: every odd input is an exact tie."""
    halved = function_table((step("Identity"),), form("uint8", 1.0, 128), form("uint8", 2.0, 128)).entries
    assert halved.tolist() == [round(Fraction(q - 128, 2)) for q in range(256)]


def test_poles_and_domains_saturate() -> None:
    table = function_table((step("Reciprocal"),), form("uint8", 0.1, 100), form("uint8", 0.05, 128)).entries
    assert table[100] == 127
    assert table[99] == -128
    logarithm = function_table((step("Log"),), form("uint8", 0.1, 100), form("uint8", 0.05, 128)).entries
    assert logarithm[100] == -128
    assert set(logarithm[:100]) == {0}


def test_error_bound_is_the_largest_distance() -> None:
    source, target = form("uint8", 8 / 255, 128), form("uint8", 1 / 255)
    table = function_table((step("Sigmoid"),), source, target)
    exact = [1 / (1 + mpmath.exp(-mpmath.mpf(source.scale) * (q - 128))) for q in range(256)]
    errors = [abs(float(value) - target.scale * int(entry)) for value, entry in zip(exact, table.entries, strict=True)]
    assert table.max_error == pytest.approx(max(errors), rel=1e-9)
    assert table.max_error_lsb <= 0.5 + 1e-6
    assert table.saturated == 0


def test_the_error_is_of_what_the_output_can_hold() -> None:
    """x in -12.8 .. 12.7 into 0 .. 2.55: 128 values below half a step under zero, 102 above 2.555."""
    table = function_table((step("Identity"),), form("uint8", 0.1, 128), form("uint8", 0.01))
    assert table.saturated == 128 + 102
    assert table.max_error_lsb <= 0.5


@settings(max_examples=10)
@given(st.floats(2.0**-12, 1.0))
def test_exponentials_are_correctly_rounded(scale: float) -> None:
    scale = float(np.float32(scale))
    with mpmath.workdps(45):
        wanted = [int(mpmath.nint(65535 * mpmath.exp(-mpmath.mpf(scale) * d))) for d in range(256)]
    assert exponential_table(scale, 256).tolist() == wanted


def test_rounding_of_decimals() -> None:
    values = ["0.5", "1.5", "-0.5", "2.4999999999", "1e60", "NaN", "0.50000000000000000000000000000000000000000000001"]
    assert [round_decimal(Decimal(value)) for value in values] == [0, 2, 0, 2, 2.0**40, 0, 0]


def test_both_evaluations_know_the_same_operators() -> None:
    assert DECIMAL.operators == DOUBLE.operators


@settings(max_examples=20)
@given(
    st.floats(-6, 6), st.sampled_from(sorted(set(FINITE) | {"Tan", "Sign", "Floor", "Ceil", "Round", "Selu", "Celu"}))
)
def test_digits_agree_with_doubles(value: float, op_type: str) -> None:
    precise = float(DECIMAL.apply(op_type, [Decimal(value)], {}))
    assert precise == pytest.approx(
        float(evaluate_float64((step(op_type),), np.array([value]))[0]), rel=1e-9, abs=1e-12
    )
