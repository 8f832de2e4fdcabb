"""Room ``fixedpoint``: correctly rounded lookup tables. A function and two integer forms enter, integers leave.

entry[q] = clamp(rhe(f(s_in * (q - zp_in)) / s_out)), as q - zero point of the output. Values are computed in float64;
where one lies within ``MARGIN`` of a tie (or is no finite number) 50 decimal digits decide, so that neither libm nor
SIMD reaches the table: a float64 evaluation would have to be wrong by 2**-13 of a step. Within 1e-40 of a tie it counts
as one. No onnx here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

import numpy as np

from npubake.fixedpoint.arithmetic import Array
from npubake.fixedpoint.decimal_functions import DIGITS
from npubake.fixedpoint.functions import Step, evaluate_decimal, evaluate_float64
from npubake.quant.parameters import LIMITS, TensorParameters, limits

MARGIN = 2.0**-13  # in steps of the output
TIE = Decimal("1e-40")
EXP_STEPS = 65535  # resolution of the table of exp in softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """entries: int64 by q - lowest q of the input's dtype, each q - zero point of the output; decided: how many entries
    needed 50 digits; max_error, max_error_lsb: largest distance from the function where its value lies in the output's
    range, in real units and output steps; saturated: how many entries' values lie outside of it.
    """

    entries: Array
    decided: int
    max_error: float
    max_error_lsb: float
    saturated: int


def function_table(steps: Sequence[Step], source: TensorParameters, target: TensorParameters) -> Table:
    """The table of the function ``steps`` from ``source``'s integers to ``target``'s."""
    first, last = LIMITS[source.dtype]
    centred = np.arange(first, last + 1) - source.zero_point
    low, high = limits(target)
    exact = evaluate_float64(steps, centred * np.float64(source.scale)) / target.scale
    entries, decided = round_correctly(exact, lambda index: _quotient(steps, int(centred[index]), source, target))
    entries = np.clip(entries, low, high)
    with np.errstate(invalid="ignore"):
        held = (exact >= low - 0.5) & (exact <= high + 0.5)
    worst = float(np.abs(entries - exact)[held].max(initial=0.0))
    return Table(
        entries=entries.astype(np.int64),
        decided=decided,
        max_error=worst * target.scale,
        max_error_lsb=worst,
        saturated=int(np.count_nonzero(~held)),
    )


def exponential_table(scale: float, count: int) -> Array:
    """rhe(65535 * exp(-scale * d)) for d = 0 .. count - 1, int64."""
    step = Step(op_type="Exp", operands=(0,), is_constant=(False,), attributes={})
    exact = EXP_STEPS * np.exp(-np.float64(scale) * np.arange(count))

    def decide(index: int) -> Decimal:
        with localcontext(Context(prec=DIGITS)):
            return EXP_STEPS * evaluate_decimal((step,), -Decimal(scale) * index)

    return round_correctly(exact, decide)[0].astype(np.int64)


def round_correctly(values: Array, decide: Callable[[int], Decimal]) -> tuple[Array, int]:
    """rhe of float64 ``values``; ``decide(index)`` is asked near ties. Returns (float64 integers, how often)."""
    with np.errstate(invalid="ignore"):
        doubtful = ~np.isfinite(values) | (np.abs(np.abs(values - np.floor(values)) - 0.5) < MARGIN)
        entries = np.rint(np.clip(np.nan_to_num(values), -(2.0**40), 2.0**40))
    for index in np.flatnonzero(doubtful):
        entries[index] = round_decimal(decide(int(index)))
    return entries, int(doubtful.sum())


def round_decimal(value: Decimal) -> float:
    """rhe, where a value within 1e-40 of a tie is that tie; not a number counts as 0, huge values as 2**40."""
    if value.is_nan():
        return 0.0
    if abs(value) > 2**40:
        return float(2**40 if value > 0 else -(2**40))
    with localcontext(Context(prec=DIGITS)):
        half = value * 2
        nearest = half.to_integral_value("ROUND_HALF_EVEN")
        if abs(half - nearest) < 2 * TIE:
            value = nearest / 2
        return float(value.to_integral_value("ROUND_HALF_EVEN"))


def _quotient(steps: Sequence[Step], centred: int, source: TensorParameters, target: TensorParameters) -> Decimal:
    with localcontext(Context(prec=DIGITS)):
        value = evaluate_decimal(steps, Decimal(source.scale) * centred)
        return value / Decimal(target.scale) if value.is_finite() else value
