"""Models of the graph tests: ONNX text and numpy arrays in, ``ModelProto`` out; every tensor of a model by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.graph.execution import random_feeds, run_model
from npubake.graph.inference import infer_shapes
from npubake.graph.provenance import computed_tensors
from npubake.graph.summary import Provenance

Array = NDArray[Any]


def parse(signature: str, body: str, constants: dict[str, Array] | None = None, opset: int = 21) -> onnx.ModelProto:
    """A model from ONNX text: ``signature`` as ``float[1,3] x => float[1,3] y``; ``body``: the nodes. Not inferred."""
    before, after = signature.split("=>")
    text = f'<ir_version: 8, opset_import: ["": {opset}]> case ({before}) => ({after}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    for name, value in (constants or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model


def build(signature: str, body: str, **constants: Array) -> onnx.ModelProto:
    """As ``parse``, opset 21, every node named after its first output (prefixed), facts inferred: what passes take."""
    model = parse(signature, body, constants)
    model.ir_version = 10
    for node in model.graph.node:
        node.name = node.name or f"{node.op_type}_{node.output[0]}"
    return infer_shapes(model)


def normal(*shape: int, seed: int = 7, scale: float = 0.3) -> Array:
    """float32 values that differ with the shape and the seed."""
    generator = np.random.default_rng([seed, *shape])
    return np.asarray(generator.standard_normal(shape) * scale, dtype=np.float32)


def floats(*values: float) -> Array:
    return np.array(values, dtype=np.float32)


def scalar(value: float) -> Array:
    return np.array(value, dtype=np.float32)


def integers(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def constants_of(model: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def every_tensor(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """Value of every graph input and of everything that a node makes."""
    names = [name for name in computed_tensors(model) if name not in feeds]
    return {**feeds, **run_model(model, feeds, names)}


def assert_close(actual: Array, expected: Array, tolerance: float, what: str) -> None:
    """Largest difference relative to the largest magnitude expected."""
    assert actual.shape == expected.shape, what
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=tolerance * scale, err_msg=what)


def assert_provenance(
    before: onnx.ModelProto, after: onnx.ModelProto, records: tuple[Provenance, ...], tolerance: float
) -> None:
    """Every record holds by value on random inputs: old = factor * (new - zero_point)."""
    feeds = random_feeds(before, seed=11)
    old, new = every_tensor(before, feeds), every_tensor(after, feeds)
    for record in records:
        assert record.old in old, record
        if record.relation == "gone":
            assert record.new == "", record
            continue
        assert (record.relation == "same") == (record.factor == 1.0), record
        value = new[record.new]
        if record.relation == "scaled":
            value = (record.factor * (value.astype(np.float64) - record.zero_point)).astype(np.float32)
        assert_close(value, old[record.old], tolerance, str(record))
