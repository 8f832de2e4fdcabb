"""Layout room: valid shape, stride and aligned byte size of a tensor on a platform; packing. Facts and arrays only.

Image planes (nv12's two, gray): stride[i] = ALIGN(stride[i + 1] * valid_shape[i + 1], A) for the row axis and all
before it, the pixel itself is dense; byte size = stride[0] * valid_shape[0]. A is 32 on J6E/M/B and 64 on J6H/P/S6P
(vendor document "Platform differences"; the rule is the runtime's own for a stride of -1).

All other tensors are dense; their byte size is rounded up to the platform's minimum unit (64 bytes on J6E/M, 128 on
J6B, 256 on J6H/P/S6P), unless input_no_padding or output_no_padding asks for the exact size.

Not settled by any source: on a board, feature maps are padded in height as well (a U16 [1, 3, 212, 212] is reported
with stride [301056, 100352, 448, 2], where the rule above gives 94976 for the channel). The rule behind it is not
published, so it is not imitated here: a board's strides are read from its own model information.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault, StageError

Role = Literal["image", "input", "output"]
FEATURE_MAP_NOTE = (
    "dense; a board may pad width and height of feature maps by a rule that its documents do not state: "
    "read the strides of a vendor's artifact from its own model information"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """A platform's facts about tensors in memory, all in bytes, and the two choices a recipe has."""

    nv12_stride_bytes: int
    tensor_unit_bytes: int
    input_no_padding: bool = False
    output_no_padding: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLayout:
    """Where the elements of one tensor lie. stride: bytes an axis; aligned_byte_size: what to allocate."""

    valid_shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]
    aligned_byte_size: int
    role: Role


def align(size: int, unit: int) -> int:
    """The smallest multiple of ``unit`` that is not below ``size``."""
    return -(-size // unit) * unit


def tensor_layout(shape: Sequence[int], dtype: str, rules: MemoryRules, role: Role) -> TensorLayout:
    """Layout of a tensor. role ``image``: a plane [N, H, W, C] with C of 1 or 2, or [N, 1, H, W]; its rows are aligned.

    dtype: numpy's name. Raises StageError for an image plane of another rank.
    """
    size = np.dtype(dtype).itemsize
    unit = rules.nv12_stride_bytes if role == "image" else 1
    row = _row_axis(shape) if role == "image" else -1
    stride = [size] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        inner = stride[axis + 1] * shape[axis + 1]
        stride[axis] = align(inner, unit) if axis <= row else inner
    if role == "image":
        total = stride[0] * shape[0]
    else:
        exact = rules.input_no_padding if role == "input" else rules.output_no_padding
        total = size * math.prod(shape)
        total = total if exact else align(total, rules.tensor_unit_bytes)
    return TensorLayout(valid_shape=tuple(shape), dtype=dtype, stride=tuple(stride), aligned_byte_size=total, role=role)


def pack(array: NDArray[Any], layout: TensorLayout) -> NDArray[np.uint8]:
    """A zero-filled buffer of ``aligned_byte_size`` bytes that holds ``array`` at its strides."""
    if array.shape != layout.valid_shape or array.dtype != np.dtype(layout.dtype):
        found = f"{array.dtype} {list(array.shape)}"
        raise StageError(Fault(what=f"cannot pack {found} as {layout.dtype} {list(layout.valid_shape)}"))
    buffer = np.zeros(layout.aligned_byte_size, dtype=np.uint8)
    _view(buffer, layout)[...] = array
    return buffer


def unpack(buffer: NDArray[np.uint8], layout: TensorLayout) -> NDArray[Any]:
    """The dense array inside a buffer. Raises StageError where the buffer's size is not ``aligned_byte_size``."""
    if buffer.dtype != np.uint8 or buffer.shape != (layout.aligned_byte_size,):
        hint = f"a one-dimensional uint8 buffer of the aligned byte size, {layout.aligned_byte_size}"
        raise StageError(Fault(what=f"buffer of {buffer.dtype} {list(buffer.shape)}", hint=hint))
    return _view(np.ascontiguousarray(buffer), layout).copy()


def _view(buffer: NDArray[np.uint8], layout: TensorLayout) -> NDArray[Any]:
    view: NDArray[Any] = np.ndarray(
        layout.valid_shape, dtype=np.dtype(layout.dtype), buffer=buffer, strides=layout.stride
    )
    return view


def _row_axis(shape: Sequence[int]) -> int:
    """Axis that steps from row to row: 1 for [N, H, W, C], 2 for [N, 1, H, W]."""
    if len(shape) == 4 and shape[3] in (1, 2):
        return 1
    if len(shape) == 4 and shape[1] == 1:
        return 2
    raise StageError(Fault(what=f"{list(shape)} is no image plane", hint="[N, H, W, 1 or 2] or [N, 1, H, W]"))
