"""Recipe room: rules between the keys of quant_config and layer_overrides. Plain data in; place, what, hint out.

They run on what the schema found valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from npubake.document.tree import Path as Place
from npubake.recipe.quant_config import INTEGER_BITS, LANE_SPELLINGS, STEPS, EquivalentTransformation, Load, QuantConfig

Found = Iterator[tuple[Place, str, str]]
Overrides = dict[Place, dict[str, Any]]  # by their place
_QUANT = "quant_config"
_PLAIN = QuantConfig()  # what a recipe does not say
LEAST_JUDGED = 4  # examples; a test holds it to tuning/splitting.py


def quant_rules(data: dict[str, Any]) -> Found:
    """Every broken rule of the two blocks."""
    config, overrides = data.get(_QUANT, {}), _placed(data)
    for rule in (_ranges, _groups, _overrides):
        yield from rule(config, overrides)
    yield from _transformation(config)
    yield from _tuning(config, asks=_asks(config, overrides), samples=_samples(data))
    yield from _searching(config, overrides)
    yield from _learning(config, overrides)
    yield from _load(config, overrides)


def _placed(data: dict[str, Any]) -> Overrides:
    """All layer overrides: the recipe's, and those of single platforms."""
    found: Overrides = {
        ("layer_overrides", index): entry for index, entry in enumerate(data.get("layer_overrides", []))
    }
    for name, options in data.get("platform_options", {}).items():
        for index, entry in enumerate(options.get("layer_overrides", [])):
            found["platform_options", name, "layer_overrides", index] = entry
    return found


def _ranges(config: dict[str, Any], overrides: Overrides) -> Found:
    whole = config.get("calibration", {}).get("method", _PLAIN.calibration.method)
    blocks: list[tuple[Place, dict[str, Any]]] = [((_QUANT, "calibration"), config.get("calibration", {}))]
    blocks += [((*place, "set"), entry["set"]) for place, entry in overrides.items()]
    for place, block in blocks:
        if "percentile" in block and block.get("method", whole) != "percentile":
            yield (*place, "percentile"), "'percentile' without method percentile", "Add 'method: percentile'."


def _groups(config: dict[str, Any], overrides: Overrides) -> Found:
    """Groups of input channels: only with granularity per_group, which 16-bit weights do not have."""
    weights = config.get("weights", {})
    whole = weights.get("granularity", _PLAIN.weights.granularity)
    lane = LANE_SPELLINGS[config.get("lane", _PLAIN.lane)]
    bits = weights.get("bits", INTEGER_BITS.get(lane, (8, 8))[1])
    blocks: list[tuple[Place, dict[str, Any], int]] = [((_QUANT, "weights"), weights, bits)]
    for at, entry in overrides.items():
        asked = entry["set"].get("weights")
        blocks.append(((*at, "set"), entry["set"], int(asked[3:]) if asked else bits))
    for place, block, width in blocks:
        chosen = block.get("granularity", whole)
        if "group_size" in block and chosen != "per_group":
            yield (*place, "group_size"), f"'group_size' with granularity {chosen}", "Add 'granularity: per_group'."
        if block.get("granularity") == "per_group" and width == 16:
            hint = "Take per_channel: 16 bits a channel are finer than groups of them; or ask for 4 or 8 bits."
            yield (*place, "granularity"), "per_group with 16-bit weights", hint


def _overrides(config: dict[str, Any], overrides: Overrides) -> Found:
    for at, entry in overrides.items():
        whole = config.get("equivalent_transformation")
        forbidden = whole is False or (whole is None and config.get("tuning", {}).get("level") == "none")
        if "equivalent_transformation" in entry["set"] and forbidden:
            yield (
                (*at, "set", "equivalent_transformation"),
                "no transformation is asked for that a layer could be kept out of",
                "Remove it.",
            )


def _transformation(config: dict[str, Any]) -> Found:
    block = config.get("equivalent_transformation")
    plain = asdict(EquivalentTransformation())
    if isinstance(block, dict) and all(block.get(name, default) is False for name, default in plain.items()):
        hint = "Remove the block, or one of its lines."
        yield (_QUANT, "equivalent_transformation"), "every transformation is switched off", hint


def _asks(config: dict[str, Any], overrides: Overrides) -> bool:
    """Whether a step is asked for by name, of the whole model or of a layer."""
    stated = [config, *(entry["set"] for entry in overrides.values())]
    return any(block.get(name) not in (None, False, "none") for block in stated for name in STEPS)


def _samples(data: dict[str, Any]) -> int | None:
    """How many examples there are to judge on, where the recipe says so."""
    samples: int | None = data.get("calibration", {}).get("samples")
    return None if "samples" in data.get(_QUANT, {}).get("load", {}) else samples


