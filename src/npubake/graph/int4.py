"""Room ``graph``: INT4 tensors, two to a byte as ONNX packs them: the first one in the low half."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto


def int4_tensor(values: NDArray[Any], name: str) -> TensorProto:
    """An INT4 initialiser of integers -8..7 of any shape. Raises ValueError for others."""
    if values.min(initial=0) < -8 or values.max(initial=0) > 7:
        raise ValueError(f"{name}: {values.min()}..{values.max()} is beyond 4 bits")
    nibbles = values.astype(np.int8).reshape(-1).view(np.uint8) & 15
    padded = np.append(nibbles, np.zeros(nibbles.size % 2, np.uint8))
    packed = padded[::2] | (padded[1::2] << 4)
    return TensorProto(name=name, data_type=TensorProto.INT4, dims=values.shape, raw_data=packed.tobytes())
