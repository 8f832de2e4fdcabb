"""Recipe room: rules between the keys of one recipe that a schema cannot say. Tree in, faults out. No I/O.

They run on what the schema found valid, so that one mistake gives one fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npubake.document.tree import Mark, Node, json_path
from npubake.document.tree import Path as Place
from npubake.errors import Fault
from npubake.nearest import did_you_mean
from npubake.recipe.presets import PRESETS
from npubake.recipe.qualcomm_rules import qualcomm_rules
from npubake.recipe.quant_rules import quant_rules

_YUV = ("nv12", "yuv444")
# What rules hold a block against; where the block is inherited, it is this that the recipe itself says otherwise.
_HELD_AGAINST: dict[str, tuple[Place, ...]] = {
    "layer_overrides": (
        ("quant_config", "calibration", "method"),
        ("quant_config", "weights", "granularity"),
        ("quant_config", "equivalent_transformation"),
    ),
    "quant_config": (
        ("quant_config", "tuning", "level"),
        ("quant_config", "tuning", "judge"),
        ("quant_config", "load", "scales"),
        ("quant_config", "load", "samples"),
        ("quant_config", "weights"),
        ("quant_config", "lane"),
    ),
    "runtime_input": (("model", "inputs"),),
    "platform_options": (
        ("platform",),
        ("platforms",),
        ("model", "inputs"),
        ("quant_config", "calibration", "method"),
        ("quant_config", "weights", "granularity"),
        ("quant_config", "equivalent_transformation"),
    ),
    "toolchain_options": (("quant_config", "lane"),),
}


def broken_rules(root: Node) -> list[Fault]:
    """Every broken rule of a merged recipe."""
    data = root.plain()
    return [
        Fault(what=what, where=str(_arising(root, place)), path=json_path(place), hint=hint)
        for rule in (_platforms, _preset, _runtime_inputs, _calibration, _gates, quant_rules, qualcomm_rules, _options)
        for place, what, hint in rule(data)
    ]


def _arising(root: Node, place: Place) -> Mark:
    """Where a conflict arises: at ``place``, or in what the recipe itself states, where ``place`` is inherited."""
    around = [place[:length] for length in range(len(place), 0, -1)]
    for stated in (*around, *_HELD_AGAINST.get(str(place[0]) if place else "", ())):
        node = _at(root, stated)
        if node is not None and node.mark.file == root.mark.file:
            return node.mark
    return root.find(place).mark


def _at(root: Node, place: Place) -> Node | None:
    node: Node | None = root
    for step in place:
        node = node.child(step) if node is not None else None
    return node


Found = Iterator[tuple[Place, str, str]]


def _platforms(data: dict[str, Any]) -> Found:
    if "platform" in data and "platforms" in data:
        yield ("platform",), "both 'platform' and 'platforms' are given", "Keep one: platform makes a single target."
    if "platform" not in data and "platforms" not in data:
        yield (), "no platform is given", "Add 'platforms: [j6p, generic]', or 'platform: j6p' for a single target."


def _preset(data: dict[str, Any]) -> Found:
    if "preset" in data and "preprocess" in data:
        yield ("preprocess",), "both 'preset' and 'preprocess' are given", "Keep one; a preset can be changed in place."
    elif "preset" not in data and "preprocess" not in data:
        yield (), "no preprocessing is given", f"Add 'preset: NAME' ({', '.join(PRESETS)}) or a 'preprocess:' block."
    for key in ("preset", "preprocess"):
        if isinstance(data.get(key), dict):
            yield from _block(key, data[key])
    preset = data.get("preset", "")
    yield from _sequences({"name": preset} if isinstance(preset, str) else preset)


def _block(key: str, block: dict[str, Any]) -> Found:
    base = PRESETS.get(block.get("name", ""))
    picture = "channels" in block or (base is not None and base.channels is not None)
    if ("mean" in block or "std" in block) and "mean_domain" not in block:
        place = (key, "mean" if "mean" in block else "std")
        yield place, "mean and std do not say their domain", "Add 'mean_domain: 0-1' or 'mean_domain: 0-255'."
    for name in ("resize", "crop", "scale", "mean", "std"):
        if name in block and not picture:
            hint = "Only pictures are prepared (channels: rgb, bgr or gray); tensors are fed as they are."
            yield (key, name), f"'{name}' without 'channels'", hint
    channels = block.get("channels") or (base.channels if base else None)
    for name in ("mean", "std"):
        count = len(block.get(name, ()))
        if channels and count and count not in (1, 1 if channels == "gray" else 3):
            yield (key, name), f"{count} numbers for {channels}", "Give one number for each channel, or one for all."
    if "mean" in block and "std" in block and len(block["mean"]) != len(block["std"]):
        yield (key, "std"), "mean and std have different lengths", "Give as many numbers in std as in mean."
    resize = block.get("resize", {})
    if "fill" in resize and resize["kind"] != "letterbox":
        yield (key, "resize", "fill"), f"'fill' with {resize['kind']}", "Only a letterbox has bars to fill."
    if resize.get("kind") == "resize_shorter" and len(set(resize["size"])) > 1:
        yield (key, "resize", "size"), "resize_shorter to two different sizes", "Give the same number twice."
    if "crop" in block and "size" in resize:
        inner, outer = block["crop"]["size"], resize["size"]
        if inner[0] > outer[0] or inner[1] > outer[1]:
            yield (
                (key, "crop", "size"),
                "the crop is larger than the resized picture",
                "Crop at most what resize gives.",
            )


def _sequences(block: dict[str, Any]) -> Found:
    """The lengths and axes of a language model's inputs."""
    base = PRESETS.get(block["name"])
    contract = base.sequence if base is not None else None
    if contract is None:
        for name in ("sequence_length", "cache_length", "axes"):
            if name in block:
                takers = ", ".join(known for known, preset in PRESETS.items() if preset.sequence is not None)
                yield ("preset", name), f"{name!r} with preset {block['name']}", f"Only {takers} know sequences."
        return
    words = {word for axes in block.get("axes", {}).values() for word in axes}
    for name, axis in (("sequence_length", "sequence"), ("cache_length", "cache")):
        length = block.get(name, getattr(contract, name))
        if length and not words & {axis, "total"}:
            hint = f"preset: {{name: {block['name']}, {name}: N, axes: {{INPUT: [batch, {axis}, ...]}}}}"
            hint += ", one word an axis" + ("; cache_length: 0 where there is none." if axis == "cache" else ".")
            place = ("preset", name) if name in block else ("preset",)
            yield place, f"no axis of an input is said to be the {axis} of {length}", hint
        elif not length and axis in words:
            yield ("preset", "axes"), f"an axis is said to be the {axis}, of no length", f"State {name}."


