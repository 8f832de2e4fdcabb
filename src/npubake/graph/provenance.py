"""Room ``graph``: where tensors came from, composed over steps. Records enter, records leave; no tensor is touched.

old = f1 * mid and mid = f2 * new give old = f1 * f2 * new. Zero points appear only in integer stages, never here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from npubake.graph.summary import Provenance, Relation


def computed_tensors(model: onnx.ModelProto) -> list[str]:
    """Names of graph inputs and of everything that nodes make, in order."""
    names = [value.name for value in model.graph.input]
    names.extend(name for node in model.graph.node for name in node.output if name)
    return names


def identity(model: onnx.ModelProto) -> tuple[Provenance, ...]:
    """Every computed tensor of ``model`` is the same as itself."""
    return tuple(Provenance(old=name, new=name, relation="same") for name in computed_tensors(model))


def compose(
    earlier: Sequence[Provenance], step: Iterable[Provenance], after: onnx.ModelProto
) -> tuple[Provenance, ...]:
    """``earlier`` continued by one step's records; a tensor without record keeps its name, or is gone with it.

    A tensor with two or more records in ``step`` was split and continues as all of them.
    """
    changes: dict[str, list[Provenance]] = {}
    for record in step:
        changes.setdefault(record.old, []).append(record)
    alive = set(computed_tensors(after))
    result: list[Provenance] = []
    for record in earlier:
        if record.relation == "gone":
            result.append(record)
            continue
        default = [Provenance(old=record.new, new=record.new, relation="same")]
        result.extend(_chain(record, change, alive) for change in changes.get(record.new, default))
    return tuple(result)


def _chain(first: Provenance, second: Provenance, alive: set[str]) -> Provenance:
    if second.relation == "gone" or second.new not in alive:
        return Provenance(old=first.old, new="", relation="gone")
    factor = first.factor * second.factor
    if "split" in (first.relation, second.relation):
        return Provenance(old=first.old, new=second.new, relation="split", factor=factor)
    relation: Relation = "same" if factor == 1.0 else "scaled"
    return Provenance(old=first.old, new=second.new, relation=relation, factor=factor)
