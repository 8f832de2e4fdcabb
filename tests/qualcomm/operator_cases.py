"""Small models, one operator each, as the HTP compiler is asked to take them. Data for ``test_operators``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.fixedpoint.builds import node

Array = NDArray[Any]
IMAGE = (1, 8, 12, 12)
ROWS = (1, 16, 24)
_random = np.random.default_rng(4)


def weights(*shape: int) -> Array:
    """Normal float32, scaled for a layer of unit gain."""
    drawn: Array = _random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return drawn.astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCase:
    """nodes: from ``x`` (and ``y``) to ``out``; low, high: of the values that are fed."""

    name: str
    nodes: Sequence[onnx.NodeProto]
    constants: Mapping[str, Array] = field(default_factory=dict)
    shape: tuple[int, ...] = IMAGE
    second: tuple[int, ...] = ()
    low: float = -2.0
    high: float = 3.0
    outputs: tuple[str, ...] = ("out",)

    def model(self) -> onnx.ModelProto:
        inputs = {"x": self.shape, **({"y": self.second} if self.second else {})}
        graph = helper.make_graph(
            list(self.nodes),
            "case",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()],
            [helper.make_empty_tensor_value_info(name) for name in self.outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)

    def feeds(self, count: int) -> list[dict[str, Array]]:
        random = np.random.default_rng(7)
        shapes = {"x": self.shape, **({"y": self.second} if self.second else {})}
        return [
            {name: random.uniform(self.low, self.high, shape).astype(np.float32) for name, shape in shapes.items()}
            for _ in range(count)
        ]


def unary(op_type: str, low: float = -2.0, high: float = 3.0, **attributes: Any) -> OperatorCase:
    return OperatorCase(name=op_type, nodes=[node(op_type, "x", "out", **attributes)], low=low, high=high)


def binary(op_type: str, **changes: Any) -> OperatorCase:
    return OperatorCase(name=op_type, nodes=[node(op_type, "x y", "out")], second=IMAGE, **changes)


def constant(op_type: str, value: Array, label: str, **changes: Any) -> OperatorCase:
    return OperatorCase(
        name=f"{op_type} {label}", nodes=[node(op_type, "x c", "out")], constants={"c": value}, **changes
    )


def int64(*values: int) -> Array:
    return np.array(values, np.int64)


def case(
    name: str, *nodes: onnx.NodeProto, constants: Mapping[str, Array] | None = None, **changes: Any
) -> OperatorCase:
    return OperatorCase(name=name, nodes=nodes, constants=constants or {}, **changes)


_W, _B = weights(16, 8, 3, 3), weights(16)
_ROWS, _ROW_BIAS = weights(24, 32), weights(32)
_CHANNELS = np.linspace(0.5, 2.0, 8, dtype=np.float32).reshape(1, 8, 1, 1)
CASES: tuple[OperatorCase, ...] = (
    case("Conv", node("Conv", "x w b", "out", pads=[1] * 4), constants={"w": _W, "b": _B}),
    case("Conv strided", node("Conv", "x w", "out", pads=[1] * 4, strides=[2, 2]), constants={"w": _W}),
    case(
        "Conv Relu",
        node("Conv", "x w b", "c", pads=[1] * 4),
        node("Relu", "c", "out"),
        constants={"w": _W, "b": _B},
    ),
    case(
        "Conv Relu6",
        node("Conv", "x w b", "c", pads=[1] * 4),
        node("Clip", "c low high", "out"),
        constants={"w": 4 * _W, "b": _B, "low": np.array(0, np.float32), "high": np.array(6, np.float32)},
    ),
    case(
        "Conv dilated",
        node("Conv", "x w b", "out", pads=[2, 3, 2, 3], dilations=[2, 3]),
        constants={"w": _W, "b": _B},
    ),
    case("depthwise", node("Conv", "x w b", "out", group=8), constants={"w": weights(8, 1, 3, 3), "b": weights(8)}),
    case("grouped Conv", node("Conv", "x w", "out", group=2), constants={"w": weights(16, 4, 3, 3)}),
    case("Conv 1d", node("Conv", "x w b", "out"), constants={"w": weights(6, 16, 3), "b": weights(6)}, shape=ROWS),
    case(
        "ConvTranspose",
        node("ConvTranspose", "x w b", "out", strides=[2, 2]),
        constants={"w": weights(8, 6, 2, 2), "b": weights(6)},
    ),
    case(
        "grouped ConvTranspose",
        node("ConvTranspose", "x w b", "out", strides=[2, 2], group=8),
        constants={"w": weights(8, 1, 2, 2), "b": weights(8)},
    ),
    case(
        "ConvTranspose in two groups",
        node("ConvTranspose", "x w b", "out", strides=[2, 2], group=2),
        constants={"w": weights(8, 3, 2, 2), "b": weights(6)},
    ),
    case(
        "Gemm",
        node("Gemm", "x w b", "out", transB=1),
        constants={"w": weights(32, 24), "b": weights(32)},
        shape=(4, 24),
    ),
    case("Gemm not transposed", node("Gemm", "x w b", "out"), constants={"w": _ROWS, "b": _ROW_BIAS}, shape=(4, 24)),
    case("MatMul constant", node("MatMul", "x w", "out"), constants={"w": _ROWS}, shape=ROWS),
    case(
        "MatMul Add",
        node("MatMul", "x w", "p"),
        node("Add", "p b", "out"),
        constants={"w": _ROWS, "b": _ROW_BIAS},
        shape=ROWS,
    ),
    case("MatMul computed", node("MatMul", "x y", "out"), shape=(1, 2, 16, 24), second=(1, 2, 24, 16)),
    case("MatMul batch constant", node("MatMul", "x w", "out"), constants={"w": weights(2, 24, 16)}, shape=(2, 16, 24)),
    binary("Add"),
    binary("Sub"),
    binary("Mul"),
    binary("Div", low=0.5),
    binary("Max"),
    binary("Min"),
    constant("Add", _CHANNELS, "channels"),
    constant("Mul", _CHANNELS, "channels"),
    constant("Mul", np.array(0.125, np.float32), "scalar"),
    constant("Mul", np.array(-1.7, np.float32), "negative"),
    constant("Sub", _CHANNELS, "channels"),
    constant("Div", np.array(3.0, np.float32), "scalar"),
    constant("Max", np.array(0.5, np.float32), "scalar"),
    constant("Min", _CHANNELS, "channels"),
    case("Sub from constant", node("Sub", "c x", "out"), constants={"c": np.array(1.0, np.float32)}),
    case("Div of constant", node("Div", "c x", "out"), constants={"c": np.array(1.0, np.float32)}, low=0.5),
    case("Add Relu", node("Add", "x y", "s"), node("Relu", "s", "out"), second=IMAGE),
    unary("Relu"),
    case(
        "Clip",
        node("Clip", "x low high", "out"),
        constants={"low": np.array(-1, np.float32), "high": np.array(1.5, np.float32)},
    ),
    unary("HardSwish", -5, 5),
    unary("HardSigmoid", -5, 5, alpha=1 / 6, beta=0.5),
    unary("Sigmoid", -6, 6),
    unary("Tanh"),
    case("SiLU", node("Sigmoid", "x", "s"), node("Mul", "x s", "out"), low=-6, high=6),
    case(
        "QuickGELU",
        node("Mul", "x c", "m"),
        node("Sigmoid", "m", "s"),
        node("Mul", "x s", "out"),
        constants={"c": np.array(1.702, np.float32)},
    ),
    case("Mish", node("Softplus", "x", "p"), node("Tanh", "p", "t"), node("Mul", "x t", "out")),
    unary("Gelu", -4, 4),
    unary("Softplus"),
    unary("Elu"),
    unary("Selu"),
    unary("Celu"),
    unary("Erf"),
    unary("Sqrt", 0, 4),
    unary("Exp", -3, 1),
    unary("Log", 0.1, 4),
    unary("Abs"),
    unary("Neg"),
    unary("Reciprocal", 0.5, 4),
    unary("Floor", -4, 4),
    unary("Ceil", -4, 4),
    unary("Round", -4, 4),
    unary("Sign", -4, 4),
    unary("Sin"),
    unary("Cos"),
    unary("Tan", -1, 1),
    unary("Atan"),
    unary("Asin", -0.9, 0.9),
    unary("Acos", -0.9, 0.9),
    unary("Sinh"),
    unary("Softsign"),
    unary("LeakyRelu", alpha=0.1),
    unary("ThresholdedRelu"),
    case(
        "PRelu",
        node("PRelu", "x c", "out"),
        constants={"c": np.linspace(0.05, 0.4, 8, dtype=np.float32).reshape(8, 1, 1)},
    ),
    case("PRelu scalar", node("PRelu", "x c", "out"), constants={"c": np.array([0.2], np.float32)}),
    constant("Pow", np.array(2.0, np.float32), "square"),
    constant("Pow", np.array(0.5, np.float32), "root", low=0.0),
    case("Mul self", node("Mul", "x x", "out")),
    case("Softmax", node("Softmax", "x", "out", axis=-1), low=-6, high=6),
    case("Softmax channels", node("Softmax", "x", "out", axis=1), low=-6, high=6),
    case("LogSoftmax", node("LogSoftmax", "x", "out", axis=-1), low=-6, high=6),
    case(
        "LayerNormalization",
        node("LayerNormalization", "x g b", "out", axis=-1),
        constants={"g": np.linspace(0.5, 1.5, 24, dtype=np.float32), "b": weights(24)},
        shape=ROWS,
    ),
    case(
        "InstanceNormalization",
        node("InstanceNormalization", "x g b", "out"),
        constants={"g": np.linspace(0.5, 1.5, 8, dtype=np.float32), "b": weights(8)},
    ),
    case(
        "BatchNormalization",
        node("BatchNormalization", "x g b m v", "out"),
        constants={"g": np.ones(8, np.float32), "b": weights(8), "m": weights(8), "v": np.ones(8, np.float32)},
    ),
    case("LpNormalization", node("LpNormalization", "x", "out", axis=1)),
    case("MaxPool", node("MaxPool", "x", "out", kernel_shape=[2, 2], strides=[2, 2])),
    case("MaxPool padded", node("MaxPool", "x", "out", kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)),
    case("AveragePool", node("AveragePool", "x", "out", kernel_shape=[2, 2], strides=[2, 2])),
    case("AveragePool padded", node("AveragePool", "x", "out", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)),
    unary("GlobalAveragePool"),
    unary("GlobalMaxPool"),
    case("ReduceMean", node("ReduceMean", "x axes", "out"), constants={"axes": int64(2, 3)}),
    case("ReduceMean last", node("ReduceMean", "x axes", "out", keepdims=0), constants={"axes": int64(-1)}, shape=ROWS),
    case("ReduceSum", node("ReduceSum", "x axes", "out"), constants={"axes": int64(1)}),
    case("ReduceMax", node("ReduceMax", "x axes", "out"), constants={"axes": int64(1)}),
    case("ReduceMin", node("ReduceMin", "x axes", "out"), constants={"axes": int64(1)}),
    case("ReduceL2", node("ReduceL2", "x axes", "out"), constants={"axes": int64(1)}),
    case("ReduceProd", node("ReduceProd", "x axes", "out"), constants={"axes": int64(1)}, low=0.8, high=1.2),
    case(
        "Resize nearest",
        node(
            "Resize",
            "x - scales",
            "out",
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        constants={"scales": np.array([1, 1, 2, 2], np.float32)},
    ),
    case(
        "Resize linear",
        node("Resize", "x - scales", "out", mode="linear", coordinate_transformation_mode="half_pixel"),
        constants={"scales": np.array([1, 1, 2, 2], np.float32)},
    ),
    case(
        "Resize corners",
        node("Resize", "x - scales", "out", mode="linear", coordinate_transformation_mode="align_corners"),
        constants={"scales": np.array([1, 1, 2, 2], np.float32)},
    ),
    case(
        "Resize cubic",
        node("Resize", "x - scales", "out", mode="cubic"),
        constants={"scales": np.array([1, 1, 2, 2], np.float32)},
    ),
    case("Concat", node("Concat", "x y", "out", axis=1), second=IMAGE),
    case("Concat constant", node("Concat", "x c", "out", axis=1), constants={"c": np.ones((1, 2, 12, 12), np.float32)}),
    case("Split", node("Split", "x s", "a out", axis=1), constants={"s": int64(3, 5)}, outputs=("a", "out")),
    case("Slice", node("Slice", "x b e a", "out"), constants={"b": int64(2), "e": int64(9), "a": int64(2)}),
    case("Gather", node("Gather", "x i", "out", axis=1), constants={"i": int64(3, 1, 6)}),
    case("Gather scalar", node("Gather", "x i", "out", axis=1), constants={"i": np.array(2, np.int64)}),
    case(
        "GatherElements",
        node("GatherElements", "x i", "out", axis=1),
        constants={"i": np.ones((1, 2, 12, 12), np.int64)},
    ),
    case("Pad", node("Pad", "x p", "out"), constants={"p": int64(0, 0, 1, 1, 0, 0, 2, 2)}),
    case(
        "Pad value",
        node("Pad", "x p v", "out"),
        constants={"p": int64(0, 0, 1, 1, 0, 0, 2, 2), "v": np.array(1.5, np.float32)},
    ),
    case("Pad reflect", node("Pad", "x p", "out", mode="reflect"), constants={"p": int64(0, 0, 1, 1, 0, 0, 2, 2)}),
    case("Reshape", node("Reshape", "x s", "out"), constants={"s": int64(1, 16, 72)}),
    case("Flatten", node("Flatten", "x", "out")),
    case("Squeeze", node("Squeeze", "x a", "out"), constants={"a": int64(0)}),
    case("Unsqueeze", node("Unsqueeze", "x a", "out"), constants={"a": int64(2)}, shape=ROWS),
    case("Transpose", node("Relu", "x", "r"), node("Transpose", "r", "out", perm=[0, 2, 3, 1])),
    case("DepthToSpace", node("DepthToSpace", "x", "out", blocksize=2)),
    case("DepthToSpace CRD", node("DepthToSpace", "x", "out", blocksize=2, mode="CRD")),
    case("SpaceToDepth", node("SpaceToDepth", "x", "out", blocksize=2)),
    case("Expand", node("Expand", "x s", "out"), constants={"s": int64(1, 8, 12, 12)}, shape=(1, 8, 1, 12)),
    case("Tile", node("Tile", "x r", "out"), constants={"r": int64(1, 1, 2, 1)}),
    case("Where", node("Where", "m x y", "out"), constants={"m": (np.arange(12) % 3 > 0)}, second=IMAGE),
    case(
        "Where constant",
        node("Where", "m x c", "out"),
        constants={"m": (np.arange(12) % 3 > 0), "c": np.array(-1.0, np.float32)},
    ),
    case("ArgMax", node("Relu", "x", "r"), node("ArgMax", "r", "out", axis=1)),
    case("ArgMin", node("Neg", "x", "r"), node("ArgMin", "r", "out", axis=1)),
    case("TopK", node("TopK", "x k", "out i", axis=-1), constants={"k": int64(4)}, outputs=("out", "i")),
    case(
        "Greater",
        node("Greater", "x c", "m"),
        node("Where", "m x c", "out"),
        constants={"c": np.array(0.5, np.float32)},
    ),
    case("CumSum", node("CumSum", "x a", "out"), constants={"a": np.array(1, np.int64)}),
    case("GridSample", node("GridSample", "x g", "out"), constants={"g": np.clip(weights(1, 6, 6, 2), -1, 1)}),
    case(
        "Einsum", node("Einsum", "x y", "out", equation="bhij,bhjk->bhik"), shape=(1, 2, 16, 24), second=(1, 2, 24, 16)
    ),
    case("Sum", node("Sum", "x y", "out"), second=IMAGE),
    case("Mean", node("Mean", "x y", "out"), second=IMAGE),
    case("Mod", node("Mod", "x c", "out", fmod=1), constants={"c": np.array(0.7, np.float32)}),
    case("Identity", node("Relu", "x", "r"), node("Identity", "r", "out")),
)
