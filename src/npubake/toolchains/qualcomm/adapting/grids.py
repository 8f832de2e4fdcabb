"""Qualcomm toolchain: the integer grids that tensors lie on, in the compiler's types. Ranges and parameters in.

real = scale * (q - zero_point), q unsigned: the HTP takes uint8 and uint16. int16 with zero point 0 is uint16 with zero
point 2**15: the same grid (ONNX Runtime's own quantiser for QNN makes no other type of activation).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from npubake.quant.affine import tensor_parameters
from npubake.quant.parameters import LIMITS, TensorParameters
from npubake.quant.ranges import DEAD_BELOW, NEUTRAL, Range, snapped, widened
from npubake.quant.tensor_ranges import WIDE_MARGIN

GridType = Literal["uint8", "uint16"]
Origin = Literal["parameters", "statistics", "fixed", "constant"]
Bits = Literal[8, 16]

TYPES: dict[Bits, GridType] = {8: "uint8", 16: "uint16"}
_HALF = 2**15  # zero point of int16 seen as uint16
_WIDENING = 257  # 65535 / 255
_TOLERANCE = 2.0**-20  # of an end of a range: more than float32 scales lose, less than a step of 16 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The integers of one tensor. scale: a float32 value held as float; by: who decided."""

    dtype: GridType
    scale: float
    zero_point: int
    by: Origin

    @property
    def bits(self) -> Bits:
        return 8 if self.dtype == "uint8" else 16

    @property
    def span(self) -> Range:
        """The reals of the lowest and the highest code."""
        low, high = LIMITS[self.dtype]
        return Range(low=self.scale * (low - self.zero_point), high=self.scale * (high - self.zero_point))

    def equals(self, other: Grid) -> bool:
        """Whether codes of both mean the same, whoever decided."""
        return replace(other, by=self.by) == self

    def implies(self, low: float, high: float) -> bool:
        """Whether rounding to the grid clips to low..high itself."""
        span = self.span
        slack = _TOLERANCE * span.absmax
        return span.low >= low - slack and span.high <= high + slack


def of_parameters(held: TensorParameters) -> Grid:
    """What calibrate or tune decided: uint8 as it is, int16 as uint16 on the same grid."""
    if held.dtype == "int16":
        return Grid(dtype="uint16", scale=held.scale, zero_point=held.zero_point + _HALF, by="parameters")
    if held.dtype != "uint8":
        raise ValueError(f"activations are uint8 or int16, not {held.dtype}")
    return Grid(dtype="uint8", scale=held.scale, zero_point=held.zero_point, by="parameters")


def of_range(span: Range, bits: Bits, by: Origin) -> Grid:
    """The grid over ``span``: 8 bits as calibrate makes them; 16 bits over the whole of uint16.

    scale = (high - low) / 65535, zero point rint(-low / scale).
    """
    held = NEUTRAL if span.dead else span
    if bits == 8:
        made = tensor_parameters(held, "uint8", asymmetric=True)
        return Grid(dtype="uint8", scale=made.scale, zero_point=made.zero_point, by=by)
    scale = float(np.float32((held.high - held.low) / 65535))
    zero_point = int(np.clip(np.rint(-held.low / scale), 0, 65535))
    return Grid(dtype="uint16", scale=scale, zero_point=zero_point, by=by)


def of_statistics(span: Range, bits: Bits) -> Grid:
    """The grid of what was seen: snapped as calibrate does, with its margin where 16 bits leave room for one."""
    return of_range(snapped(span) if bits == 8 else widened(span, WIDE_MARGIN), bits, "statistics")


def of_scalar(value: float, bits: Bits) -> Grid:
    """A grid that holds one number exactly: half of the codes are ``value``'s, a power of two of them."""
    if abs(value) < DEAD_BELOW:
        return Grid(dtype=TYPES[bits], scale=1.0, zero_point=0, by="constant")
    middle = 1 << (bits - 1)
    scale = float(np.float32(abs(value))) / middle
    return Grid(dtype=TYPES[bits], scale=scale, zero_point=0 if value > 0 else middle, by="constant")


def as_wide(held: Grid) -> Grid:
    """The same range in 16 bits: code * 257, so that a conversion loses nothing and 0..255 becomes 0..65535. (With the
    same codes, 0..255 of 65535, the HTP's 16-bit sums lose what is below them: 0.3 % of a range, measured.)
    """
    scale = float(np.float32(held.scale / _WIDENING))
    return replace(held, dtype="uint16", scale=scale, zero_point=held.zero_point * _WIDENING)


def set_apart(held: Grid) -> Grid:
    """Nearly the same grid, which the compiler does not take for it: steps 2**-10 wider, so that no code is clipped."""
    return replace(held, scale=float(np.float32(held.scale * (1 + 2.0**-10))))
