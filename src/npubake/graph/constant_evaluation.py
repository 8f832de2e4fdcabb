"""Room ``graph``: the value of a node whose inputs are all constants. Arrays enter and leave, the same bits anywhere.

Three kinds of operators, each with arithmetic that does not depend on a BLAS, on vector width or on thread count:
exact ones (copies, comparisons and the IEEE operations + - * / sqrt) go to onnx's reference evaluator; transcendental
ones are computed element by element in float64 with the C library and then rounded to float32, which hides the last bit
of the C library; sums and matrix products are accumulated in float64 in index order. Whatever is in none of the tables
is not folded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from npubake.graph.editing import attribute
from npubake.graph.opset import STANDARD_DOMAINS

Array = NDArray[Any]

EXACT_OPERATORS = frozenset(
    (
        "Abs",
        "Add",
        "And",
        "ArgMax",
        "ArgMin",
        "Cast",
        "CastLike",
        "Ceil",
        "Clip",
        "Compress",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "DepthToSpace",
        "Div",
        "Equal",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "NonZero",
        "Not",
        "OneHot",
        "Or",
        "Pad",
        "Range",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Reshape",
        "Round",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Sign",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
        "Xor",
    )
)
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "Acos": math.acos,
    "Asin": math.asin,
    "Atan": math.atan,
    "Cos": math.cos,
    "Cosh": math.cosh,
    "Erf": math.erf,
    "Exp": math.exp,
    "Log": math.log,
    "Reciprocal": lambda value: 1.0 / value,
    "Sigmoid": lambda value: 1.0 / (1.0 + math.exp(-value)) if value > -700.0 else 0.0,
    "Sin": math.sin,
    "Sinh": math.sinh,
    "Softplus": lambda value: max(value, 0.0) + math.log1p(math.exp(-abs(value))),
    "Tan": math.tan,
    "Tanh": math.tanh,
}
_OWN = frozenset((*_FUNCTIONS, "Pow", "MatMul", "Gemm", "ReduceSum", "ReduceMean", "ReduceProd", "CumSum"))
FOLDABLE_OPERATORS = EXACT_OPERATORS | _OWN


def evaluate_node(node: onnx.NodeProto, inputs: Sequence[Array | None], opset: int) -> list[Array] | None:
    """Outputs of ``node`` on constant ``inputs`` (None: absent), or None where no exact arithmetic is known for it.

    Raises ValueError, OverflowError, ZeroDivisionError, IndexError or RuntimeError where the operator has no value
    there (log of a negative number, an index out of range).
    """
    if node.op_type in EXACT_OPERATORS and node.domain in STANDARD_DOMAINS:
        return _reference(node, inputs, opset)
    if node.op_type not in _OWN or inputs[0] is None:
        return None
    first = inputs[0]
    if node.op_type in _FUNCTIONS:
        return [_elementwise(_FUNCTIONS[node.op_type], first)] if first.dtype.kind == "f" else None
    if node.op_type == "CumSum":
        return _reference(node, inputs, opset) if first.dtype.kind == "i" else None
    if node.op_type == "Pow":
        exponent = inputs[1]
        return [_power(first, exponent)] if exponent is not None and first.dtype.kind in "fi" else None
    if node.op_type == "MatMul":
        second = inputs[1]
        return [_product(first, second)] if second is not None and min(first.ndim, second.ndim) >= 2 else None
    if node.op_type == "Gemm":
        return _gemm(node, first, *inputs[1:])
    return _reduce(node, first, inputs[1] if len(inputs) > 1 else None)


def _reference(node: onnx.NodeProto, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name and value is not None}
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    if node.op_type == "Sum" and len(node.input) == 1:
        return [np.asarray(inputs[0])]
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(copy, opsets={"": opset}).run(None, feeds)
    return [np.asarray(result) for result in results]


def _elementwise(function: Callable[[float], float], values: Array) -> Array:
    flat = [function(float(value)) for value in values.ravel()]
    return np.array(flat, dtype=np.float64).astype(values.dtype).reshape(values.shape)


def _power(base: Array, exponent: Array) -> Array:
    left, right = np.broadcast_arrays(base, exponent)
    if base.dtype.kind == "i":
        flat = [int(a) ** int(b) for a, b in zip(left.ravel(), right.ravel(), strict=True)]
        return np.array(flat, dtype=base.dtype).reshape(left.shape)
    values = [math.pow(float(a), float(b)) for a, b in zip(left.ravel(), right.ravel(), strict=True)]
    return np.array(values, dtype=np.float64).astype(base.dtype).reshape(left.shape)


def _product(left: Array, right: Array) -> Array:
    if left.dtype.kind != "f":
        return np.asarray(np.matmul(left, right))
    return _sums(left.astype(np.float64), right.astype(np.float64)).astype(left.dtype)


def _sums(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    total = a[..., :, 0, None] * b[..., 0, None, :]
    for k in range(1, a.shape[-1]):
        total = total + a[..., :, k, None] * b[..., k, None, :]
    return np.asarray(total)


def _gemm(node: onnx.NodeProto, left: Array, right: Array | None, added: Array | None = None) -> list[Array] | None:
    if right is None or left.dtype.kind != "f" or left.size == 0 or right.size == 0:
        return None
    a, b = left.astype(np.float64), right.astype(np.float64)
    total = _sums(a.T if attribute(node, "transA", 0) else a, b.T if attribute(node, "transB", 0) else b)
    total = float(attribute(node, "alpha", 1.0)) * total
    if added is not None:
        total = total + float(attribute(node, "beta", 1.0)) * added.astype(np.float64)
    return [np.asarray(total.astype(left.dtype))]


def _reduce(node: onnx.NodeProto, values: Array, axes_input: Array | None) -> list[Array] | None:
    axes = [int(axis) % values.ndim for axis in axes_input.ravel()] if axes_input is not None else []
    if not axes:
        if attribute(node, "noop_with_empty_axes", 0):
            return [values]
        axes = list(range(values.ndim))
    keep = bool(attribute(node, "keepdims", 1))
    if values.dtype.kind not in "fi" or values.size == 0 or (values.dtype.kind == "i" and node.op_type == "ReduceMean"):
        return None
    wide = values.astype(np.float64) if values.dtype.kind == "f" else values
    rest = [axis for axis in range(values.ndim) if axis not in axes]
    rows = wide.transpose(*axes, *rest).reshape(-1, *(values.shape[axis] for axis in rest))
    total = rows[0]
    for row in rows[1:]:
        total = total * row if node.op_type == "ReduceProd" else total + row
    if node.op_type == "ReduceMean":
        total = total / len(rows)
    shape = [1 if axis in axes else size for axis, size in enumerate(values.shape) if keep or axis not in axes]
    return [np.asarray(total, dtype=values.dtype).reshape(shape)]
