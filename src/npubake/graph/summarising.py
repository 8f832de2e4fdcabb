"""Room ``graph``: graph.json from a model. A model with static shapes enters, a ``GraphSummary`` leaves."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from npubake.errors import Fault, StageError
from npubake.graph.groups import find_groups
from npubake.graph.import_notes import ImportNotes
from npubake.graph.inference import static_shape
from npubake.graph.summary import GraphSummary, NodeFact, Provenance, TensorFact


def summarise(model: onnx.ModelProto, provenance: Sequence[Provenance]) -> GraphSummary:
    """Names, operators, sizes, dtypes (constants included), fusion groups, ``provenance`` from the imported model, and
    what its import noted.

    Raises StageError naming every node whose result has no static size.
    """
    graph = model.graph
    nodes = tuple(
        NodeFact(name=node.name, op_type=node.op_type, inputs=tuple(node.input), outputs=tuple(node.output))
        for node in graph.node
    )
    notes = ImportNotes.of(model)
    facts = _tensor_facts(model)
    declared = notes.declared(provenance) if notes is not None else {}
    return GraphSummary(
        inputs=tuple(value.name for value in graph.input),
        outputs=tuple(value.name for value in graph.output),
        tensors=facts,
        nodes=nodes,
        groups=find_groups(model),
        provenance=tuple(provenance),
        notes=tuple(notes.sentences()) if notes is not None else (),
        declared={name: ends for name, ends in declared.items() if name in facts and facts[name].dtype == "float32"},
    )


def _tensor_facts(model: onnx.ModelProto) -> dict[str, TensorFact]:
    graph = model.graph
    facts = {
        tensor.name: TensorFact(shape=tuple(tensor.dims), dtype=_dtype(tensor.data_type))
        for tensor in graph.initializer
    }
    for value in (*graph.input, *graph.value_info, *graph.output):
        shape = static_shape(value)
        if shape is not None:
            facts[value.name] = TensorFact(shape=shape, dtype=_dtype(value.type.tensor_type.elem_type))
    faults = [
        Fault(
            what=f"the size of {name!r} ({node.op_type}) is not known before the model runs",
            where=node.name,
            hint="export with fixed sizes, or cut the model before this node",
        )
        for node in graph.node
        for name in node.output
        if name and name not in facts
    ]
    if faults:
        raise StageError(*faults)
    return facts


def _dtype(element_type: int) -> str:
    return str(helper.tensor_dtype_to_np_dtype(element_type).name)
