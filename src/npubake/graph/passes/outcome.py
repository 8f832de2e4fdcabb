"""Room ``graph/passes``: what a pass hands back. Data only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from npubake.graph.summary import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """A place where the pattern stood but the rewrite would not have been equal. node: its name; why: one sentence."""

    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The new model; ``provenance`` holds a record for each computed tensor that was renamed, scaled, split or dropped
    on purpose (a tensor without record keeps its name and its values); ``declined`` names what was left alone and why.
    """

    model: onnx.ModelProto
    provenance: tuple[Provenance, ...] = ()
    declined: tuple[Declined, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pure function on models. tolerance: largest difference of any output relative to that output's largest
    magnitude, in float32 (0: equal bits but for the sign of zero).
    """

    name: str
    run: Callable[[onnx.ModelProto], Outcome]
    tolerance: float
