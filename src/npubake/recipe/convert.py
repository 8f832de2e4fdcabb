"""Recipe room: a merged, schema-valid tree -> Recipe. Paths are resolved against the file each stands in. No I/O."""

from __future__ import annotations

import os.path
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from npubake.document.tree import Node
from npubake.document.tree import Path as Place
from npubake.recipe.presets import PRESETS, Preprocessing, Resize
from npubake.recipe.quant_config import (
    LANE_SPELLINGS,
    BitPolicy,
    EquivalentTransformation,
    Hessian,
    LayerMatch,
    LayerOverride,
    LayerSettings,
    Load,
    Mod,
    QuantConfig,
    RangeChoice,
    ScaleSearch,
    Stored,
    Subgraph,
    Tuning,
    WeightChoice,
)
from npubake.recipe.recipe import (
    DEFAULT_GATES,
    BoardSoftware,
    Boundary,
    Calibration,
    Gate,
    Licence,
    Metric,
    ModelInput,
    ModelSource,
    PlatformOptions,
    Remove,
    RuntimeInput,
)

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
_SMOOTH = ("smoothing", True)  # true: the default share
DIGEST = re.compile(r"[0-9a-f]{64}")  # a sha256 stands for itself, anything else is a path


def path_at(root: Node, place: Place) -> Path | None:
    """The path written at ``place``, relative to the file it stands in; None where nothing is written."""
    node = root
    for step in place:
        if not isinstance(node.value, dict) or step not in node.value:
            return None
        node = node.value[str(step)]
    if not isinstance(node.value, str):
        return None
    return Path(os.path.normpath(Path(node.mark.file).parent / node.value))


def bytes_of(size: int | str | None) -> int | None:
    """``6MiB`` -> 6291456; a number is bytes already. The text has passed the schema's pattern."""
    if size is None or isinstance(size, int):
        return size
    match = re.fullmatch(r"(\d+) ?(B|KiB|MiB)", size)
    assert match is not None
    return int(match[1]) * _UNITS[match[2]]


