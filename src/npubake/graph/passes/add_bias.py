"""Give every Conv, ConvTranspose and Gemm a bias: W x = W x + 0. One form less for all that read the graph."""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor
from npubake.graph.passes.outcome import Outcome
from npubake.graph.weighted import WEIGHTED, output_channels


def add_bias(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    for node in editor.nodes:
        if node.op_type not in WEIGHTED or editor.element_type(node.input[1]) != onnx.TensorProto.FLOAT:
            continue
        if (len(node.input) > 2 and node.input[2]) or editor.shape(node.input[1]) is None:
            continue
        zeros = np.zeros(output_channels(editor, node), dtype=np.float32)
        editor.set_inputs(node, [*node.input[:2], editor.add_constant(f"{node.name}/bias", zeros)])
    return Outcome(model=editor.finish())
