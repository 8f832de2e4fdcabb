"""Room ``graph``: which kind of integer kernel serves a node. Questions only."""

from __future__ import annotations

import onnx

from npubake.graph.editing import GraphEditor, attribute
from npubake.graph.opset import STANDARD_DOMAINS
from npubake.graph.summary import GroupKind
from npubake.graph.weighted import has_constant_weights

_FLOAT = onnx.TensorProto.FLOAT
UNARY_TABLES = frozenset(
    (
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Ceil",
        "Celu",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
    )
)
_SPELLING = {"HardSwish": "hard_swish", "HardSigmoid": "hard_sigmoid", "LeakyRelu": "leaky_relu"}
_MOVERS = frozenset(
    (
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Slice",
        "Split",
        "Gather",
        "Expand",
        "Tile",
        "Identity",
        "DepthToSpace",
        "SpaceToDepth",
        "GlobalMaxPool",
    )
)
_PLAIN: dict[str, GroupKind] = {
    "Concat": "concat",
    "GlobalAveragePool": "average",
    "MatMul": "matmul",
    "Mul": "multiply",
    "Div": "divide",
    "Softmax": "softmax",
}
_REDUCTIONS: dict[str, GroupKind] = {
    "ReduceMean": "average",
    "ReduceSum": "reduce",
    "ReduceMax": "reduce",
    "ReduceMin": "reduce",
}


def classify(editor: GraphEditor, node: onnx.NodeProto) -> GroupKind:
    """The kind of a node that stands alone; ``float`` where no integer kernel serves it."""
    if not _computes_float32(editor, node):
        return "float"
    computed = [name for name in node.input if name and not editor.is_constant(name)]
    if not computed:
        return "float"
    if node.op_type in ("MatMul", "Concat", "Mul", "Div") and _needs_only_float32(editor, node):
        return "float" if node.op_type == "MatMul" and len(computed) != 2 else _PLAIN[node.op_type]
    if node.op_type in ("GlobalAveragePool", "Softmax"):
        return _PLAIN[node.op_type]
    if node.op_type in _REDUCTIONS:
        constant_axes = all(editor.is_constant(name) for name in node.input[1:] if name)
        return _REDUCTIONS[node.op_type] if constant_axes else "float"
    if node.op_type == "AveragePool":
        return "average" if _equal_divisors(node) else "float"
    if node.op_type == "LayerNormalization":
        constant = all(editor.is_constant(name) for name in node.input[1:] if name)
        return "layer_norm" if constant and not any(node.output[1:]) else "float"
    if node.op_type == "Resize":
        return _resize_kind(editor, node)
    return "movement" if _moves(editor, node) else "float"


def classify_weighted(editor: GraphEditor, node: onnx.NodeProto) -> GroupKind | None:
    """conv, conv_transpose or linear, where the weight is a float32 constant and the data is computed."""
    if not _computes_float32(editor, node) or editor.is_constant(node.input[0]):
        return None
    if node.op_type == "MatMul":
        shape = editor.shape(node.input[1])
        matrix = editor.is_constant(node.input[1]) and shape is not None and len(shape) == 2
        return "linear" if matrix else None
    if not has_constant_weights(editor, node):
        return None
    kinds: dict[str, GroupKind] = {"Conv": "conv", "ConvTranspose": "conv_transpose", "Gemm": "linear"}
    return kinds[node.op_type]


def classify_add(editor: GraphEditor, node: onnx.NodeProto) -> bool:
    """Add or Sub of float32 tensors, at least one of them computed."""
    return (
        node.op_type in ("Add", "Sub")
        and _computes_float32(editor, node)
        and not all(editor.is_constant(name) for name in node.input)
    )


def classify_table(editor: GraphEditor, node: onnx.NodeProto) -> str:
    """The canonical name of an element-wise function of one float32 tensor, or ''."""
    if not _computes_float32(editor, node) or editor.is_constant(node.input[0]):
        return ""
    if node.op_type in UNARY_TABLES:
        return _SPELLING.get(node.op_type, node.op_type.lower())
    if node.op_type == "Clip":
        return "clip" if all(editor.is_constant(name) for name in node.input[1:] if name) else ""
    if node.op_type == "PRelu" and editor.scalar(node.input[1]) is not None:
        return "leaky_relu"
    if node.op_type == "Pow" and editor.scalar(node.input[1]) is not None:
        return "pow"
    if node.op_type in ("Mul", "Add") and node.input[0] == node.input[1]:
        return "square" if node.op_type == "Mul" else "double"
    return ""


