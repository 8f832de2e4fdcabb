"""Room ``graph``: nodes that no rewrite may look into, as calls. A model enters and is changed in place.

A node with inner graphs (If, Loop, Scan) reads tensors of the main graph that its inputs do not name, which no rewrite
would see. Each becomes a call of a function of its own (a ``FunctionProto`` in ``FLOAT_DOMAIN``, called like the
operator, its overload the node's name) whose inputs name everything that is read. To all that follows it is one node of
a foreign domain: it stays in float, as it was written. So does an operator of another domain that is called like one of
the standard (``com.microsoft`` has a Gelu): its function is called ``domain.operator``, so that no rewrite takes it for
the other. Small constants that it reads move into the function, where sizes are inferred.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from onnx import helper

from npubake.graph.nesting import captured, inner_graphs, inner_nodes
from npubake.graph.opset import STANDARD_DOMAINS

FLOAT_DOMAIN = "npubake.float"
_SMALL = 4096  # bytes: sizes, trip counts, axes; weights stay in the main graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlined:
    """A node that became a call. inner: names of the nodes in its graphs, which stay in float."""

    node: str
    op_type: str
    inner: tuple[str, ...]


def outline(model: onnx.ModelProto) -> tuple[Outlined, ...]:
    """Make calls of such nodes of ``model`` (named, no functions); those that hold graphs leave, in order."""
    small = {tensor.name: tensor for tensor in model.graph.initializer if tensor.ByteSize() <= _SMALL}
    found = []
    for node in model.graph.node:
        if any(True for _ in inner_graphs(node)):
            inner = tuple(each.name for each in inner_nodes(node))
            found.append(Outlined(node=node.name, op_type=node.op_type, inner=inner))
            _call(model, node, node.op_type, small)
        elif node.domain not in STANDARD_DOMAINS and onnx.defs.has(node.op_type, ""):
            _call(model, node, f"{node.domain}.{node.op_type}", small)
    if model.functions:
        model.opset_import.append(helper.make_opsetid(FLOAT_DOMAIN, 1))
    return tuple(found)


def _call(model: onnx.ModelProto, node: onnx.NodeProto, kind: str, small: dict[str, onnx.TensorProto]) -> None:
    """Let ``node`` be the call of a new function that holds it."""
    function = _function(model, node, kind, small)
    model.functions.append(function)
    inputs, outputs = list(function.input), list(function.output)
    call = helper.make_node(kind, inputs, outputs, name=node.name, domain=FLOAT_DOMAIN, overload=node.name)
    node.CopyFrom(call)


def _function(
    model: onnx.ModelProto, node: onnx.NodeProto, kind: str, small: dict[str, onnx.TensorProto]
) -> onnx.FunctionProto:
    read = dict.fromkeys(name for name in (*node.input, *captured(node)) if name)
    constants = [helper.make_node("Constant", [], [name], value=small[name]) for name in read if name in small]
    body = onnx.NodeProto()
    body.CopyFrom(node)
    function = helper.make_function(
        FLOAT_DOMAIN,
        kind,
        [name for name in read if name not in small],
        [name for name in node.output if name],
        [*constants, body],
        list(model.opset_import),
    )
    function.overload = node.name
    return function
