"""Qualcomm toolchain: constant operands as integers. numpy in, numpy out; no onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.quant.parameters import LIMITS
from npubake.quant.ranges import including_zero
from npubake.toolchains.qualcomm.adapting.grids import Bits, Grid, of_range, of_scalar


def constant_codes(values: NDArray[Any], bits: Bits, shared: Grid | None = None) -> tuple[NDArray[Any], Grid]:
    """Codes in the shape of ``values``, and their grid: the one that is ``shared`` with what the operation makes, exact
    for one number, else over their own extremes. code = rint(v / scale) half to even + zero point, saturated.
    """
    if shared is not None:
        grid = shared
    elif values.size and (values == values.reshape(-1)[0]).all():
        grid = of_scalar(float(values.reshape(-1)[0]), bits)
    else:
        grid = of_range(including_zero(values.min(initial=0.0), values.max(initial=0.0)), bits, "constant")
    low, high = LIMITS[grid.dtype]
    steps = np.rint(values.astype(np.float64) / grid.scale) + grid.zero_point
    return np.clip(steps, low, high).astype(grid.dtype), grid