def gated_by(editor: GraphEditor, node: onnx.NodeProto) -> tuple[tuple[onnx.NodeProto, ...], str] | None:
    """x * gate(x), starting at the gate's first node: SiLU (Sigmoid, Mul), Mish (Softplus, Tanh, Mul), QuickGELU
    (Mul by a constant, Sigmoid, Mul). None where others read a tensor between.
    """
    if not _computes_float32(editor, node) or node.op_type not in ("Sigmoid", "Softplus", "Mul"):
        return None
    sources = [name for name in node.input if not editor.is_constant(name)]
    if len(sources) != 1 or (node.op_type == "Mul" and all(editor.scalar(name) is None for name in node.input)):
        return None
    chain, function = [node], "silu"
    if node.op_type in ("Softplus", "Mul"):
        follower = editor.only_reader(node.output[0])
        wanted, function = ("Tanh", "mish") if node.op_type == "Softplus" else ("Sigmoid", "quick_gelu")
        if follower is None or follower.op_type != wanted:
            return None
        chain.append(follower)
    gate = chain[-1].output[0]
    product = editor.only_reader(gate)
    if product is None or product.op_type != "Mul" or set(product.input) != {gate, sources[0]}:
        return None
    return (*chain, product), function


def fused_bias(editor: GraphEditor, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """The Add of a constant row after a MatMul, where nothing else reads between."""
    add = editor.only_reader(node.output[0])
    if add is None or add.op_type != "Add" or editor.shape(add.output[0]) != editor.shape(node.output[0]):
        return None
    other = add.input[1] if add.input[0] == node.output[0] else add.input[0]
    shape = editor.shape(other)
    columns = (editor.shape(node.input[1]) or (0,))[-1]
    row = editor.is_constant(other) and shape is not None and shape != () and set(shape[:-1]) <= {1}
    return add if row and shape is not None and shape[-1] in (1, columns) else None


def fused_clamp(editor: GraphEditor, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """The Relu, or Clip with constant bounds, that alone reads ``node``."""
    clamp = editor.only_reader(node.output[0])
    if clamp is None or clamp.op_type not in ("Relu", "Clip") or clamp.input[0] != node.output[0]:
        return None
    return clamp if all(editor.is_constant(name) for name in clamp.input[1:] if name) else None


def _computes_float32(editor: GraphEditor, node: onnx.NodeProto) -> bool:
    return (
        node.domain in STANDARD_DOMAINS
        and bool(node.input)
        and editor.element_type(node.output[0]) == _FLOAT
        and editor.element_type(node.input[0]) == _FLOAT
    )


def _needs_only_float32(editor: GraphEditor, node: onnx.NodeProto) -> bool:
    return all(editor.element_type(name) == _FLOAT for name in node.input)


def _equal_divisors(node: onnx.NodeProto) -> bool:
    """True where every window of an AveragePool divides by the same count."""
    padded = any(attribute(node, "pads", [])) or attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    return not attribute(node, "ceil_mode", 0) and (not padded or bool(attribute(node, "count_include_pad", 0)))


def _resize_kind(editor: GraphEditor, node: onnx.NodeProto) -> GroupKind:
    if attribute(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return "float"
    if attribute(node, "mode", "nearest") == "linear" and any(
        attribute(node, name, 0) for name in ("antialias", "exclude_outside", "axes")
    ):
        return "float"
    if any(name and not editor.is_constant(name) for name in node.input[1:]):
        return "float"
    kinds: dict[str, GroupKind] = {"nearest": "movement", "linear": "resize"}
    return kinds.get(attribute(node, "mode", "nearest"), "float")


def _moves(editor: GraphEditor, node: onnx.NodeProto) -> bool:
    """True where every output element is a copy of an input element (or an exact zero)."""
    if any(name and not editor.is_constant(name) for name in node.input[1:]):
        return False
    if node.op_type == "MaxPool":
        return not any(node.output[1:])
    if node.op_type == "Pad":
        value = editor.scalar(node.input[2]) if len(node.input) > 2 and node.input[2] else 0.0
        return attribute(node, "mode", "constant") != "constant" or value == 0.0
    return node.op_type in _MOVERS
