"""Fixed-point room: the quantised model as a whole: lowering, runtime inputs, removals. Models and facts only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import onnx

from npubake.errors import Fault, RecipeError
from npubake.fixedpoint.colour import RuntimeInput
from npubake.fixedpoint.lower import lower_model
from npubake.fixedpoint.lowered import Lowered, Tail
from npubake.fixedpoint.output_chains import Rebuilt, rebuilt_output
from npubake.fixedpoint.remove_edges import LoweredEdges, remove_edges
from npubake.fixedpoint.runtime_input import bake_runtime_input
from npubake.graph.removals import output_chain
from npubake.graph.summary import GraphSummary, Provenance
from npubake.quant.lanes import is_integer
from npubake.quant.parameters import QuantizationParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRequest:
    """What the recipe and the platform want at the model's edges; types as in ``remove_edges.REMOVABLE``."""

    tail: Tail
    runtime_inputs: tuple[RuntimeInput, ...]
    remove_inputs: tuple[str, ...]
    remove_outputs: tuple[str, ...]

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> EdgeRequest:
        """From the ``quantize`` stage's parameters. Raises RecipeError with every fault of the runtime inputs."""
        faults: list[Fault] = []
        specs: list[RuntimeInput] = []
        for name, facts in sorted((params.get("runtime_input") or {}).items()):
            try:
                specs.append(RuntimeInput.from_facts(name, facts))
            except RecipeError as error:
                faults += error.faults
        if faults:
            raise RecipeError(*faults)
        remove: Mapping[str, Sequence[str]] = params.get("remove") or {}
        return cls(
            tail=params.get("tail", "float32"),
            runtime_inputs=tuple(specs),
            remove_inputs=tuple(remove.get("inputs") or ()),
            remove_outputs=tuple(remove.get("outputs") or ()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """model: the integer model; removed: the same without its edge nodes (equal if none went); record: JSON facts."""

    model: onnx.ModelProto
    removed: onnx.ModelProto
    record: dict[str, Any]


def quantise(
    model: onnx.ModelProto, summary: GraphSummary, parameters: QuantizationParameters, request: EdgeRequest
) -> Quantised:
    """Lower ``model`` and shape its edges. Raises what ``lower_model``, ``bake_runtime_input`` and ``remove_edges``
    raise.

    On platforms with an int32 tail the Dequantize of GEMM tails is removed whether the recipe asks for it or not.
    """
    lowered = lower_model(model, summary, parameters, request.tail)
    baked, runtime = bake_runtime_input(lowered.model, request.runtime_inputs)
    rebuilt = _rebuilt(model, summary, parameters, lowered, request.remove_outputs)
    removed_model, removed = remove_edges(
        baked,
        inputs=request.remove_inputs,
        outputs=request.remove_outputs,
        int32_tail=request.tail == "int32",
        untouched=[name for facts in runtime.values() if "table" in facts for name in facts["tensors"]],
        lowered=LoweredEdges(
            own_nodes={node.name for node in model.graph.node},
            rebuilt=rebuilt,
        ),
    )
    record = {
        "version": 1,
        "provenance": [asdict(entry) for entry in _behind_runtime(lowered.provenance, runtime)],
        "lane": parameters.lane,
        "tail": request.tail,
        "runtime_inputs": runtime,
        "removed": [entry.to_json() for entry in removed],
        "warnings": list(_left_in_float(lowered, parameters)),
        **_lowering_facts(lowered),
    }
    return Quantised(model=baked, removed=removed_model, record=record)


def _rebuilt(
    model: onnx.ModelProto,
    summary: GraphSummary,
    parameters: QuantizationParameters,
    lowered: Lowered,
    wanted: Sequence[str],
) -> dict[str, Rebuilt]:
    """Outputs in front of which something goes. What a group in float reads from another one stays in real values."""
    held = {entry.old: entry for entry in lowered.provenance}
    integer = {name for name, entry in parameters.groups.items() if is_integer(entry.precision)}
    group_of = {node: group.name for group in summary.groups for node in group.nodes}
    makers = summary.producer_group()
    found = {}
    for output in summary.outputs:
        chain = output_chain(summary, output, wanted)
        if not chain.taken:
            continue
        source = held[chain.source]
        if not integer & {makers[chain.source].name, group_of.get(chain.taken[-1].name)}:
            source = Provenance(old=chain.source, new=chain.source, relation="same")
        found[output] = rebuilt_output(model, summary, chain, source, parameters.tensors.get(chain.source))
    return found


def _left_in_float(lowered: Lowered, parameters: QuantizationParameters) -> Iterator[str]:
    """A sentence for each group that was to compute in integers and for which no exact kernel was large enough."""
    for entry in lowered.float_nodes:
        asked = parameters.groups[entry.group].precision
        if is_integer(asked):
            yield f"{entry.group!r} was to compute in {asked} and stays in float: {entry.why}"


def _lowering_facts(lowered: Lowered) -> dict[str, Any]:
    return {
        "certificates": [asdict(entry) for entry in lowered.certificates],
        "float_nodes": [asdict(entry) for entry in lowered.float_nodes],
        "tables": [asdict(entry) for entry in lowered.tables],
        "outputs": {name: asdict(fact) for name, fact in lowered.outputs.items()},
    }


def _behind_runtime(
    provenance: Sequence[Provenance], runtime: Mapping[str, Mapping[str, Any]]
) -> tuple[Provenance, ...]:
    """An input that takes the runtime's bytes no longer holds the old values: they stand in ``real``, or nowhere."""
    entries = []
    for entry in provenance:
        facts = runtime.get(entry.new, {})
        if "real" in facts:
            entry = replace(entry, new=facts["real"], relation="same" if facts["real"] else "gone")
        entries.append(entry)
    return tuple(entries)
