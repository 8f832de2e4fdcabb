"""Room ``graph``: what stands against a model. A model enters, every fault leaves, with the node and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from npubake.errors import Fault
from npubake.graph.damage import KNOWN_TYPES
from npubake.graph.editing import attribute
from npubake.graph.foreign import runtime_knows
from npubake.graph.nesting import every_graph, inner_graphs, inner_nodes
from npubake.graph.opset import OPSET, STANDARD_DOMAINS, opset_of

_HALF_DONE = "give the float model, or one in QDQ form (QuantizeLinear and DequantizeLinear around float operators)"
_CUT = "cut the model before this node and do the rest in the application"
_DATA_DEPENDENT = ("NonZero", "NonMaxSuppression", "Unique", "Compress")
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
_QUANTISED = (
    "DynamicQuantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "ConvInteger",
    "MatMulInteger",
)  # QuantizeLinear and DequantizeLinear: ``dequantising``
_INFINITE_IS_FINE = (
    "Add",
    "CastLike",
    "Clip",
    "Concat",
    "Expand",
    "Max",
    "Min",
    "Pad",
    "Reshape",
    "Slice",
    "Tile",
    "Trilu",
    "Unsqueeze",
    "Where",
    "ConstantOfShape",
    "Cast",
    "Identity",
)


def survey(model: onnx.ModelProto) -> list[Fault]:
    """Everything in ``model`` that npubake does not serve, in the model's order; graphs inside nodes too."""
    constants = [fault for graph in every_graph(model.graph) for fault in _constants(graph)]
    return [*_version(model), *_values(model.graph), *constants, *_names(model.graph, frozenset()), *_nodes(model)]


def _version(model: onnx.ModelProto) -> Iterator[Fault]:
    """A form of the file that is newer than what reads it: what it has besides would be lost without a word."""
    if model.ir_version > onnx.IR_VERSION:
        what = f"the model is of IR version {model.ir_version}, onnx {onnx.__version__} knows up to {onnx.IR_VERSION}"
        hint = "export it with an older version of onnx, or install a newer one here"
        yield Fault(what=what, where=model.graph.name, hint=hint)


def _values(graph: onnx.GraphProto) -> Iterator[Fault]:
    if not graph.output:
        yield Fault(what="the graph has no output", where=graph.name, hint="export the model with its outputs")
    for role, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            kind = value.type.WhichOneof("value") or "tensor_type"
            if kind != "tensor_type":
                what = f"{role} {value.name!r} is a {kind.removesuffix('_type')}, not a tensor"
                yield Fault(what=what, where=value.name, hint="export with plain tensors as inputs and outputs")
            elif _is_unknown(value.type.tensor_type.elem_type, role):
                what = f"{role} {value.name!r} is of the unknown type {value.type.tensor_type.elem_type}"
                yield Fault(what=what, where=value.name, hint="the file is damaged; export it again")
            elif value.type.tensor_type.elem_type == TensorProto.STRING:
                what = f"{role} {value.name!r} holds strings"
                yield Fault(what=what, where=value.name, hint="tokenise in the application and feed numbers")


def _is_unknown(kind: int, role: str) -> bool:
    """True of a type that ONNX does not have; an output may leave its type open."""
    return kind not in KNOWN_TYPES and not (role == "output" and kind == TensorProto.UNDEFINED)


def _constants(graph: onnx.GraphProto) -> Iterator[Fault]:
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for tensor in graph.sparse_initializer:
        name = tensor.values.name
        yield Fault(
            what=f"initialiser {name!r} is sparse", where=name, hint="convert it to a dense tensor before export"
        )
    for tensor in graph.initializer:
        yield from _constant(tensor, tensor.name, readers.get(tensor.name, []))
    for node in graph.node:
        value = attribute(node, "value", None)
        if node.op_type == "Constant" and isinstance(value, TensorProto):
            yield from _constant(value, node.name, readers.get(node.output[0], []))


def _constant(tensor: TensorProto, where: str, readers: list[onnx.NodeProto]) -> Iterator[Fault]:
    if tensor.data_type == TensorProto.STRING:
        yield Fault(what=f"constant {where!r} holds strings", where=where, hint="tokenise in the application")
        return
    if tensor.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE):
        return
    with np.errstate(invalid="ignore"):  # a signalling NaN is told below, like any
        value = numpy_helper.to_array(tensor).astype(np.float64)
    names = ", ".join(node.name for node in readers[:3]) or "nothing"
    hint = "find the training step that broke it, or export the checkpoint before"
    if np.isnan(value).any():
        count = int(np.isnan(value).sum())
        yield Fault(
            what=f"constant {where!r}, read by {names}, holds {count} NaN of {value.size}", where=where, hint=hint
        )
    bad = [node.name for node in readers if node.op_type not in _INFINITE_IS_FINE]
    if bad and np.isinf(value).any():
        count = int(np.isinf(value).sum())
        what = f"constant {where!r}, read by {', '.join(bad[:3])}, holds {count} infinities of {value.size}"
        yield Fault(what=what, where=where, hint=hint)


