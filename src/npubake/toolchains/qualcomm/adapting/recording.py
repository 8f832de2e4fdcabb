"""Qualcomm toolchain: ``adapt``'s record: what became of every tensor, as JSON (docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import onnx

from npubake.graph.summary import GraphSummary, Provenance
from npubake.toolchains.qualcomm.adapting.edges import Edges
from npubake.toolchains.qualcomm.adapting.grids import Grid
from npubake.toolchains.qualcomm.adapting.operations import Operation, Spelling
from npubake.toolchains.qualcomm.adapting.request import AdaptRequest
from npubake.toolchains.qualcomm.adapting.writing import UnitWriter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Written:
    """A QDQ model and how it came about. floats: the computed float32 tensors of its operations."""

    model: onnx.ModelProto
    spelling: Spelling
    writer: UnitWriter
    floats: frozenset[str]

    @property
    def codes(self) -> Mapping[str, str]:
        return self.writer.codes

    @property
    def grids(self) -> Mapping[str, Grid]:
        return self.writer.grids


def adapt_record(summary: GraphSummary, written: Written, edges: Edges, request: AdaptRequest) -> dict[str, Any]:
    """The record of a quantised model."""
    writer, operations = written.writer, written.spelling.operations
    present = {name for each in operations for name in each.node.output if name} | set(summary.inputs)
    floats = [name for name in _in_order(summary, operations) if name in written.floats]
    left = [{"tensor": name, "why": _why(name, operations)} for name in floats if name not in written.grids]
    held = {**writer.written, **written.grids}
    return {
        **_common(request, edges),
        "provenance": [_seen(name, written) for name in _optimised(summary) if name in present],
        "tensors": {name: _grid(held[name]) for name in sorted(held)},
        "coverage": {"activations": len(floats), "quantized": len(floats) - len(left), "float": left},
        "weights": {
            each.weights.initializer: {
                "dtype": each.weights.dtype,
                "axis": each.weights.axis,
                "granularity": "per_tensor" if each.weights.per_tensor else "per_channel",
            }
            for each in operations
            if each.weights is not None
        },
        "forms": [asdict(form) for form in written.spelling.forms],
        "warnings": [],
    }


def float_record(summary: GraphSummary, edges: Edges, request: AdaptRequest) -> dict[str, Any]:
    """The record of a model that stays in float."""
    names = [name for name in _optimised(summary) if summary.tensors[name].dtype == "float32"]
    why = f"lane {request.lane} computes in float"
    return {
        **_common(request, edges),
        "provenance": [_same(name, name) for name in _optimised(summary)],
        "tensors": {},
        "coverage": {
            "activations": len(names),
            "quantized": 0,
            "float": [{"tensor": name, "why": why} for name in names],
        },
        "weights": {},
        "forms": [],
        "warnings": [],
    }


def _common(request: AdaptRequest, edges: Edges) -> dict[str, Any]:
    return {
        "version": 1,
        "lane": request.lane,
        "io": request.io,
        "inputs": edges.inputs,
        "outputs": edges.outputs,
        "runtime_inputs": edges.runtime,
    }


def _optimised(summary: GraphSummary) -> list[str]:
    made = [name for node in summary.nodes for name in node.outputs if name]
    return [*summary.inputs, *made]


def _in_order(summary: GraphSummary, operations: Iterable[Operation]) -> list[str]:
    return [*summary.inputs, *(name for each in operations for name in each.node.output if name)]


def _seen(name: str, written: Written) -> dict[str, Any]:
    """What readers of a tensor see: behind its quantiser where it has one; an output under its own name."""
    writer = written.writer
    if name in writer.outputs or name not in writer.grids or name in writer.unrounded:
        return _same(name, name)
    return _same(name, writer.views[name, writer.grids[name]])


def _same(old: str, new: str) -> dict[str, Any]:
    entry = Provenance(old=old, new=new, relation="same")
    return {"old": entry.old, "new": entry.new, "relation": entry.relation}


def _why(name: str, operations: Iterable[Operation]) -> str:
    """Why a tensor stays in float: its maker's reason, else that of who reads it."""
    reasons = [each.why for each in operations if name in each.node.output and each.why]
    reasons += [each.why for each in operations if name in each.node.input and each.why]
    return reasons[0] if reasons else "nothing that computes in integers reads it"


def _grid(grid: Grid) -> dict[str, Any]:
    return {"dtype": grid.dtype, "scale": grid.scale, "zero_point": grid.zero_point, "by": grid.by}