def _known(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """The entries of ``data`` that are fields of ``kind`` under the same name."""
    names = {entry.name for entry in fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def model_source(root: Node, data: dict[str, Any]) -> ModelSource:
    path = path_at(root, ("model", "path"))
    assert path is not None
    inputs = {
        name: ModelInput(**{**entry, **({"shape": tuple(entry["shape"])} if "shape" in entry else {})})
        for name, entry in data.get("inputs", {}).items()
    }
    return ModelSource(
        **{
            **_known(ModelSource, data),
            "path": path,
            "inputs": inputs,
            "baseline": path_at(root, ("model", "baseline")),
        }
    )


def preprocessing(request: str | dict[str, Any], custom: bool) -> Preprocessing:
    """Expand a preset's name, a preset with differences, or a recipe's own block (``custom``)."""
    if isinstance(request, str):
        return PRESETS[request]
    base = Preprocessing(name="custom") if custom else PRESETS[request["name"]]
    changes: dict[str, Any] = {name: request[name] for name in ("channels", "layout") if name in request}
    if "channels" in request:
        changes.update(decode="pillow", input_dtype="uint8")
    if "resize" in request:
        changes["resize"] = _resize(request["resize"])
    if "crop" in request:
        changes["crop"] = tuple(request["crop"]["size"])
    if "scale" in request:
        changes["divide_by"] = request["scale"]["divide_by"]
    divide = 255.0 if request.get("mean_domain") == "0-255" else 1.0
    for name in ("mean", "std"):
        if name in request:
            changes[name] = tuple(float(value) / divide for value in request[name])
    if base.sequence is not None:
        lengths = {name: request[name] for name in ("sequence_length", "cache_length") if name in request}
        axes = {name: tuple(words) for name, words in request.get("axes", {}).items()}
        changes["sequence"] = replace(base.sequence, axes=axes, **lengths)
    return replace(base, **changes)


def _resize(data: dict[str, Any]) -> Resize:
    fill = data.get("fill", 114) if data["kind"] == "letterbox" else None
    return Resize(
        kind=data["kind"], size=tuple(data["size"]), interpolation=data.get("interpolation", "bilinear"), fill=fill
    )


def runtime_inputs(data: dict[str, Any]) -> dict[str, RuntimeInput]:
    return {name: RuntimeInput(**entry) for name, entry in data.items()}


def calibration(root: Node, data: dict[str, Any]) -> Calibration:
    path = None if data.get("data") == "random" else path_at(root, ("calibration", "data"))
    return Calibration(**{**_known(Calibration, data), "data": path})


def quant_config(root: Node, data: dict[str, Any]) -> QuantConfig:
    return QuantConfig(
        lane=LANE_SPELLINGS[data.get("lane", "platform")],
        calibration=RangeChoice(**data.get("calibration", {})),
        weights=WeightChoice(**data.get("weights", {})),
        bits=BitPolicy(**data.get("bits", {})),
        equivalent_transformation=_transformation(data.get("equivalent_transformation")),
        search_weight_scale=_step(ScaleSearch, data.get("search_weight_scale")),
        hessian=_step(Hessian, data.get("hessian")),
        mod=_mod(data.get("mod", False)),
        tuning=Tuning(**data.get("tuning", {})),
        load=_load(root, data["load"]) if "load" in data else None,
        **{name: data[name] for name in ("bias_correction", "save_sample") if name in data},
    )


def _transformation(data: dict[str, Any] | bool | None) -> EquivalentTransformation | Literal[False] | None:
    if data is None or data is False:
        return data
    if data is True:
        return EquivalentTransformation()
    return EquivalentTransformation(**{name: value for name, value in data.items() if (name, value) != _SMOOTH})


_Step = TypeVar("_Step")


def _step(kind: type[_Step], data: dict[str, Any] | bool | None) -> _Step | Literal[False] | None:
    """A step's block: true is the defaults, false stays false, nothing stays nothing."""
    if data is None or data is False:
        return data
    return kind(**({} if data is True else data))


def _mod(data: dict[str, Any] | bool) -> Mod | None:
    """No level of ``tuning`` tries it unasked: false is the same as nothing."""
    if data is False:
        return None
    if data is True:
        return Mod()
    lists: dict[str, Any] = {name: tuple(data[name]) for name in ("layers", "learn") if name in data}
    return Mod(**{**data, **lists})


def _load(root: Node, data: dict[str, Any]) -> Load:
    stored: dict[str, Any] = {name: _stored(root, name, data[name]) for name in ("samples", "scales") if name in data}
    return Load(**{**data, **stored})


def _stored(root: Node, name: str, entry: str | dict[str, str]) -> Stored:
    place = ("quant_config", "load", name)
    if not isinstance(entry, str):
        return Stored(path=path_at(root, (*place, "path")), digest=entry["digest"])
    return Stored(digest=entry) if DIGEST.fullmatch(entry) else Stored(path=path_at(root, place))


def layer_override(data: dict[str, Any]) -> LayerOverride:
    match = {name: tuple(values) for name, values in data["match"].items() if name != "subgraph"}
    ends = data["match"].get("subgraph")
    subgraph = Subgraph(start=tuple(ends.get("from", ())), end=tuple(ends.get("to", ()))) if ends else None
    return LayerOverride(match=LayerMatch(**match, subgraph=subgraph), set=LayerSettings(**data["set"]))


def remove(data: dict[str, Any]) -> Remove:
    return Remove(**{name: tuple(values) for name, values in data.items()})


def gates(data: dict[str, Any]) -> dict[Boundary, Gate]:
    """Stated thresholds over the defaults; null takes a threshold away."""
    return {boundary: replace(gate, **data.get(boundary, {})) for boundary, gate in DEFAULT_GATES.items()}


def metric(root: Node, data: dict[str, Any] | None) -> Metric | None:
    if data is None:
        return None
    path = path_at(root, ("metric", "data"))
    assert path is not None
    return Metric(**{**data, "data": path, "labels": path_at(root, ("metric", "labels"))})


def platform_options(data: dict[str, Any]) -> PlatformOptions:
    return PlatformOptions(
        max_l2m_bytes=bytes_of(data.get("max_l2m_size")),
        runtime_inputs=runtime_inputs(data.get("runtime_input", {})),
        sdk=BoardSoftware(**data.get("sdk", {})),
        layer_overrides=tuple(layer_override(entry) for entry in data.get("layer_overrides", [])),
        **{
            name: value for name, value in data.items() if name in ("input_no_padding", "output_no_padding", "core_num")
        },
    )


def licence(data: dict[str, Any]) -> Licence:
    return Licence(**data)
