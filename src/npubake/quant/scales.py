"""quant: the range and type that every sharing class is given, and the parameters they make. No onnx, no graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npubake.quant.affine import tensor_parameters
from npubake.quant.parameters import IntegerType, TensorParameters
from npubake.quant.ranges import NEUTRAL, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRange:
    """Range and type of a sharing class. cut: its range leaves out what no reader can tell apart."""

    span: Range
    dtype: IntegerType
    asymmetric: bool
    cut: bool = False


def class_parameters(classes: Mapping[str, ClassRange], tensors: Mapping[str, str]) -> dict[str, TensorParameters]:
    """Integer form of every tensor by its class; a dead class takes the neutral range. tensors: class of each."""
    made = {
        name: tensor_parameters(NEUTRAL if entry.span.dead else entry.span, entry.dtype, asymmetric=entry.asymmetric)
        for name, entry in classes.items()
    }
    return {name: made[first] for name, first in tensors.items()}
