"""Write a division by constants as a product: x / c = x * (1 / c), 1 / c rounded to float32.

The product differs from the quotient by at most 2**-23 of it, for powers of two by nothing. A quantiser then has a
product where it would need a division. Declined: c = 0, or 1 / c outside float32's normal range.
"""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.editing import GraphEditor
from npubake.graph.passes.outcome import Declined, Outcome


def replace_constant_divisions(model: onnx.ModelProto) -> Outcome:
    editor = GraphEditor(model)
    declined: list[Declined] = []
    for node in [node for node in editor.nodes if node.op_type == "Div"]:
        divisor = editor.constant(node.input[1])
        if divisor is None or divisor.dtype != np.float32 or editor.is_constant(node.input[0]):
            continue
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            inverse = (1.0 / divisor.astype(np.float64)).astype(np.float32)
        if not np.isfinite(inverse).all() or (np.abs(inverse) < np.finfo(np.float32).tiny).any():
            declined.append(Declined(node=node.name, why="1 / c is not a normal float32 number"))
            continue
        node.op_type = "Mul"
        editor.set_inputs(node, [node.input[0], editor.add_constant(f"{node.name}/reciprocal", inverse)])
    return Outcome(model=editor.finish(), declined=tuple(declined))
