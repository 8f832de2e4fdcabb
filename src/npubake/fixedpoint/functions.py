"""Room ``fixedpoint``: values of elementwise functions, in float64 arrays and in 50-digit decimals.

A function is a chain of ONNX nodes from one tensor to another, every other operand a constant with one element.
Constants count with the exact value of their float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.fixedpoint.decimal_functions import DECIMAL, DIGITS
from npubake.fixedpoint.double_functions import DOUBLE

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node: operands are indices of earlier values (0 is the input) or constants; attributes as numbers or text."""

    op_type: str
    operands: tuple[int | float | None, ...]
    is_constant: tuple[bool, ...]
    attributes: Mapping[str, Any]


def evaluate_float64(steps: Sequence[Step], values: Array) -> Array:
    """float64 in, float64 out, elementwise; not a number or infinite where an intermediate leaves the range."""
    with np.errstate(all="ignore"):
        known: list[Any] = [values.astype(np.float64)]
        for step in steps:
            operands = [_operand(known, *pair) for pair in zip(step.operands, step.is_constant, strict=True)]
            known.append(DOUBLE.apply(step.op_type, operands, step.attributes))
        result: Array = np.broadcast_to(known[-1], values.shape)
    return result


def evaluate_decimal(steps: Sequence[Step], value: Decimal) -> Decimal:
    """The same for one value with 50 digits. Infinite where an operator has a pole or its result exceeds any range."""
    context = Context(prec=DIGITS, Emax=10**6, Emin=-(10**6))
    for trap in (DivisionByZero, InvalidOperation, Overflow):
        context.traps[trap] = False
    with localcontext(context):
        known: list[Any] = [value]
        for step in steps:
            operands = [
                None if operand is None else Decimal(operand) if constant else known[int(operand)]
                for operand, constant in zip(step.operands, step.is_constant, strict=True)
            ]
            known.append(DECIMAL.apply(step.op_type, operands, step.attributes))
        result: Decimal = +known[-1]
        return result


def supported(op_type: str) -> bool:
    return op_type in DECIMAL.operators and op_type in DOUBLE.operators


def _operand(known: Sequence[Any], operand: int | float | None, constant: bool) -> Any:
    if operand is None:
        return None
    return np.float64(operand) if constant else known[int(operand)]
