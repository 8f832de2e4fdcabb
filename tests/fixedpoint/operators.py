"""One small graph for every operator and fused form that has an integer kernel; weights drawn by a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tests.fixedpoint.builds import float_model, node

Array = NDArray[Any]
Rng = np.random.Generator
Build = Callable[[Rng], onnx.ModelProto]


def normal(rng: Rng, *shape: int) -> Array:
    """Weights of which some channels are far larger than others."""
    spread = np.exp(rng.normal(0, 1, (shape[0], *[1] * (len(shape) - 1))))
    return (rng.normal(0, 0.3, shape) * spread).astype(np.float32)


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


def _floats(*values: float) -> Array:
    return np.array(values, np.float32)


def _one(shape: Sequence[int], *nodes: onnx.NodeProto, **constants: Array) -> onnx.ModelProto:
    return float_model(nodes, {"x": shape}, constants, ["y"])


def _two(shapes: Sequence[Sequence[int]], *nodes: onnx.NodeProto, **constants: Array) -> onnx.ModelProto:
    return float_model(nodes, {"x": shapes[0], "z": shapes[1]}, constants, ["y"])


def conv(rng: Rng, shape: Sequence[int], weight: Sequence[int], after: str = "", **attributes: Any) -> onnx.ModelProto:
    """Conv (+ Relu or Clip), then a second Conv that keeps the first one's output an integer."""
    w, b = normal(rng, *weight), rng.normal(0, 1, weight[0]).astype(np.float32)
    first = "t" if after else "a"
    nodes = [node("Conv", "x w b", first, **attributes)]
    if after == "Relu":
        nodes.append(node("Relu", "t", "a"))
    elif after == "Clip":
        nodes.append(node("Clip", "t zero six", "a"))
    spatial = len(weight) - 2
    v = normal(rng, 3, weight[0], *[1] * spatial)
    constants = {"w": w, "b": b, "v": v, "zero": _floats(-0.5).reshape(()), "six": _floats(0.75).reshape(())}
    used = {name: value for name, value in constants.items() if after == "Clip" or name not in ("zero", "six")}
    return _one(shape, *nodes, node("Conv", "a v", "y"), **used)


