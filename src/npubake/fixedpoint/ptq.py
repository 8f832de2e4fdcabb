"""Room ``fixedpoint``: the calibrated (QDQ) model with its nonlinear groups in fixed point.

Groups of kind table, softmax and layer_norm that compute in integers are cut out between the DequantizeLinear they
read and the QuantizeLinear that reads them; the kernels of the integer model take their place, from ``t/quantized`` to
``u/quantized``. An inner tensor, which the calibrated model does not quantise, is rounded to the int16 that it is
inside the integer model's kernel. Everything else, names included, stays as ``calibrate`` made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx
from onnx import helper, numpy_helper

from npubake.errors import Fault, StageError
from npubake.fixedpoint.kernels.floating import FLOAT32_TOLERANCE
from npubake.fixedpoint.kernels.lookup import lower_table
from npubake.fixedpoint.kernels.normalisation import lower_layer_norm, lower_softmax
from npubake.fixedpoint.lowered import Certificate, FloatNode, TableFact
from npubake.fixedpoint.lowering import Kernel, Lowering, NoIntegerKernelError
from npubake.graph.editing import GraphEditor
from npubake.graph.summary import FusionGroup, GraphSummary, Provenance
from npubake.quant.parameters import QuantizationParameters

NONLINEAR: Mapping[str, Kernel] = {"table": lower_table, "softmax": lower_softmax, "layer_norm": lower_layer_norm}


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPointModel:
    """float_nodes: nonlinear groups without a fixed-point form, left as they were."""

    model: onnx.ModelProto
    tables: tuple[TableFact, ...]
    certificates: tuple[Certificate, ...]
    float_nodes: tuple[FloatNode, ...]
    provenance: tuple[Provenance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """One fake-quantised tensor: the QuantizeLinear node, its result, the result of the DequantizeLinear behind it."""

    quantize: str
    codes: str
    dequantized: str


def fix_nonlinear(
    calibrated: onnx.ModelProto, summary: GraphSummary, parameters: QuantizationParameters
) -> FixedPointModel:
    """``calibrated`` (untouched) with tables in place of nonlinear integer groups.

    Raises StageError where the model is not the one that ``calibrate`` made of this graph and these parameters.
    """
    edges = _edges(calibrated, summary)
    lowering = Lowering.of(_restored(calibrated, summary), summary, parameters, "int32")
    lowering.writer.take(name for node in calibrated.graph.node for name in (node.name, *node.input, *node.output))
    removed: set[str] = set()
    renamed: dict[str, str] = {}
    for group in summary.groups:
        if group.kind in NONLINEAR and parameters.groups[group.name].precision in ("int8", "int16"):
            for name in (*group.inputs, *group.outputs):
                if name not in parameters.inner:
                    _known(edges, name, group)
            source, target = group.inputs[0], group.outputs[0]
            if source in parameters.inner:
                lowering.forms.put(source, "real", source)
            else:
                lowering.forms.put(source, "quantized", edges[source].codes)
            if not _fixed(lowering, group):
                continue
            removed.update(group.nodes)
            if target in parameters.inner:
                renamed[lowering.forms.real(target)] = target
            else:
                renamed[lowering.forms.quantized(target)] = edges[target].codes
                lowering.forms.put(target, "quantized", edges[target].codes)
                removed.add(edges[target].quantize)
    model = _joined(calibrated, lowering, removed, renamed)
    return FixedPointModel(
        model=model,
        tables=tuple(lowering.tables),
        certificates=tuple(lowering.certificates),
        float_nodes=tuple(lowering.float_nodes),
        provenance=_provenance(model, summary, edges),
    )


def _fixed(lowering: Lowering, group: FusionGroup) -> bool:
    """Write the kernel's nodes; False, and listed, where there is none."""
    try:
        NONLINEAR[group.kind](lowering, group)
    except NoIntegerKernelError as reason:
        lowering.float_nodes.append(
            FloatNode(
                group=group.name,
                nodes=group.nodes,
                precision="float32",
                tolerance=FLOAT32_TOLERANCE,
                why=f"left in float: {reason}",
            )
        )
        return False
    return True


def _known(edges: Mapping[str, _Edge], name: str, group: FusionGroup) -> None:
    if name not in edges:
        raise StageError(
            Fault(
                what=f"integer group {group.name} touches this tensor, and the calibrated model does not quantise it",
                where=name,
                hint="model, graph and parameters belong to different builds; run calibrate again",
            )
        )


def _restored(calibrated: onnx.ModelProto, summary: GraphSummary) -> onnx.ModelProto:
    """``calibrated`` with the optimised graph's tensor names on the optimised graph's nodes."""
    facts = {fact.name: fact for fact in summary.nodes}
    model = onnx.ModelProto()
    model.CopyFrom(calibrated)
    for node in model.graph.node:
        if node.name in facts:
            del node.input[:], node.output[:]
            node.input.extend(facts[node.name].inputs)
            node.output.extend(facts[node.name].outputs)
    return model


def _edges(model: onnx.ModelProto, summary: GraphSummary) -> dict[str, _Edge]:
    """Tensor of the optimised graph -> where it is fake-quantised, found by structure: names may carry a number."""
    original = {fact.name: fact for fact in summary.nodes}
    makers = {name: node for node in model.graph.node for name in node.output}
    dequantizers = {node.input[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}

    def source_of(name: str) -> str:
        node = makers.get(name)
        if node is None:
            return name
        if node.name in original:
            return original[node.name].outputs[list(node.output).index(name)]
        return source_of(node.input[0])  # the Casts of a float16 tensor

    edges = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.name not in original and node.output[0] in dequantizers:
            dequantized = dequantizers[node.output[0]].output[0]
            edges[source_of(node.input[0])] = _Edge(quantize=node.name, codes=node.output[0], dequantized=dequantized)
    return edges


def _joined(
    calibrated: onnx.ModelProto, lowering: Lowering, removed: set[str], renamed: Mapping[str, str]
) -> onnx.ModelProto:
    """The calibrated model without ``removed`` nodes, with the lowering's; unused nodes and constants dropped."""
    editor = GraphEditor(calibrated)
    editor.remove([node for node in editor.nodes if node.name in removed])
    for tensor in lowering.writer.constants():
        editor.set_constant(tensor.name, numpy_helper.to_array(tensor))
    for node in lowering.writer.nodes:
        inputs, outputs = ([renamed.get(name, name) for name in names] for names in (node.input, node.output))
        attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        editor.add_node(node.op_type, inputs, outputs, node.name, **attributes)
    return editor.finish()


def _provenance(model: onnx.ModelProto, summary: GraphSummary, edges: Mapping[str, _Edge]) -> tuple[Provenance, ...]:
    """Every tensor of the optimised graph, as its readers see it."""
    alive = {name for node in model.graph.node for name in node.output} | {value.name for value in model.graph.input}
    casts = {node.input[0]: node.output[0] for node in model.graph.node if node.op_type == "Cast"}
    rounded = {name: casts[half] for name, half in casts.items() if half in casts}
    entries = []
    for name in (*summary.inputs, *(output for fact in summary.nodes for output in fact.outputs if output)):
        new = name if name in alive else ""
        if name not in summary.outputs:
            new = rounded.get(name, new)
            if name in edges and edges[name].dequantized in alive:
                new = edges[name].dequantized
        entries.append(Provenance(old=name, new=new, relation="same" if new else "gone"))
    return tuple(entries)
