"""Room ``graph``: the equivalent float rewrites, in order, until nothing changes.

A model enters and is not touched; another, its summary and what was declined leave.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from npubake.graph.model_file import serialise
from npubake.graph.passes import PASSES, Declined
from npubake.graph.provenance import compose, identity
from npubake.graph.summarising import summarise
from npubake.graph.summary import GraphSummary

_MOST_ROUNDS = 10  # each round must shrink or normalise the graph; real models settle in two or three


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """summary: graph.json, with the provenance of every tensor of the original model."""

    model: onnx.ModelProto
    summary: GraphSummary
    declined: tuple[Declined, ...]


def optimize_model(model: onnx.ModelProto) -> Optimized:
    """The optimised form of an imported ``model`` (static shapes, opset 21, unique names).

    Raises StageError where a tensor's size is still unknown in the result.
    """
    provenance = identity(model)
    current, before = model, b""
    declined: tuple[Declined, ...] = ()
    for _ in range(_MOST_ROUNDS):
        declined = ()
        for entry in PASSES:
            outcome = entry.run(current)
            if outcome.model is not current:
                provenance = compose(provenance, outcome.provenance, outcome.model)
                current = outcome.model
            declined += outcome.declined
        after = serialise(current)
        if after == before:
            break
        before = after
    else:
        raise RuntimeError(f"the passes did not settle in {_MOST_ROUNDS} rounds")
    return Optimized(model=current, summary=summarise(current, provenance), declined=declined)
