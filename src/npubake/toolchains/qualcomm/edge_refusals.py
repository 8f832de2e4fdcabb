"""Qualcomm toolchain: inputs and outputs of a model that a context binary cannot have, for ``check``. Summary in,
faults out; no onnx.

The compiler leaves an input that nothing reads out of the binary, passes one that is an output by it, and gives a
scalar an axis (QNN 2.51.0): the wrapper has such edges, and a board that loads the binary has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npubake.errors import Fault
from npubake.graph.summary import GraphSummary


def edge_faults(summary: GraphSummary, params: Mapping[str, Any]) -> Iterator[Fault]:
    """One fault an edge. params: those of ``check``; with ``cpu_nodes`` it is the wrapper that is deployed, and has
    what the binary lacks.
    """
    if params.get("road") == "sdk":
        return
    read = {name for node in summary.nodes for name in node.inputs}
    made = {name for node in summary.nodes for name in node.outputs}
    if not params.get("cpu_nodes"):
        for name in summary.inputs:
            if name in summary.outputs:
                what, hint = f"input {name!r} is an output as it is", "Take it off the outputs at export"
                yield Fault(what=f"{what}: the binary would have neither", where=name, hint=hint)
            elif name not in read:
                what, hint = f"input {name!r} is read by nothing", "Take it off the inputs at export"
                yield Fault(what=f"{what}: the binary would not have it", where=name, hint=hint)
    for name in summary.outputs:
        if name not in made and name not in summary.inputs:
            what, hint = f"output {name!r} is a constant", "Take it off the outputs; the application can hold it"
            yield Fault(what=f"{what}: nothing computes it", where=name, hint=hint)
    for side, names in (("input", summary.inputs), ("output", summary.outputs)):
        for name in names:
            if not summary.tensors[name].shape and name in (read | made):
                what = f"{side} {name!r} is a scalar, and the binary would give it one axis"
                yield Fault(what=what, where=name, hint="Give it the shape [1] at export (a Reshape)")
