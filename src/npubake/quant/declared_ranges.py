"""quant: ranges that are stated and not measured, by tensor. Parameters and a summary in, plain data out; no numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npubake.graph.summary import GraphSummary


def declared_ranges(params: Mapping[str, Any], summary: GraphSummary) -> dict[str, list[float]]:
    """Tensor -> [low, high]. ``image_inputs`` ``{range, channels, layout, layouts: {name: layout}}`` of the stage's
    ``params`` stands for every graph input that takes a picture of so many channels; ``input_ranges`` states ranges by
    name and goes before it. Below both stand the ranges that the source model declared itself, of any tensor.
    """
    ranges = dict(params.get("input_ranges", {}))
    images = params.get("image_inputs", {})
    for name in summary.inputs if images else ():
        shape = summary.tensors[name].shape
        layout = images.get("layouts", {}).get(name, images["layout"])
        if len(shape) == 4 and shape[1 if layout == "NCHW" else 3] == images["channels"]:
            ranges.setdefault(name, list(images["range"]))
    return {name: list(ends) for name, ends in summary.declared.items()} | ranges
