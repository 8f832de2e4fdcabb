"""A model with a Loop and an operator of the runtime's own domain goes the whole road, and the person is told."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.e2e.workspace import Workspace


def _add_tail(model: onnx.ModelProto) -> None:
    """Scores + QuickGelu(two rounds of halving the scores and adding them)."""
    graph, output = model.graph, model.graph.output[0].name
    for node in graph.node:
        node.output[:] = ["scores" if name == output else name for name in node.output]
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "half"], ["smaller"], name="halve"),
            helper.make_node("Add", ["smaller", "scores"], ["next"], name="increase"),
            helper.make_node("Identity", ["go"], ["on"], name="again"),
        ],
        "round",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "half"))
    graph.initializer.append(numpy_helper.from_array(np.array(2), "rounds"))
    graph.node.append(helper.make_node("Loop", ["rounds", "", "scores"], ["looped"], name="loop", body=body))
    graph.node.append(helper.make_node("QuickGelu", ["looped"], ["bent"], name="bend", domain="com.microsoft"))
    graph.node.append(helper.make_node("Add", ["bent", "scores"], [output], name="sum"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def test_they_stay_in_float_and_everything_else_is_built(fresh: Workspace) -> None:
    path = fresh.root / "models" / "digits_mobilenet.onnx"
    model = onnx.load(path)
    _add_tail(model)
    onnx.save(model, path)
    result = fresh.run("build", "small")
    assert result.code == 0, result.err
    assert "Loop 'loop': 3 nodes in sub-graphs left float: halve, increase, again" in result.err
    assert "com.microsoft.QuickGelu" in result.err
    assert fresh.bundle()
