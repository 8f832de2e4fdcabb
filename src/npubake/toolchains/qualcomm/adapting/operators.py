"""Qualcomm toolchain: what the HTP computes of each ONNX operator, and how. Data; no onnx.

Sources: the operator builders of onnxruntime-qnn 2.7.0, and tests/qualcomm/test_operators.py, which compiles and runs
each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from npubake.toolchains.qualcomm.adapting.grids import Bits, Grid

# Operand slots that hold values; of all other operators it is the first alone (sizes, axes and indices are none).
_ALL_SLOTS = frozenset(
    (
        "Add", "BatchNormalization", "Concat", "Conv", "ConvTranspose", "Div", "Einsum", "Equal", "Gemm", "Greater",
        "GreaterOrEqual", "GridSample", "InstanceNormalization", "LayerNormalization", "Less", "LessOrEqual", "MatMul",
        "Max", "Mean", "Min", "Mod", "Mul", "PRelu", "Pow", "RMSNormalization", "Sub", "Sum",
    )
)  # fmt: skip
_SLOTS: Mapping[str, tuple[int, ...]] = {"Pad": (0, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2), "Where": (1, 2)}
# What they make is what they read: inputs and outputs share one grid.
MOVERS = frozenset(
    (
        "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "GlobalMaxPool",
        "Identity", "MaxPool", "Pad", "Reshape", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split",
        "Squeeze", "Tile", "TopK", "Transpose", "Unsqueeze", "Where",
    )
)  # fmt: skip
# No integer form in the compiler: they stay in float, on an SoC that has it.
FLOAT_ONLY = frozenset(("Cast",))
# At 8 bits the compiler takes these and computes nonsense.
WIDE_ONLY = frozenset(("CumSum",))
# Slots of constants that are 8 bits beside operands of any width, as weights are; PRelu's even in a lane of 16.
_SLOPES = ("PRelu", 1)
_WEIGHTS = frozenset(
    (
        ("Gemm", 1),
        ("GroupNormalization", 1),
        ("InstanceNormalization", 1),
        ("LayerNormalization", 1),
        ("MatMul", 0),
        ("MatMul", 1),
        ("RMSNormalization", 1),
    )
)
# Their third operand, a constant of scale (input scale * weight scale), is an int32 as a convolution's bias is.
WITH_BIAS = frozenset(("LayerNormalization", "InstanceNormalization", "GroupNormalization"))
# Grids that the HTP demands, by bits (onnxruntime/quantization/execution_providers/qnn/quant_config.py of 1.32).
# The compiler takes others at 16 bits without a word, and gives the codes of these.
_FIXED: Mapping[tuple[str, Bits], tuple[float, int]] = {
    ("HardSigmoid", 16): (2.0**-16, 0),
    ("Sigmoid", 16): (2.0**-16, 0),
    ("Tanh", 16): (2.0**-15, 2**15),
}
# Known by mathematics, of results that nobody observes.
Shape = Literal["unit", "symmetric"]
_UNIT: Mapping[str, Shape] = {"Sigmoid": "unit", "HardSigmoid": "unit", "Softmax": "unit", "Tanh": "symmetric"}


def value_slots(op_type: str, count: int) -> tuple[int, ...]:
    """Of ``count`` operands, those that hold values."""
    if op_type in _ALL_SLOTS:
        return tuple(range(count))
    return tuple(slot for slot in _SLOTS.get(op_type, (0,)) if slot < count)


def constant_bits(op_type: str, slot: int, bits: Bits, *, wide_weights: bool) -> Bits:
    """The width of a constant operand of an operation of ``bits``. wide_weights: of a lane with 16-bit weights."""
    narrow = (op_type, slot) == _SLOPES or ((op_type, slot) in _WEIGHTS and not wide_weights)
    return 8 if narrow else bits


def demanded_grid(op_type: str, bits: Bits) -> Grid | None:
    """The grid that the HTP demands of what the operator makes; None for none."""
    fixed = _FIXED.get((op_type, bits))
    if fixed is None:
        return None
    return Grid(dtype="uint16", scale=fixed[0], zero_point=fixed[1], by="fixed")


def known_grid(op_type: str, bits: Bits) -> Grid | None:
    """The grid of a result whose range mathematics gives: 1 / 2**bits, so that the HTP's shifts are exact."""
    shape, dtype = _UNIT.get(op_type), "uint8" if bits == 8 else "uint16"
    if shape is None:
        return None
    if shape == "unit":
        return Grid(dtype=dtype, scale=2.0**-bits, zero_point=0, by="fixed")  # type: ignore[arg-type]
    return Grid(dtype=dtype, scale=2.0 ** (1 - bits), zero_point=1 << (bits - 1), by="fixed")  # type: ignore[arg-type]