def _runtime_inputs(data: dict[str, Any]) -> Found:
    blocks: list[tuple[Place, dict[str, Any]]] = [(("runtime_input",), data.get("runtime_input", {}))]
    for platform, options in data.get("platform_options", {}).items():
        blocks.append((("platform_options", platform, "runtime_input"), options.get("runtime_input", {})))
    inputs = data["model"].get("inputs")
    for place, block in blocks:
        for name, entry in block.items():
            if "range" in entry and entry["type"] not in _YUV:
                hint = f"Only {' and '.join(_YUV)} have a colour range; remove it."
                yield (*place, name, "range"), f"'range' with type {entry['type']}", hint
            if inputs and name not in inputs:
                yield (*place, name), f"the model has no input {name!r}", did_you_mean(name, inputs)


def _calibration(data: dict[str, Any]) -> Found:
    block = data.get("calibration", {})
    if "samples" in data.get("quant_config", {}).get("load", {}):
        for name in ("data", "samples", "letterboxed"):
            if name in block:
                hint = "Remove it ('null' takes an inherited one away): the loaded set is used as it is."
                yield ("calibration", name), f"{name!r} with loaded samples, which are read instead", hint
    if "letterboxed" in block and not _letterboxes(data):
        hint = "Remove it: only a letterbox could put bars around pictures that have them already."
        yield ("calibration", "letterboxed"), "'letterboxed' without a letterbox", hint
    if block.get("data") == "random" and block.get("purpose", "release") != "smoke":
        hint = "Give real data; or say 'purpose: smoke' for a trial whose artifact is marked as not releasable."
        yield ("calibration", "data"), "random data for a release", hint


def _gates(data: dict[str, Any]) -> Found:
    """Boxes are matched where the metric knows boxes."""
    if (data.get("metric") or {}).get("name") == "coco_map":
        return
    for boundary, gate in (data.get("gates") or {}).items():
        if (gate or {}).get("boxes_matched") is not None:
            hint = (
                "Add 'metric: {name: coco_map, data: ...}', which says that the outputs are boxes, or remove the line."
            )
            yield ("gates", boundary, "boxes_matched"), "'boxes_matched' without metric coco_map", hint


def _letterboxes(data: dict[str, Any]) -> bool:
    """Whether the preset, as the recipe changes it, or the block of its own resizes into a letterbox."""
    preset = data.get("preset", data.get("preprocess", {}))
    block: dict[str, Any] = {"name": preset} if isinstance(preset, str) else preset
    base = PRESETS.get(block.get("name", ""))
    shipped = base.resize.kind if base is not None and base.resize is not None else None
    kind = block["resize"]["kind"] if "resize" in block else shipped
    return bool(kind == "letterbox")


def _options(data: dict[str, Any]) -> Found:
    if data.get("toolchain_options", {}).get("reference"):
        hint = "Remove it; what concerns a platform stands in platform_options."
        yield ("toolchain_options", "reference"), "the reference toolchain takes no options of its own", hint
    known = data.get("platforms") or [data.get("platform")]
    for name in data.get("platform_options", {}):
        if name not in known:
            yield ("platform_options", name), f"options for {name!r}, which is not built", did_you_mean(name, known)