def _names(graph: onnx.GraphProto, outside: frozenset[str]) -> Iterator[Fault]:
    """Names made twice, or by nothing. outside: what a graph inside a node may read besides its own."""
    hint = "the file is damaged or was edited by hand; export it again"
    made: dict[str, str] = {}
    for value in graph.input:
        if value.name in made:
            yield Fault(what=f"input {value.name!r} is listed twice", where=value.name, hint=hint)
        made[value.name] = "the graph's inputs"
    for tensor in graph.initializer:
        if made.get(tensor.name) == "the initialisers":
            yield Fault(what=f"initialiser {tensor.name!r} stands there twice", where=tensor.name, hint=hint)
        made[tensor.name] = "the initialisers"
    made.update({tensor.values.name: "the sparse initialisers" for tensor in graph.sparse_initializer})
    for node in graph.node:
        for name in filter(None, node.output):
            if name in made:
                what = f"tensor {name!r} is made by {node.name!r} and by {made[name]!r}"
                yield Fault(what=what, where=node.name, hint=hint)
            made[name] = node.name
    seen = outside | made.keys()
    for node in graph.node:
        for name in filter(None, node.input):
            if name not in seen:
                yield Fault(what=f"{node.name!r} reads {name!r}, which nothing makes", where=node.name, hint=hint)
        for inner in inner_graphs(node):
            yield from _names(inner, seen)
    left = set()
    for value in graph.output:
        if value.name not in seen:
            yield Fault(what=f"output {value.name!r} is made by nothing", where=value.name, hint=hint)
        if value.name in left:
            yield Fault(what=f"output {value.name!r} is listed twice", where=value.name, hint=hint)
        left.add(value.name)


def _nodes(model: onnx.ModelProto) -> Iterator[Fault]:
    opset = opset_of(model)
    if opset is None:
        yield Fault(
            what="the model names no version of the ONNX operators", where=model.graph.name, hint="export it again"
        )
    constants = {tensor.name for tensor in model.graph.initializer}
    constants.update(name for node in model.graph.node if node.op_type == "Constant" for name in node.output)
    functions = {(function.domain, function.name): function for function in model.functions}
    for node in model.graph.node:
        found = [(node, _against_placed(node, constants) or _against(node, opset or OPSET))]
        found += [(inner, _against(inner, opset or OPSET)) for inner in inner_nodes(node)]
        for where, fault in found:
            if fault is not None:
                function = functions.get((where.domain, where.op_type))
                what, hint = fault if function is None else _left_as_call(model, function)
                yield Fault(what=what, where=where.name, hint=hint)


def _against_placed(node: onnx.NodeProto, constants: set[str]) -> tuple[str, str] | None:
    """(what, what to do) against a node of the main graph that would be no fault in a graph inside a node."""
    kind = node.op_type
    if node.domain not in STANDARD_DOMAINS:
        return None
    if kind.startswith(("Sequence", "Optional")) or kind in ("SplitToSequence", "ConcatFromSequence"):
        return f"{kind} works on sequences or optional values", "export with plain tensors"
    if kind in _QUANTISED:
        return f"{kind}: the model computes in integers already", _HALF_DONE
    if kind in _DATA_DEPENDENT and not set(filter(None, node.input)) <= constants:
        return f"the size of what {kind} makes depends on the data", _CUT
    return None


def _against(node: onnx.NodeProto, opset: int) -> tuple[str, str] | None:
    """(what stands against the node anywhere, what to do), or None."""
    kind = node.op_type
    if node.domain not in STANDARD_DOMAINS and runtime_knows(node.domain, kind):
        return None
    if node.domain not in STANDARD_DOMAINS:
        what = f"{kind} belongs to the domain {node.domain!r}, and ONNX Runtime has no such operator"
        return what, "export with operators of the standard domain, or with the operator as a function of the model"
    if kind.startswith(("String", "Regex")) or (kind == "Cast" and attribute(node, "to", 0) == TensorProto.STRING):
        return f"{kind} works on strings", "process text in the application and feed numbers"
    if kind in _RANDOM:
        return f"{kind} gives other values in each run", "export in inference mode"
    made = [entry.i for entry in node.attribute if entry.name in ("to", "dtype") and entry.type == entry.INT]
    if not KNOWN_TYPES.issuperset(made):
        return f"{kind} makes the unknown type {made[0]}", "the file is damaged; export it again"
    if kind == "BatchNormalization" and attribute(node, "training_mode", 0):
        return "BatchNormalization is in training mode", "call model.eval() before the export"
    return _unknown_operator(kind, opset)


def _left_as_call(model: onnx.ModelProto, function: onnx.FunctionProto) -> tuple[str, str]:
    """Against a function of the model whose calls could not be written out: one for other versions of operators."""
    stated = {entry.domain: entry.version for entry in model.opset_import}
    other = [
        f"operators of {entry.domain or 'ONNX'} {entry.version}, the model {stated[entry.domain]}"
        for entry in function.opset_import
        if stated.get(entry.domain, entry.version) != entry.version
    ]
    why = f"imports {' and '.join(other)}" if other else "cannot be written out"
    what = f"{function.name}, a function of the model in the domain {function.domain!r}, {why}"
    return what, "export model and functions for the same opset, or with the operators of the function written out"


def _unknown_operator(kind: str, opset: int) -> tuple[str, str] | None:
    try:
        schema = onnx.defs.get_schema(kind, opset, "")
    except onnx.defs.SchemaError:
        return (
            f"{kind or 'an empty name'} is no operator of ONNX {opset}",
            "correct the opset import, or export with known operators",
        )
    if schema.deprecated:
        return f"{kind} is deprecated in ONNX {opset}", "export with a current exporter"
    return None
