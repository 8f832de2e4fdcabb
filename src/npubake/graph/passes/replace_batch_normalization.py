"""Write a BatchNormalization that stands alone as a depthwise Conv: y[c] = s[c] * x[c] + t[c].

s and t as in ``fold_batch_normalization``; the kernel is 1x1 (1 in each spatial dimension), the group count equals the
channels, so that a quantiser has one weighted operator instead of five constants. For inputs of 3 to 5 dimensions.
"""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor
from npubake.graph.passes.fold_batch_normalization import affine_of
from npubake.graph.passes.outcome import Declined, Outcome


def replace_batch_normalization(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    declined: list[Declined] = []
    for node in [node for node in editor.nodes if node.op_type == "BatchNormalization"]:
        shape, affine = editor.shape(node.input[0]), affine_of(editor, node)
        if shape is None or not 3 <= len(shape) <= 5 or affine is None:
            declined.append(Declined(node=node.name, why="needs constant statistics and an input of 3 to 5 dimensions"))
            continue
        scale, shift = (part.astype(np.float32) for part in affine)
        if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
            declined.append(Declined(node=node.name, why="its factors would leave the range of float32"))
            continue
        weight = editor.add_constant(f"{node.name}/weight", scale.reshape(-1, *(1,) * (len(shape) - 1)))
        bias = editor.add_constant(f"{node.name}/bias", shift)
        source, result, name = node.input[0], node.output[0], node.name
        editor.remove([node])
        kernel = [1] * (len(shape) - 2)
        conv = editor.add_node(
            "Conv", [source, weight, bias], [result], f"{name}/Conv", group=shape[1], kernel_shape=kernel
        )
        conv.name = name
    return Outcome(model=editor.finish(), declined=tuple(declined))
