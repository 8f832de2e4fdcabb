"""Drop what an operator makes by the way and nobody reads: indices of a MaxPool, mean and deviation of a normalisation.

Only results that the standard calls optional, the last ones first.
"""

from __future__ import annotations

import onnx
from onnx.defs import OpSchema

from npubake.graph.editing import GraphEditor
from npubake.graph.opset import OPSET, STANDARD_DOMAINS
from npubake.graph.passes.outcome import Outcome


def drop_unread_outputs(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    for node in editor.nodes:
        if node.domain not in STANDARD_DOMAINS or len(node.output) < 2:
            continue
        options = [made.option for made in onnx.defs.get_schema(node.op_type, OPSET, "").outputs]
        kept = len(node.output)
        while kept > 1 and _optional(options, kept - 1) and not _used(editor, node.output[kept - 1]):
            kept -= 1
        if kept < len(node.output):
            editor.keep_outputs(node, kept)
    return Outcome(model=editor.finish())


def _optional(options: list[OpSchema.FormalParameterOption], place: int) -> bool:
    return place < len(options) and options[place] == OpSchema.FormalParameterOption.Optional


def _used(editor: GraphEditor, tensor: str) -> bool:
    return bool(tensor) and (tensor in editor.outputs or bool(editor.readers(tensor)))
