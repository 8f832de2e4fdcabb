"""Room ``fixedpoint``: operators that only copy values, and Concat. Scale, zero point and dtype pass through."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import onnx

from npubake.errors import Fault, StageError
from npubake.fixedpoint.arithmetic import quantise_array, quantise_scalar
from npubake.fixedpoint.forms import NUMPY_TYPES, Form
from npubake.fixedpoint.lowering import Lowering, NoIntegerKernelError
from npubake.graph.editing import attribute
from npubake.graph.summary import FusionGroup

# Operators that copy, by the form that they run on: ONNX Runtime's uint8 MaxPool takes 40 times as long as float32.
COPIES: Mapping[str, Form] = {
    "Reshape": "quantized",
    "Transpose": "quantized",
    "Slice": "quantized",
    "Split": "quantized",
    "Gather": "quantized",
    "Expand": "quantized",
    "Tile": "quantized",
    "Squeeze": "quantized",
    "Unsqueeze": "quantized",
    "Flatten": "quantized",
    "Identity": "quantized",
    "Dropout": "quantized",
    "DepthToSpace": "quantized",
    "SpaceToDepth": "quantized",
    "Pad": "quantized",
    "Resize": "quantized",
    "MaxPool": "centred",
    "GlobalMaxPool": "centred",
}


def lower_movement(lowering: Lowering, group: FusionGroup) -> None:
    """The same operators on integers."""
    nodes = [node for node in lowering.group_nodes(group) if node.op_type != "Constant"]
    for node in nodes:
        _check_copies(lowering, node)
    source = nodes[0].input[0]
    _check_equal(lowering, group, (source, *group.outputs))
    form = _form(lowering, source, nodes)
    names = {source: lowering.forms.quantized(source) if form == "quantized" else lowering.forms.centred(source)}
    for node in nodes:
        if node.input[0] not in names:
            raise NoIntegerKernelError(f"{node.op_type} of another tensor than {source}")
        inputs = [
            names[node.input[0]],
            *(_constant_input(lowering, node, place, form, source) for place in _rest(node)),
        ]
        if node.op_type == "Pad" and attribute(node, "mode", "constant") == "constant" and not any(node.input[2:3]):
            inputs[2:3] = [_fill(lowering, source, form, 0.0)]  # real zero is the zero point
        outputs = [_output_name(lowering, name, form) for name in node.output if name]
        names.update(zip([name for name in node.output if name], outputs, strict=True))
        lowering.writer.copy_node(_modernised(node), inputs, outputs)
    for tensor in group.outputs:
        lowering.forms.put(tensor, form, names[tensor])
    kernel = (
        f"{'+'.join(node.op_type for node in nodes)} {'on integers' if form == 'quantized' else 'float32 on integers'}"
    )
    lowering.certify(group, kernel, 0, "values are copied (or the largest of them chosen), never computed")


def lower_concat(lowering: Lowering, group: FusionGroup) -> None:
    """Concat of tensors of one scale; a constant operand is clamp(rint(c / s))."""
    nodes = [node for node in lowering.group_nodes(group) if node.op_type != "Constant"]
    if [node.op_type for node in nodes] != ["Concat"]:
        raise NoIntegerKernelError("a concat group of other nodes")
    node, target = nodes[0], group.outputs[0]
    facts = lowering.forms.parameters(target)
    computed = [name for name in node.input if lowering.constant(name) is None]
    _check_equal(lowering, group, (*computed, target))
    quantized = facts.dtype == "uint8" and all(lowering.forms.has(name, "quantized") for name in computed)
    form: Form = "quantized" if quantized else "centred"
    inputs = []
    for name in node.input:
        constant = lowering.constant(name)
        if constant is not None:
            values = quantise_array(constant, facts) + (facts.zero_point if quantized else 0)
            inputs.append(
                lowering.writer.constant(values.astype(np.uint8 if quantized else np.float32), f"{name}/integer")
            )
        else:
            inputs.append(lowering.forms.quantized(name) if quantized else lowering.forms.centred(name))
    name = _output_name(lowering, target, form)
    lowering.writer.copy_node(node, inputs, [name])
    lowering.forms.put(target, form, name)
    lowering.certify(group, "Concat on integers", 0, "values are copied, never computed")


def _check_copies(lowering: Lowering, node: onnx.NodeProto) -> None:
    if node.op_type not in COPIES:
        raise NoIntegerKernelError(f"{node.op_type} inside a movement group")
    if node.op_type == "Resize" and attribute(node, "mode", "nearest") != "nearest":
        raise NoIntegerKernelError("Resize that interpolates inside a movement group")
    for name in list(node.input)[1:]:
        if name and name not in lowering.initializers:
            raise NoIntegerKernelError(f"{node.op_type} with a computed operand {name}")


def _check_equal(lowering: Lowering, group: FusionGroup, tensors: tuple[str, ...]) -> None:
    """Raise StageError unless all have one dtype, scale and zero point (rule 2 of docs/architecture.md)."""
    facts = {name: lowering.forms.parameters(name) for name in tensors}
    kinds = {(entry.dtype, entry.scale, entry.zero_point) for entry in facts.values()}
    if len(kinds) > 1:
        found = "; ".join(f"{name}: {entry.dtype} {entry.scale:g} {entry.zero_point}" for name, entry in facts.items())
        raise StageError(
            Fault(
                what=f"a {group.kind} group copies integers, but scale, zero point or dtype differ: {found}",
                where=group.name,
                hint="run calibrate again; it joins the ranges of such tensors",
            )
        )


def _form(lowering: Lowering, source: str, nodes: list[onnx.NodeProto]) -> Form:
    """uint8 where every operator has that kernel and the tensor exists so; 16 bits always as float32."""
    if lowering.forms.parameters(source).dtype != "uint8" or any(COPIES[node.op_type] == "centred" for node in nodes):
        return "centred"
    held = lowering.forms.held(source)
    return "centred" if "centred" in held and "quantized" not in held else "quantized"


def _rest(node: onnx.NodeProto) -> range:
    return range(1, len(node.input))


def _constant_input(lowering: Lowering, node: onnx.NodeProto, place: int, form: Form, source: str) -> str:
    name: str = node.input[place]
    if node.op_type == "Pad" and place == 2 and name:
        constant = lowering.constant(name)
        assert constant is not None
        return _fill(lowering, source, form, float(constant.reshape(-1)[0]))
    if node.op_type == "Resize" and place == 1:
        return ""  # roi is read by tf_crop_and_resize alone, which interpolates
    return lowering.writer.keep_constant(lowering.initializers[name]) if name else ""


def _fill(lowering: Lowering, source: str, form: Form, value: float) -> str:
    """The value of padding in the group's form."""
    facts = lowering.forms.parameters(source)
    centred = quantise_scalar(Fraction(value), facts)
    if form == "centred":
        return lowering.writer.constant(np.float32(centred), f"{source}/fill_f32")
    return lowering.writer.constant(NUMPY_TYPES[facts.dtype](centred + facts.zero_point), f"{source}/fill")


def _output_name(lowering: Lowering, tensor: str, form: Form) -> str:
    return lowering.writer.unique(f"{tensor}/{'quantized' if form == 'quantized' else 'integer'}")


def _modernised(node: onnx.NodeProto) -> onnx.NodeProto:
    """Split names its number of outputs since opset 18 (where no sizes are given)."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    if copy.op_type == "Split" and len(copy.input) < 2 and attribute(copy, "num_outputs", None) is None:
        copy.attribute.append(onnx.helper.make_attribute("num_outputs", len(copy.output)))
    return copy
