"""Room ``fixedpoint``: how the integer model stores weights. Integers enter, the name of a constant leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from onnx import TensorProto, helper

from npubake.fixedpoint.arithmetic import Array
from npubake.fixedpoint.lowering import Lowering
from npubake.quant.parameters import WeightParameters
from npubake.quant.weight_formats import contraction_axis

StoredType = Literal["uint8", "float32", "float64"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """4-bit codes in the layout of the node, with zero points and multipliers (None for zeros and ones), one a channel,
    or a channel and group along ``axis``; group: of each input channel, None where there are none.
    """

    codes: Array
    zeros: Array | None
    multipliers: Array | None
    group: Array | None
    axis: int

    @classmethod
    def of(cls, codes: Array, facts: WeightParameters, transposed: bool) -> PackedWeights:
        """``codes`` in the initialiser's layout; transposed: the node reads them with their two axes swapped."""
        axis = contraction_axis(facts.axis)
        groups = np.arange(codes.shape[axis]) // facts.group_size if facts.group_size else None
        shape = [1] * codes.ndim
        shape[facts.axis], shape[axis] = len(facts.scales), -1

        def laid(values: tuple[int, ...]) -> Array | None:
            if not values:
                return None
            rows = np.array(values).reshape(len(facts.scales), -1)
            made = (rows if facts.axis < axis else rows.T).reshape(shape)
            return made.T if transposed else made

        return cls(
            codes=codes.T if transposed else codes,
            zeros=laid(facts.zero_points),
            multipliers=laid(facts.multipliers),
            group=groups,
            axis=1 - axis if transposed else axis,
        )


def stored_weights(
    lowering: Lowering, weights: Array, packed: PackedWeights | None, target: str, dtype: StoredType
) -> str:
    """The weights as a constant of ``dtype`` (uint8: shifted by 128); 4-bit codes stay packed and are widened in the
    graph, which the runtime does once, at load.
    """
    writer, numpy_type, wish = lowering.writer, np.dtype(dtype), f"{target}/weights"
    shift = 128 if dtype == "uint8" else 0
    if packed is None:
        return writer.constant((weights + shift).astype(numpy_type), wish)
    wide = numpy_type if dtype == "float64" else np.dtype(np.float32)
    name = writer.node("Cast", [writer.int4(packed.codes, wish)], wish, to=helper.np_dtype_to_tensor_dtype(wide))
    for operation, operand in (("Sub", packed.zeros), ("Mul", packed.multipliers)):
        if operand is not None:
            values = writer.constant(operand.astype(wide), wish)
            if packed.group is not None:
                groups = writer.constant(packed.group.astype(np.int32), f"{target}/groups")
                values = writer.node("Gather", [values, groups], wish, axis=packed.axis)
            name = writer.node(operation, [name, values], wish)
    if shift:
        name = writer.node("Add", [name, writer.constant(np.float32(shift), "byte_offset")], wish)
        name = writer.node("Cast", [name], wish, to=TensorProto.UINT8)
    return name
