"""Qualcomm toolchain: AIMET's QDQ model as ``adapt``'s: the edges that the binary gets, and the record. Pure.

Its inner forms are those of ``quantise_aimet``, which refused what the compiler takes wrongly. Quantises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from npubake.toolchains.qualcomm.adapting.edges import compilable_model
from npubake.toolchains.qualcomm.adapting.grids import Grid
from npubake.toolchains.qualcomm.adapting.request import Adapted, AdaptRequest

_KEPT = ("version", "quantiser", "provenance", "tensors", "weights", "coverage")  # of quantise_aimet's record


def adopt(quantised: onnx.ModelProto, record: Mapping[str, Any], request: AdaptRequest) -> Adapted:
    """``quantised`` (untouched) as the model, and with the edges of ``request``. record: that of ``quantise_aimet``.

    Raises RecipeError for a runtime input that fits no input.
    """
    edge = {entry.name for entry in (*quantised.graph.input, *quantised.graph.output)}
    grids = {name: Grid(**facts) for name, facts in record["tensors"].items() if name in edge}
    codes = {name: f"{name}/quantized" for name in grids}
    edges = compilable_model(quantised, codes, grids, request)
    made = {
        **{name: record[name] for name in _KEPT},
        "lane": request.lane,
        "io": request.io,
        "inputs": edges.inputs,
        "outputs": edges.outputs,
        "runtime_inputs": edges.runtime,
        "forms": [],
        "warnings": [],
    }
    return Adapted(model=quantised, compilable=edges.model, record=made)