def _tuning(config: dict[str, Any], *, asks: bool, samples: int | None) -> Found:
    block = config.get("tuning", {})
    level, judge = block.get("level", _PLAIN.tuning.level), block.get("judge", _PLAIN.tuning.judge)
    if level == "none" and block.get("max_int16"):
        yield (_QUANT, "tuning", "max_int16"), "'max_int16' with level none", "Only a level lifts activations to int16."
    if not judge and "held_out" in block:
        hint = "Nothing is held out where nothing is judged: remove one of the two."
        yield (_QUANT, "tuning", "held_out"), "'held_out' with 'judge: false'", hint
    if level == "none" and not asks:
        for name in ("judge", "held_out"):
            if name in block:
                hint = "Remove it, or ask for a step (hessian, search_weight_scale, ...)."
                yield (_QUANT, "tuning", name), f"{name!r} with level none and no step asked for", hint
    if level != "none" and not judge:
        for name in ("level", "max_int16"):
            if block.get(name):
                hint = "Without a judge nothing is tried unasked: ask for steps, and say 'level: none'."
                yield (_QUANT, "tuning", name), f"{name!r} with 'judge: false'", hint
        if not asks and "level" not in block:
            hint = "Say 'level: none' if nothing shall be tried, or ask for a step (hessian, search_weight_scale, ...)."
            yield (_QUANT, "tuning", "judge"), "'judge: false' with no step asked for", hint
    if level == "best" and judge and samples is not None and samples < LEAST_JUDGED:
        hint = f"Give at least {LEAST_JUDGED}; or say 'level: none'."
        yield (_QUANT, "tuning", "level"), f"level best with {samples} examples, too few to judge on", hint


def _searching(config: dict[str, Any], overrides: Overrides) -> Found:
    """The search is one of scales alone: weights with zero points are left out of it."""
    if config.get("weights", {}).get("symmetric", _PLAIN.weights.symmetric):
        return
    hint = "Remove it, or say 'weights: {symmetric: true}'."
    if config.get("search_weight_scale") not in (None, False):
        yield (_QUANT, "search_weight_scale"), "a search of weight scales beside zero points of weights", hint
    for at, entry in overrides.items():
        if entry["set"].get("search_weight_scale"):
            place = (*at, "set", "search_weight_scale")
            yield place, "a search of weight scales beside zero points of weights", hint


def _learning(config: dict[str, Any], overrides: Overrides) -> Found:
    """What ``mod`` is to learn and the rest of the recipe leaves nothing of, in any layer."""
    block = config.get("mod")
    if not isinstance(block, dict):
        return
    weights, ranges = config.get("weights", {}), config.get("calibration", {})
    granularities = {
        weights.get("granularity", _PLAIN.weights.granularity),
        *(entry["set"].get("granularity") for entry in overrides.values()),
    }
    why = {}
    asymmetric = ranges.get("asymmetric", _PLAIN.calibration.asymmetric)
    if not asymmetric and not any(entry["set"].get("asymmetric") for entry in overrides.values()):
        why["zero_point"] = "'asymmetric: false' leaves no zero point"
    if not weights.get("symmetric", _PLAIN.weights.symmetric):
        why["weight_scale"] = "scales of weights with zero points are not learned"
    elif "per_channel" not in granularities:
        why["weight_scale"] = f"scales {weights['granularity']} are not learned"
    if "scales" in config.get("load", {}):
        why |= dict.fromkeys(("activation_scale", "zero_point"), "loaded scales stay as they are")
    for index, name in enumerate(block.get("learn", ())):
        if name in why:
            yield (
                (_QUANT, "mod", "learn", index),
                why[name],
                f"Take {name} out of learn; rounding can be learned always.",
            )


def _load(config: dict[str, Any], overrides: Overrides) -> Found:
    block = config.get("load", {})
    place: Place = (_QUANT, "load")
    if "samples" in block and config.get("save_sample"):
        hint = "It would save the file that it loads: remove one of the two."
        yield (_QUANT, "save_sample"), "'save_sample' with loaded samples", hint
    if "scales" not in block:
        if "missing" in block:
            yield (*place, "missing"), "'missing' without loaded scales", "Add 'scales: FILE', or remove it."
        return
    if "equivalent_transformation" in config:
        hint = "Take equivalent_transformation away: the scales belong to the graph that they were made for."
        yield (*place, "scales"), "loaded scales of a graph that is transformed anew", hint
    if config.get("tuning", {}).get("level", _PLAIN.tuning.level) != "none":
        hint = "Add 'tuning: {level: none}' to quant_config."
        yield (*place, "scales"), "tuning would move the loaded scales", hint
    if block.get("missing", Load().missing) == "refuse":
        hint = "Remove it, or say 'missing: calibrate' for tensors that the file does not name."
        blocks: list[tuple[Place, dict[str, Any]]] = [((_QUANT, "calibration"), config.get("calibration", {}))]
        for own, entry in overrides.items():
            ranges = {
                name: entry["set"][name] for name in ("method", "percentile", "asymmetric") if name in entry["set"]
            }
            blocks.append(((*own, "set"), ranges))
        for at, stated in blocks:
            for name in stated:
                yield (*at, name), f"{name!r} with loaded scales, which leave nothing to calibrate", hint
