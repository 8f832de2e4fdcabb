"""Qualcomm toolchain: AIMET's QDQ model as ``adapt``'s: the edges that the binary gets, and the record. Pure.

Its inner forms are those of ``quantise_aimet``, which refused what the compiler takes wrongly, but for its own fusions,
which ``mending`` keeps apart. Quantises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import onnx

from npubake.toolchains.qualcomm.adapting.edges import compilable_model
from npubake.toolchains.qualcomm.adapting.grids import Grid
from npubake.toolchains.qualcomm.adapting.request import Adapted, AdaptRequest
from npubake.toolchains.qualcomm.aimet.mending import mend

_KEPT = ("version", "quantiser", "provenance", "tensors", "weights", "coverage")  # of quantise_aimet's record


def adopt(quantised: onnx.ModelProto, record: Mapping[str, Any], request: AdaptRequest) -> Adapted:
    """``quantised`` (untouched), mended, and the same with the edges of ``request``. record: of ``quantise_aimet``.

    Raises RecipeError for a runtime input that fits no input; StageError for what the compiler would fuse wrongly.
    """
    model, forms = mend(quantised, request.optimization)
    edge = {entry.name for entry in (*quantised.graph.input, *quantised.graph.output)}
    grids = {name: Grid(**facts) for name, facts in record["tensors"].items() if name in edge}
    codes = {name: f"{name}/quantized" for name in grids}
    edges = compilable_model(model, codes, grids, request)
    made = {
        **{name: record[name] for name in _KEPT},
        "lane": request.lane,
        "io": request.io,
        "inputs": edges.inputs,
        "outputs": edges.outputs,
        "runtime_inputs": edges.runtime,
        "forms": [asdict(form) for form in forms],
        "warnings": [],
    }
    return Adapted(model=model, compilable=edges.model, record=made)
