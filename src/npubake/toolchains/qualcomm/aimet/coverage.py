"""Qualcomm toolchain: which activations an encoding stands on, and why the others have none. A summary and names in.

What has no encoding is computed in float: slower by a multiple, or refused where the SoC has no float. Nothing in the
converter or the compiler says so (AIMET issues 4071 and 4090), so it is counted here. No numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npubake.errors import Fault
from npubake.graph.summary import GraphSummary, NodeFact

_HINT = "Quantise with npubake's own quantiser (quantiser: npubake), or replace the operator."


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncovered:
    """An activation without an encoding. missing: our own quantiser would quantise it, and nothing excuses it."""

    tensor: str
    why: str
    missing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """activations: all float32 tensors that are made or fed; quantised: how many have an encoding."""

    activations: int
    quantised: int
    uncovered: tuple[Uncovered, ...]

    def to_json(self) -> dict[str, Any]:
        """The form of ``coverage`` in adapt's record."""
        entries = [{"tensor": entry.tensor, "why": entry.why} for entry in self.uncovered]
        return {"activations": self.activations, "quantized": self.quantised, "float": entries}

    def faults(self) -> Iterator[Fault]:
        """A fault for each tensor that should have an encoding and has none."""
        for entry in self.uncovered:
            if entry.missing:
                yield Fault(
                    what=f"AIMET gave no encoding for {entry.tensor}: {entry.why}", where=entry.tensor, hint=_HINT
                )


def covered(summary: GraphSummary, quantised: Collection[str], fused: Collection[tuple[str, str]]) -> Coverage:
    """Coverage of the optimised graph. quantised: tensors with a quantiser; fused: neighbouring operators between
    which AIMET's configuration wants none, since the HTP computes them as one.
    """
    makers = {tensor: node for node in summary.nodes for tensor in node.outputs if tensor}
    names = [name for name in (*summary.inputs, *makers) if summary.tensors[name].dtype == "float32"]
    readers = _readers(summary)
    without = [name for name in names if name not in quantised]
    uncovered = [_uncovered(summary, name, makers.get(name), readers.get(name, []), fused) for name in without]
    return Coverage(activations=len(names), quantised=len(names) - len(without), uncovered=tuple(uncovered))


def _readers(summary: GraphSummary) -> Mapping[str, list[NodeFact]]:
    readers: dict[str, list[NodeFact]] = {}
    for node in summary.nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    return readers


def _uncovered(
    summary: GraphSummary,
    name: str,
    maker: NodeFact | None,
    readers: list[NodeFact],
    fused: Collection[tuple[str, str]],
) -> Uncovered:
    if maker is None:
        return Uncovered(tensor=name, why="a model input", missing=bool(readers))
    pair = (maker.op_type, readers[0].op_type) if len(readers) == 1 else ("", "")
    if pair in fused and name not in summary.outputs:
        names = f"{' + '.join(pair)} ({maker.name}, {readers[0].name})"
        why = f"inside AIMET's supergroup {names}: computed as one by the HTP"
        return Uncovered(tensor=name, why=why, missing=False)
    (kind,) = {group.kind for group in summary.groups if maker.name in group.nodes}
    if kind == "float":
        why = f"made by {maker.name} ({maker.op_type}), for which npubake has no integer kernel either"
        return Uncovered(tensor=name, why=why, missing=False)
    return Uncovered(tensor=name, why=f"made by {maker.name} ({maker.op_type})", missing=True)
