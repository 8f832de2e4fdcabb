"""quant: scale and zero point of a range. A range in, parameters out; real = scale * (q - zero_point)."""

from __future__ import annotations

import numpy as np

from npubake.quant.parameters import IntegerType, TensorParameters
from npubake.quant.ranges import NEUTRAL, Range
from npubake.quant.thresholds import symmetric


def tensor_parameters(span: Range, dtype: IntegerType, *, asymmetric: bool) -> TensorParameters:
    """Integer form of an activation with this range.

    uint8 asymmetric: scale (high - low) / 255, zero point rint(-low / scale), so that zero has a code;
    uint8 symmetric: scale absmax / 127, zero point 128; int16: scale absmax / 32767, zero point 0. The scale is rounded
    to float32. A dead range (absmax below 2**-60) takes 0..1 instead. Raises ValueError for another dtype.
    """
    held = NEUTRAL if span.dead else span
    if dtype == "int16":
        held, scale, zero_point = symmetric(held), float(np.float32(held.absmax / 32767)), 0
    elif dtype != "uint8":
        raise ValueError(f"activations are uint8 or int16, not {dtype}")
    elif asymmetric:
        scale = float(np.float32((held.high - held.low) / 255))
        zero_point = int(np.clip(np.rint(-held.low / scale), 0, 255))
    else:
        held, scale, zero_point = symmetric(held), float(np.float32(held.absmax / 127)), 128
    return TensorParameters(dtype=dtype, scale=scale, zero_point=zero_point, low=held.low, high=held.high)
