"""Room ``fixedpoint``: groups that compute in float32 or float16, their nodes carried over on real values.

float16 means: computed in float32, each output of the group rounded to float16 (rule 6 of docs/architecture.md).
"""

from __future__ import annotations

from onnx import TensorProto

from npubake.fixedpoint.lowered import FloatNode, OutputFact
from npubake.fixedpoint.lowering import Lowering
from npubake.graph.summary import FusionGroup

FLOAT32_TOLERANCE = 1e-5  # kernels of one runtime on CPUs with other vector units, relative (measured below 2e-6)
FLOAT16_TOLERANCE = 2.0**-10  # one step of float16: a value near a tie rounds to either neighbour


def lower_float(lowering: Lowering, group: FusionGroup, why: str) -> None:
    """The group's own nodes on real values."""
    half = lowering.parameters.groups[group.name].precision == "float16"
    nodes = [node for node in lowering.group_nodes(group) if node.op_type != "Constant"]
    made: set[str] = set()
    copies = group.kind in ("movement", "concat")
    values = nodes[0].input if group.kind == "concat" else group.inputs  # a constant part of a Concat is not rounded
    settled = copies and all(name in lowering.rounded_to_half for name in values)
    rounded = {name for name in group.outputs if half and not settled and _is_float(lowering, name)}
    renamed = {name: lowering.writer.unique(f"{name}/float32") for name in sorted(rounded)}
    apart = {
        name: lowering.writer.unique(f"{name}/real")
        for name in group.outputs
        if name not in rounded and _leaves_and_is_read(lowering, name)
    }
    written = {**renamed, **apart}
    for node in nodes:
        inputs = [_input(lowering, name, made, written) for name in node.input]
        lowering.writer.copy_node(node, inputs, [written.get(name, name) for name in node.output])
        made.update(node.output)
    for name in group.outputs:
        if name in renamed:
            narrow = lowering.writer.node("Cast", [renamed[name]], name, to=TensorProto.FLOAT16)
            lowering.writer.node("Cast", [narrow], name, name, to=TensorProto.FLOAT)
        if name in apart:
            lowering.writer.node("Identity", [apart[name]], name, name)
            lowering.outputs[name] = OutputFact(integer="", dtype="float32", scale=(), zero_point=0, axis=0)
        if half and _is_float(lowering, name):
            lowering.rounded_to_half.add(name)
        lowering.forms.put(name, "real", apart.get(name, name))
    if copies:
        return
    lowering.float_nodes.append(
        FloatNode(
            group=group.name,
            nodes=tuple(node.name for node in nodes),
            precision="float16" if half else "float32",
            tolerance=FLOAT16_TOLERANCE if half else FLOAT32_TOLERANCE,
            why=why,
        )
    )


def _leaves_and_is_read(lowering: Lowering, name: str) -> bool:
    """A model output that others read stands behind an Identity: the runtime moves a QuantizeLinear backwards over
    movements, and over an output too where it has but one reader; the output would then leave rounded.
    """
    read = any(name in group.inputs for group in lowering.summary.groups)
    return _is_float(lowering, name) and name in lowering.summary.outputs and read


def _is_float(lowering: Lowering, name: str) -> bool:
    return lowering.summary.tensors[name].dtype == "float32"


def _input(lowering: Lowering, name: str, made: set[str], written: dict[str, str]) -> str:
    if not name:
        return ""
    if name in made:
        return written.get(name, name)
    if name in lowering.initializers:
        return lowering.writer.keep_constant(lowering.initializers[name])
    return lowering.forms.real(name)
