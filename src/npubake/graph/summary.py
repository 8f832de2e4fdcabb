"""Room ``graph``: graph.json, what the optimised graph holds. Data and JSON only: no onnx, no numpy.

A *fusion group* is the smallest piece that a quantiser sees: the nodes that one fused kernel computes. Its ``outputs``
are the tensors that a quantiser may stand on; what lies between the nodes of one group is never quantised.
Groups are fixed by ``optimize``, in topological order, the same for all lanes, and cover every node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

GroupKind = Literal[
    "conv",  # Conv (any group count) + constant bias + fused Relu/Clip
    "conv_transpose",
    "linear",  # Gemm, or MatMul with one constant operand, + constant Add + fused Relu/Clip
    "matmul",  # MatMul of two computed tensors
    "table",  # elementwise function of one tensor: Sigmoid, SiLU, HardSwish, GELU, Exp, Clip alone, ...
    "add",  # Add or Sub of two tensors (one may be constant), + fused Relu/Clip
    "multiply",  # Mul of two tensors (one may be constant)
    "divide",
    "concat",
    "movement",  # Reshape, Transpose, Slice, Split, Pad, nearest Resize, MaxPool, ...: values copied, scale shared
    "average",  # AveragePool, GlobalAveragePool, ReduceMean
    "resize",  # linear Resize
    "reduce",  # ReduceSum, ReduceMax, ReduceMin
    "softmax",
    "layer_norm",
    "float",  # everything else: stays in float, listed
]
WEIGHTED_KINDS: tuple[GroupKind, ...] = ("conv", "conv_transpose", "linear")  # they have a constant operand
Relation = Literal["same", "scaled", "split", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFact:
    """shape: sizes, all static; dtype: numpy name (``float32``)."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """One node: its name is unique; inputs and outputs are tensor names ('' for an absent optional input)."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionGroup:
    """name: the first (anchor) node's name; function: for ``table`` and fused kinds the canonical function
    (``silu``, ``relu``, ``clip``, ``gelu``, ``sigmoid``, ...), else ''. inputs: computed tensors that it reads.
    """

    name: str
    kind: GroupKind
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a tensor of the new graph came from in the old one.

    same: equal values; scaled: old = factor * (new - zero_point), the form of a quantised tensor too; split: one of
    several tensors made of an old one; gone: an old tensor that the new graph does not compute (``new`` is '').
    Records of ``calibrate``, ``ptq`` and ``quantize`` name tensors of the *optimised* graph as ``old``, so that any two
    of their models can be compared by that name.
    """

    old: str
    new: str
    relation: Relation
    factor: float = 1.0
    zero_point: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSummary:
    """The whole of graph.json. ``inputs`` and ``outputs`` are names in the model's order. notes: what the import did
    that a person should know; declared: tensor -> (low, high) that the source itself states, by its fake quantisers.
    Both are left out of the file where they are empty.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, TensorFact]
    nodes: tuple[NodeFact, ...]
    groups: tuple[FusionGroup, ...]
    provenance: tuple[Provenance, ...]
    notes: tuple[str, ...] = ()
    declared: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def producer_group(self) -> dict[str, FusionGroup]:
        """Tensor name -> the group that makes it (graph inputs are absent)."""
        return {tensor: group for group in self.groups for tensor in group.outputs}

    def reader_groups(self) -> dict[str, tuple[FusionGroup, ...]]:
        """Tensor name -> the groups that read it, in topological order (tensors that nothing reads are absent)."""
        readers: dict[str, list[FusionGroup]] = {}
        for group in self.groups:
            for tensor in group.inputs:
                readers.setdefault(tensor, []).append(group)
        return {tensor: tuple(groups) for tensor, groups in readers.items()}

    def quantisable(self) -> tuple[str, ...]:
        """float32 tensors that a quantiser may stand on: graph inputs, then group outputs, in topological order."""
        names = (*self.inputs, *(tensor for group in self.groups for tensor in group.outputs))
        return tuple(name for name in names if self.tensors[name].dtype == "float32")

    def to_json(self) -> str:
        """Canonical text: sorted keys, one-space indent, final newline."""
        data = {"version": 1, **asdict(self)}
        for name in ("notes", "declared"):
            if not data[name]:
                del data[name]
        return json.dumps(data, sort_keys=True, indent=1) + "\n"

    def save(self, path: Path) -> None:
        path.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> GraphSummary:
        return cls.from_json(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GraphSummary:
        return cls(
            inputs=tuple(data["inputs"]),
            outputs=tuple(data["outputs"]),
            tensors={
                name: TensorFact(shape=tuple(fact["shape"]), dtype=fact["dtype"])
                for name, fact in data["tensors"].items()
            },
            nodes=tuple(
                NodeFact(
                    name=node["name"],
                    op_type=node["op_type"],
                    inputs=tuple(node["inputs"]),
                    outputs=tuple(node["outputs"]),
                )
                for node in data["nodes"]
            ),
            groups=tuple(
                FusionGroup(
                    name=group["name"],
                    kind=group["kind"],
                    nodes=tuple(group["nodes"]),
                    inputs=tuple(group["inputs"]),
                    outputs=tuple(group["outputs"]),
                    function=group["function"],
                )
                for group in data["groups"]
            ),
            provenance=tuple(Provenance(**entry) for entry in data["provenance"]),
            notes=tuple(data.get("notes", ())),
            declared={name: (ends[0], ends[1]) for name, ends in data.get("declared", {}).items()},
        )