def transposed(rng: Rng, groups: int = 1, **attributes: Any) -> onnx.ModelProto:
    w, b = normal(rng, 4, 6 // groups, 3, 3), rng.normal(0, 1, 6).astype(np.float32)
    v = normal(rng, 2, 6, 1, 1)
    first = node("ConvTranspose", "x w b", "a", group=groups, **attributes)
    return _one([1, 4, 5, 6], first, node("Conv", "a v", "y"), w=w, b=b, v=v)


def linear(rng: Rng, kind: str) -> onnx.ModelProto:
    w, b, v = normal(rng, 9, 7).T.copy(), rng.normal(0, 1, 9).astype(np.float32), normal(rng, 9, 4)
    if kind == "gemm":
        nodes = [node("Gemm", "x w b", "a", transB=1), node("Gemm", "a v", "y")]
        return _one([3, 7], *nodes, w=w.T.copy(), b=b, v=v)
    nodes = [node("MatMul", "x w", "t"), node("Add", "t b", "s"), node("Relu", "s", "a"), node("MatMul", "a v", "y")]
    return _one([2, 3, 7], *nodes, w=w, b=b, v=v)


def unary(*nodes: onnx.NodeProto, **constants: Array) -> Build:
    return lambda _: _one([2, 3, 5, 4], *nodes, **constants)


def moved(*nodes: onnx.NodeProto, shape: Sequence[int] = (1, 4, 6, 6), **constants: Array) -> Build:
    return lambda _: _one(shape, *nodes, **constants)


def layer_norm(rng: Rng, width: int) -> onnx.ModelProto:
    g, b = rng.normal(1, 0.5, width).astype(np.float32), rng.normal(0, 1, width).astype(np.float32)
    return _one([2, 3, width], node("LayerNormalization", "x g b", "y"), g=g, b=b)


WEIGHTED: Mapping[str, Build] = {
    "conv": lambda r: conv(r, [1, 3, 7, 8], [5, 3, 3, 3], pads=[1, 1, 1, 1]),
    "conv_relu": lambda r: conv(r, [2, 3, 7, 8], [5, 3, 3, 3], "Relu", pads=[1, 0, 2, 1], strides=[2, 1]),
    "conv_clip": lambda r: conv(r, [1, 3, 6, 6], [5, 3, 1, 1], "Clip"),
    "conv_dilated": lambda r: conv(r, [1, 3, 9, 9], [4, 3, 3, 3], dilations=[2, 3], pads=[2, 3, 2, 3]),
    "conv_same": lambda r: conv(r, [1, 2, 7, 6], [4, 2, 3, 2], auto_pad="SAME_LOWER", strides=[2, 2]),
    "conv_grouped": lambda r: conv(r, [1, 6, 6, 6], [4, 3, 3, 3], "Relu", group=2),
    "conv_depthwise": lambda r: conv(r, [1, 6, 6, 6], [6, 1, 3, 3], "Clip", group=6, pads=[1] * 4),
    "conv_multiplied": lambda r: conv(r, [1, 3, 6, 6], [6, 1, 3, 3], group=3),
    "conv_1d": lambda r: conv(r, [1, 3, 12], [5, 3, 4], "Relu", strides=[2]),
    "conv_3d": lambda r: conv(r, [1, 2, 4, 5, 4], [3, 2, 2, 3, 2]),
    "conv_transpose": lambda r: transposed(r, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    "conv_transpose_grouped": lambda r: transposed(r, groups=2, strides=[1, 3]),
    "gemm": lambda r: linear(r, "gemm"),
    "matmul_constant": lambda r: linear(r, "matmul"),
    "matmul": lambda _: _two([[2, 3, 5, 7], [2, 3, 7, 4]], node("MatMul", "x z", "t"), node("Relu", "t", "y")),
}
ELEMENTWISE: Mapping[str, Build] = {
    "add": lambda _: _two([[1, 4, 5, 5], [1, 4, 1, 5]], node("Add", "x z", "y")),
    "add_relu": lambda _: _two([[1, 4, 5, 5]] * 2, node("Add", "x z", "t"), node("Relu", "t", "y")),
    "sub": lambda _: _two([[1, 4, 5, 5]] * 2, node("Sub", "x z", "y")),
    "add_constant": lambda r: _one([1, 4, 5], node("Add", "x c", "y"), c=normal(r, 4, 5)),
    "sub_from_constant": lambda r: _one([1, 4, 5], node("Sub", "c x", "y"), c=normal(r, 4, 5)),
    "multiply": lambda _: _two([[1, 4, 5, 5], [1, 4, 1, 1]], node("Mul", "x z", "y")),
    "multiply_constant": lambda _: _one([1, 4, 5], node("Mul", "x c", "y"), c=_floats(0.35)),
    "multiply_channels": lambda r: _one([1, 4, 5], node("Mul", "x c", "y"), c=normal(r, 4, 1)),
    "divide_constant": lambda _: _one([1, 4, 5], node("Div", "x c", "y"), c=_floats(-2.5)),
    "divide": lambda _: _two([[1, 4, 5, 5]] * 2, node("Div", "x z", "y")),
}
FUNCTIONS: Mapping[str, Build] = {
    **{
        name.lower(): unary(node(name, "x", "y"))
        for name in ("Sigmoid", "Tanh", "Exp", "Erf", "Gelu", "Elu", "Softplus", "Relu", "HardSwish", "Neg", "Abs")
    },
    **{
        name.lower(): unary(node(name, "x", "y"))
        for name in ("Mish", "Softsign", "Sin", "Cos", "Atan", "Sinh", "Asinh")
    },
    "gelu_tanh": unary(node("Gelu", "x", "y", approximate="tanh")),
    "leaky_relu": unary(node("LeakyRelu", "x", "y", alpha=0.1)),
    "hard_sigmoid": unary(node("HardSigmoid", "x", "y", alpha=0.21, beta=0.4)),
    "silu": unary(node("Sigmoid", "x", "s"), node("Mul", "x s", "y")),
    "clip": unary(node("Clip", "x low high", "y"), low=_floats(-0.3).reshape(()), high=_floats(1.1).reshape(())),
    "square": unary(node("Mul", "x x", "y")),
    "cube": unary(node("Pow", "x three", "y"), three=_floats(3).reshape(())),
}
MOVEMENT: Mapping[str, Build] = {
    "reshape": moved(node("Reshape", "x s", "y"), s=_ints(1, 12, -1)),
    "transpose": moved(node("Transpose", "x", "y", perm=[0, 2, 3, 1])),
    "slice": moved(node("Slice", "x a b c", "y"), a=_ints(1), b=_ints(4), c=_ints(1)),
    "gather": moved(node("Gather", "x i", "y", axis=1), i=_ints(2, 0)),
    "expand": moved(node("Expand", "x s", "y"), shape=(1, 1, 6, 6), s=_ints(1, 3, 6, 6)),
    "tile": moved(node("Tile", "x s", "y"), s=_ints(1, 2, 1, 1)),
    "squeeze": moved(node("Squeeze", "x a", "t"), node("Unsqueeze", "t b", "y"), a=_ints(0), b=_ints(1)),
    "flatten": moved(node("Flatten", "x", "y")),
    "depth_to_space": moved(node("DepthToSpace", "x", "y", blocksize=2)),
    "space_to_depth": moved(node("SpaceToDepth", "x", "y", blocksize=2)),
    "pad": moved(node("Pad", "x p", "y"), p=_ints(0, 0, 1, 2, 0, 0, 0, 1)),
    "pad_reflect": moved(node("Pad", "x p", "y", mode="reflect"), p=_ints(0, 0, 1, 2, 0, 0, 0, 1)),
    "nearest": moved(
        node("Resize", "x - s", "y", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        s=_floats(1, 1, 2, 2),
    ),
    "max_pool": moved(node("MaxPool", "x", "y", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 1])),
    "global_max_pool": moved(node("GlobalMaxPool", "x", "y")),
    "split": lambda _: float_model(
        [node("Split", "x n", "y z", axis=1)], {"x": [1, 4, 3]}, {"n": _ints(1, 3)}, ["y", "z"]
    ),
    "concat": lambda _: _two([[1, 4, 3], [1, 2, 3]], node("Concat", "x z", "y", axis=1)),
    "concat_constant": lambda r: _one([1, 4, 3], node("Concat", "c x", "y", axis=1), c=normal(r, 1, 2, 3)),
}
POOLING: Mapping[str, Build] = {
    "global_average": moved(node("GlobalAveragePool", "x", "y"), shape=(2, 3, 5, 5)),
    "global_average_even": moved(node("GlobalAveragePool", "x", "y"), shape=(2, 3, 4, 4)),
    "average_pool": moved(node("AveragePool", "x", "y", kernel_shape=[2, 3], strides=[2, 1])),
    "average_pool_padded": moved(node("AveragePool", "x", "y", kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)),
    "reduce_mean": moved(node("ReduceMean", "x a", "y", keepdims=0), a=_ints(-1, 1)),
    "reduce_sum": moved(node("ReduceSum", "x a", "y"), a=_ints(2)),
    "reduce_max": moved(node("ReduceMax", "x a", "y"), a=_ints(1)),
    "reduce_min": moved(node("ReduceMin", "x a", "y", keepdims=0), a=_ints(1, 2)),
    "linear_half_pixel": moved(node("Resize", "x - s", "y", mode="linear"), s=_floats(1, 1, 2, 2)),
    "linear_asymmetric": moved(
        node("Resize", "x - s", "y", mode="linear", coordinate_transformation_mode="asymmetric"), s=_floats(1, 1, 4, 2)
    ),
    "linear_by_three_halves": moved(node("Resize", "x - s", "y", mode="linear"), s=_floats(1, 1, 1.5, 1.25)),
    "linear_by_four_thirds": moved(
        node("Resize", "x - s", "y", mode="linear"), shape=(1, 2, 3, 6), s=_floats(1, 1, 4 / 3, 4 / 3)
    ),
    "linear_down_by_three": moved(
        node("Resize", "x - - s", "y", mode="linear"), shape=(1, 2, 9, 7), s=_ints(1, 2, 3, 5)
    ),
    "linear_aligned": moved(
        node("Resize", "x - - s", "y", mode="linear", coordinate_transformation_mode="align_corners"),
        shape=(1, 2, 6, 6),
        s=_ints(1, 2, 9, 11),
    ),
    "linear_aligned_to_one": moved(
        node("Resize", "x - - s", "y", mode="linear", coordinate_transformation_mode="align_corners"),
        shape=(1, 2, 6, 6),
        s=_ints(1, 2, 1, 8),
    ),
    "linear_symmetric": moved(
        node("Resize", "x - s", "y", mode="linear", coordinate_transformation_mode="half_pixel_symmetric"),
        s=_floats(1, 1, 1.3, 2.6),
    ),
    "linear_down": moved(node("Resize", "x - s", "y", mode="linear"), shape=(1, 2, 8, 8), s=_floats(1, 1, 0.5, 0.5)),
}
NORMALISATION: Mapping[str, Build] = {
    "softmax": lambda _: _one([2, 3, 9], node("Softmax", "x", "y", axis=-1)),
    "softmax_channels": lambda _: _one([2, 5, 4], node("Softmax", "x", "y", axis=1)),
    "layer_norm": lambda r: layer_norm(r, 24),
    "layer_norm_wide": lambda r: layer_norm(r, 300),
    "layer_norm_two_axes": lambda r: _one(
        [2, 3, 4], node("LayerNormalization", "x g", "y", axis=1), g=np.abs(normal(r, 3, 4))
    ),
}
OPERATORS: Mapping[str, Build] = {**WEIGHTED, **ELEMENTWISE, **FUNCTIONS, **MOVEMENT, **POOLING, **NORMALISATION}
