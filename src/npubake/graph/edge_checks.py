"""Room ``graph``: what a target asks of the model's inputs and outputs, held against graph.json. Faults leave."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from npubake.errors import Fault
from npubake.graph.removals import (
    MOVES,
    Quantisation,
    input_chain,
    output_chain,
    stands_dequantize,
    stands_quantize,
)
from npubake.graph.summary import GraphSummary
from npubake.nearest import did_you_mean

PICTURE_CHANNELS: Mapping[str, int] = {"nv12": 3, "yuv444": 3, "rgb": 3, "bgr": 3, "gray": 1}
RUNTIME_TYPES = (*PICTURE_CHANNELS, "featuremap")
REMOVABLE = ("Quantize", "Dequantize", "Cast", "Transpose", "Reshape", "Softmax")
# Facts of the runtime's padding of outputs (the vendor's compiler reports it; recorded as a warning only).
UNPADDED_ROW_BYTES, UNPADDED_ALIGNMENT = 16384, 64
_ELEMENT_BYTES: Mapping[str, int] = {
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "int64": 8,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_COCO = "it reads boxes [1, 4, N] with scores [1, C, N], or one output [1, 4 + C, N]"


def input_faults(summary: GraphSummary, inputs: Mapping[str, Any]) -> Iterator[Fault]:
    """Inputs that the recipe names and the model has not."""
    for name in inputs:
        if name not in summary.inputs:
            what = f"the model has no input {name!r}"
            yield Fault(what=what, path=f"$.model.inputs.{name}", hint=did_you_mean(name, summary.inputs))


def runtime_input_faults(
    summary: GraphSummary, runtime: Mapping[str, Mapping[str, Any]], inputs: Mapping[str, Mapping[str, Any]]
) -> Iterator[Fault]:
    """Runtime inputs that do not fit: unknown inputs and types, pictures for what is no picture, odd nv12 sizes."""
    for name, entry in runtime.items():
        path, kind = f"$.runtime_input.{name}", entry["type"]
        if name not in summary.inputs:
            yield Fault(what=f"the model has no input {name!r}", path=path, hint=did_you_mean(name, summary.inputs))
        elif kind not in RUNTIME_TYPES:
            hint = did_you_mean(kind, RUNTIME_TYPES)
            yield Fault(what=f"{kind!r} is no type of runtime input", path=f"{path}.type", hint=hint)
        elif kind in PICTURE_CHANNELS:
            yield from _picture_faults(summary, name, entry, inputs.get(name, {}).get("layout", "NCHW"))


def _picture_faults(summary: GraphSummary, name: str, entry: Mapping[str, Any], layout: str) -> Iterator[Fault]:
    path, kind, fact = f"$.runtime_input.{name}", entry["type"], summary.tensors[name]
    if len(fact.shape) != 4 or fact.dtype != "float32":
        what = f"input {name!r} is {fact.dtype} {list(fact.shape)}; {kind} feeds a float32 picture of 4 dimensions"
        yield Fault(what=what, where=name, path=path, hint="use type featuremap for this input")
        return
    _, first, second, third = fact.shape
    channels, height, width = (first, second, third) if layout == "NCHW" else (third, first, second)
    if channels != PICTURE_CHANNELS[kind]:
        what = f"input {name!r} has {channels} channels as {layout}; {kind} feeds {PICTURE_CHANNELS[kind]}"
        hint = f"correct model.inputs.{name}.layout, or choose gray for 1 channel and featuremap for others"
        yield Fault(what=what, where=name, path=path, hint=hint)
    if kind == "nv12" and (height % 2 or width % 2):
        what = f"nv12 of {height} x {width}: height and width must be even"
        hint = "nv12 stores one pair of colours for 2 x 2 pixels; export the model with even sizes"
        yield Fault(what=what, where=name, path=path, hint=hint)
    if kind in ("nv12", "yuv444") and entry.get("range") not in ("full", "video"):
        hint = "full (0-255, most camera frames converted for viewing) or video (16-235)"
        yield Fault(what=f"{kind} needs a colour range", where=name, path=f"{path}.range", hint=hint)


def metric_faults(summary: GraphSummary, metric: Mapping[str, Any]) -> Iterator[Fault]:
    """A product metric that cannot read the model's outputs."""
    shapes = {name: summary.tensors[name].shape for name in summary.outputs}
    text = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    path, kind = "$.metric.name", metric["name"]
    if kind == "coco_map" and not _is_detector(shapes):
        yield Fault(what=f"the metric coco_map cannot read these outputs: {text}", path=path, hint=_COCO)
    if kind == "top1" and (len(shapes) != 1 or len(next(iter(shapes.values()))) != 2):
        hint = "it reads one output [1, classes]"
        yield Fault(what=f"the metric top1 cannot read these outputs: {text}", path=path, hint=hint)


