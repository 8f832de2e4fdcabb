"""quant: what a lane and overrides come to before anything is observed: precisions, and what they put at the graph's
edges. A summary and overrides in, data out; no numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npubake.errors import BuildError
from npubake.graph.removals import Quantisation
from npubake.graph.resolve import ResolvedOverride
from npubake.graph.summary import GraphSummary
from npubake.quant.lanes import is_integer, parse_lane
from npubake.quant.precisions import Asked, Precisions, decide_precisions


def precisions_asked(
    summary: GraphSummary, lane: str, overrides: Sequence[Mapping[str, Any]], resolved: Sequence[ResolvedOverride]
) -> Precisions | None:
    """What lane and overrides come to; None where the lane is not known, which is a fault of its own."""
    try:
        known = parse_lane(lane)
    except BuildError:
        return None
    asked = [Asked.of(entry.path, entry.groups, overrides[entry.index].get("set", {})) for entry in resolved]
    return decide_precisions(summary, known, asked, frozenset())


def quantisation_at_edges(made: Precisions | None, tail: str) -> Quantisation | None:
    """What lane and overrides will put at the edges. tail: int32 or float32, what the platform's graphs end with."""
    if made is None:
        return None
    return Quantisation(
        held=frozenset(made.dtypes),
        wide=frozenset(name for name, dtype in made.dtypes.items() if dtype == "int16"),
        integer=frozenset(name for name, entry in made.groups.items() if is_integer(entry.precision)),
        half=frozenset(name for name, entry in made.groups.items() if entry.precision == "float16"),
        unrounded=frozenset(name for name, entry in made.groups.items() if entry.accumulator_output),
        int32_tail=tail == "int32",
    )
