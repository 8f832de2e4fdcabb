"""Small source models of the kinds that users brought to other quantisers, each made anew with numbers of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Shape = Sequence[int | str | None]
PICTURE = (1, 3, 8, 8)


def weights(*shape: int, seed: int = 0, scale: float = 0.3) -> Array:
    """float32, normal, by shape and seed."""
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape) * scale, np.float32)


def pictures(count: int = 6, shape: Sequence[int] = PICTURE, name: str = "x") -> list[dict[str, Array]]:
    """Examples for a model of one input."""
    generator = np.random.default_rng([count, *shape])
    return [{name: generator.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def node(kind: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    """Names separated by spaces, ``-`` for an absent one; called after its first output unless ``name`` is given."""
    read, made = (["" if word == "-" else word for word in text.split()] for text in (inputs, outputs))
    return helper.make_node(kind, read, made, name=name or f"{kind}_{made[0]}", **attributes)


def value(name: str, shape: Shape | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def body(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    name: str = "body",
) -> onnx.GraphProto:
    """A graph for the inside of a node."""
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs))


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Array],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model as an exporter of that opset would write it; not checked, since many kinds are faulty."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(list(nodes), "kind", list(inputs), list(outputs), tensors)
    versions = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10 if opset > 20 else 8)


def conv(source: str, result: str, weight: str = "w", bias: str = "b", **attributes: Any) -> onnx.NodeProto:
    """3 x 3, same size."""
    return node("Conv", f"{source} {weight} {bias}".rstrip(), result, pads=[1, 1, 1, 1], **attributes)


def two_convolutions(opset: int = 17, dtype: Any = np.float32) -> onnx.ModelProto:
    """Conv, Relu, Conv on a picture, in any float type."""
    constants = {"w": weights(4, 3, 3, 3), "b": weights(4), "v": weights(5, 4, 3, 3), "c": weights(5, seed=1)}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(
        [conv("x", "t"), node("Relu", "t", "u"), conv("u", "y", "v", "c")],
        {name: array.astype(dtype) for name, array in constants.items()},
        [value("x", PICTURE, kind)],
        [value("y", (1, 5, 8, 8), kind)],
        opset,
    )


def around(middle: Sequence[onnx.NodeProto], constants: Mapping[str, Array], **more: Any) -> onnx.ModelProto:
    """Conv x -> t, the ``middle`` from t to u (4 channels of 8 x 8), Conv u -> y."""
    return model(
        [conv("x", "t"), *middle, conv("u", "y", "v", "c")],
        {
            "w": weights(4, 3, 3, 3),
            "b": weights(4),
            "v": weights(4, 4, 3, 3),
            "c": weights(4, seed=1),
            **constants,
        },
        [value("x", PICTURE)],
        [value("y", (1, 4, 8, 8))],
        **more,
    )