def _is_detector(shapes: Mapping[str, tuple[int, ...]]) -> bool:
    if {"boxes", "scores"} <= shapes.keys():
        boxes, scores = shapes["boxes"], shapes["scores"]
        return len(boxes) == len(scores) == 3 and boxes[:2] == (1, 4) and boxes[2] == scores[2]
    (first, *others) = shapes.values()
    return not others and len(first) == 3 and first[0] == 1 and first[1] > 4


def removal_faults(
    summary: GraphSummary,
    remove: Mapping[str, Sequence[str]],
    quantisation: Quantisation | None = None,
    pictures: Collection[str] = (),
) -> Iterator[Fault]:
    """Operator types that cannot be removed, or stand at no edge. pictures: inputs into which the runtime's conversion
    is baked; quantisation: what is known of it (without, Quantize and Dequantize are taken as given).
    """
    for side in ("inputs", "outputs"):
        wanted = list(remove.get(side, ()))
        if side == "inputs":
            found = _input_types(summary, wanted, quantisation, pictures)
        else:
            found = _output_types(summary, wanted, quantisation)
        for position, kind in enumerate(wanted):
            path = f"$.remove.{side}[{position}]"
            if kind not in REMOVABLE:
                what = f"{kind!r} cannot be removed at the edges"
                yield Fault(what=what, path=path, hint=did_you_mean(kind, REMOVABLE))
            elif kind not in found:
                what = f"no {kind} that can go stands at the {side}"
                yield Fault(what=what, path=path, hint=_edge_hint(summary, side, kind, quantisation, pictures))


def _input_types(
    summary: GraphSummary, wanted: Sequence[str], quantisation: Quantisation | None, pictures: Collection[str]
) -> set[str]:
    """Types that go behind some input."""
    found: set[str] = set()
    for name in summary.inputs:
        if name in pictures:
            continue
        types = [kind for kind in wanted if kind in ("Cast", *MOVES)]
        if quantisation is not None and name in quantisation.wide:
            types = ["Cast"]  # 16 bits move as float32, behind a Cast of lowering's own
        taken = input_chain(summary, name, types)
        found.update(node.op_type for node in taken)
        if quantisation is None or stands_quantize(summary, name, taken, quantisation):
            found.add("Quantize")
    return found


def _output_types(summary: GraphSummary, wanted: Sequence[str], quantisation: Quantisation | None) -> set[str]:
    """Types that go in front of some output."""
    found: set[str] = set()
    for name in summary.outputs:
        chain = output_chain(summary, name, wanted)
        found.update(node.op_type for node in chain.taken)
        if quantisation is None or stands_dequantize(summary, chain, quantisation):
            found.add("Dequantize")
    return found


def _edge_hint(
    summary: GraphSummary, side: str, kind: str, quantisation: Quantisation | None, pictures: Collection[str]
) -> str:
    """What stands at the edge instead."""
    if side == "inputs" and summary.inputs and set(pictures) >= set(summary.inputs):
        return "the runtime's conversion of pictures is baked in there; nothing behind it can go"
    edge = ", ".join(sorted(_edge_types(summary, side, set()))) or "nothing"
    if kind in ("Quantize", "Dequantize") and quantisation is not None:
        natural = kind == ("Quantize" if side == "inputs" else "Dequantize")
        why = "this target leaves that edge in float" if natural else "quantisation puts none there"
        return f"{why}; at this edge: {edge}; leave {kind} out"
    return f"at this edge: {edge}; leave {kind} out, or name what stands before it too"


def _edge_types(summary: GraphSummary, side: str, removed: set[str]) -> set[str]:
    """Types of the nodes at an edge, and of those behind nodes of a type in ``removed``."""
    names = list(summary.inputs if side == "inputs" else summary.outputs)
    types: set[str] = set()
    seen: set[str] = set()
    while names:
        name = names.pop()
        for node in summary.nodes:
            near, far = (node.inputs, node.outputs) if side == "inputs" else (node.outputs, node.inputs[:1])
            if name in near and node.name not in seen:
                seen.add(node.name)
                types.add(node.op_type)
                names.extend(far if node.op_type in removed else ())
    return types


def padding_warnings(summary: GraphSummary) -> Iterator[str]:
    """Outputs whose rows are long and not a multiple of 64 bytes, where padding was asked away."""
    for name in summary.outputs:
        fact = summary.tensors[name]
        row = (fact.shape[-1] if fact.shape else 1) * _ELEMENT_BYTES.get(fact.dtype, 4)
        if row > UNPADDED_ROW_BYTES and row % UNPADDED_ALIGNMENT:
            total = math.prod(fact.shape)
            yield (
                f"output {name!r} ({total} elements): its rows of {row} bytes are longer than {UNPADDED_ROW_BYTES} "
                f"and no multiple of {UNPADDED_ALIGNMENT}; output_no_padding may cost time on the board"
            )
