"""Fixed-point room: what is recorded of one node that went at an edge, and how the edge's integers are read. Data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from npubake.fixedpoint.model_edges import Side

BEHIND_SOFTMAX = "stands behind a removed Softmax"  # its axis is lost by the movement


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """real = scale * (q - zero_point); scale: one value, or one a channel along ``axis``."""

    scale: tuple[float, ...]
    zero_point: int
    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedNode:
    """One node that went. tensor: the edge's name; dtype, shape: of the edge afterwards (numpy name), before_dtype and
    before_shape: until then; affine: how the edge's integers are read, where a Quantize or Dequantize went at this
    edge; why: ``remove``, ``tail int32``, or ``BEHIND_SOFTMAX``.
    """

    side: Side
    tensor: str
    node: str
    op_type: str
    dtype: str
    shape: tuple[int, ...]
    before_dtype: str
    before_shape: tuple[int, ...]
    affine: Affine | None
    attributes: Mapping[str, Any]
    why: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
