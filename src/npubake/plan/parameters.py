"""Plan room: what each stage reads of a recipe, a preset and a platform, as JSON (docs/architecture.md). Pure.

A parameter reaches a task only if its stage reads it, and only if it differs from its default: that is what lets
targets share work, and lets a change redo no more than it must.
"""

from __future__ import annotations

from typing import Any

from npubake.document.tree import json_path
from npubake.plan.asked import asked
from npubake.plan.subject import FAST_EXAMPLES, Subject
from npubake.recipe.quant_config import INTEGER_BITS, TUNED_STEPS, EquivalentTransformation, differences
from npubake.recipe.recipe import BASELINE_COSINE, Boundary, Recipe, RuntimeInput

_CHECKED_FACTS = ("precisions", "activation_granularities", "max_l2m_bytes", "tail")
# Where quantisers stand, of toolchains whose kernels keep nothing unrounded.
_QUANTISERS = {"qualcomm": "everywhere"}
_PLATFORM_FACTS = ("soc", "march", "nv12_stride_bytes", "tensor_unit_bytes", "tail", "max_l2m_bytes")


def of_import(subject: Subject) -> dict[str, Any]:
    """Of ``import``."""
    model = subject.target.recipe.model
    return stated(
        inputs={name: {"shape": list(entry.shape)} for name, entry in model.inputs.items() if entry.shape},
        baseline_cosine=(model.baseline_cosine, BASELINE_COSINE),
    )


def of_check(subject: Subject) -> dict[str, Any]:
    """Of ``check`` (``stages/check.py`` says what each is)."""
    recipe, target = subject.target.recipe, subject.target
    options, config, sequence = target.options, recipe.quant_config, subject.preprocessing.sequence
    return stated(
        lane=target.lane.value,
        platform={"name": target.platform.name, **target.platform.values(*_CHECKED_FACTS)},
        options=stated(max_l2m_bytes=options.max_l2m_bytes, output_no_padding=(options.output_no_padding, False)),
        inputs={name: {"layout": entry.layout} for name, entry in recipe.model.inputs.items()},
        sequence=sequence.expanded() if sequence else None,
        runtime_input={
            name: stated(type=entry.type, range=entry.range) for name, entry in target.runtime_inputs.items()
        },
        calibration=stated(granularity=(config.calibration.granularity, "per_tensor")),
        weights=differences(config.weights),
        asked=asked(subject) or None,
        bits=differences(config.bits),
        mod=stated(layers=list(config.mod.layers) or None) if config.mod else None,
        layer_overrides=_overrides(subject) or None,
        remove=_removed(subject),
        metric={"name": recipe.metric.name} if recipe.metric else None,
        min_samples=FAST_EXAMPLES if subject.fast else recipe.calibration.samples,
        purpose=(recipe.calibration.purpose, "release"),
    )


def of_samples(subject: Subject) -> dict[str, Any]:
    """Of ``samples`` and ``measure_inputs``; how many examples is the caller's."""
    recipe = subject.target.recipe
    return stated(
        preset=subject.preprocessing.expanded(),
        inputs={name: {"layout": layout} for name, layout in _layouts(subject).items()},
        purpose=(recipe.calibration.purpose, "release"),
        letterboxed=recipe.calibration.letterboxed,
    )


def of_calibrate(subject: Subject) -> dict[str, Any]:
    """Of ``calibrate``."""
    config = subject.target.recipe.quant_config
    span = subject.preprocessing.input_range()
    channels = {"gray": 1, None: None}.get(subject.preprocessing.channels, 3)
    return stated(
        lane=subject.target.lane.value,
        calibration=differences(config.calibration),
        weights=differences(config.weights),
        bits=differences(config.bits),
        layer_overrides=_overrides(subject) or None,
        missing=(config.load.missing, "refuse") if config.load else None,
        quantisers=_QUANTISERS.get(subject.target.toolchain),
        image_inputs=None
        if span is None
        else {
            "range": list(span),
            "channels": channels,
            "layout": subject.preprocessing.layout,
            **stated(layouts=_layouts(subject)),
        },
    )


def transforms(subject: Subject) -> bool:
    """Whether the road has a ``transform``: where it is asked for, and where tuning tries it unasked: at level best,
    and at level default for activations of 8 bits. ``false`` in the recipe forbids it.
    """
    config = subject.target.recipe.quant_config
    by_layer = any(entry["set"].get("equivalent_transformation") for entry in _overrides(subject))
    if config.load is not None and config.load.scales is not None:
        return False  # the scales are of the graph as it is
    narrow = _activation_bits(subject) == 8
    tried = config.tuning.level == "best" or (config.tuning.level == "default" and narrow)
    asked = config.equivalent_transformation
    return by_layer or (tried if asked is None else asked is not False)


def of_transform(subject: Subject) -> dict[str, Any]:
    """Of ``transform``: the transformations asked for, and the overrides that keep layers out of them, and no others:
    a precision that is overridden makes no new float graph.
    """
    asked = subject.target.recipe.quant_config.equivalent_transformation
    key = "equivalent_transformation"
    kept_out = [
        {"match": entry["match"], "set": {key: entry["set"][key]}}
        for entry in _overrides(subject)
        if key in entry["set"]
    ]
    return {
        **(differences(asked) if asked else {}),
        **stated(layer_overrides=kept_out or None, activation_bits=(_activation_bits(subject) or 8, 8)),
    }


def tunes(subject: Subject) -> bool:
    """Whether the road has a ``tune``: unless its level is none and no step is asked for, or nothing is in integers."""
    config = subject.target.recipe.quant_config
    asked = (config.search_weight_scale, config.hessian, config.mod, config.bias_correction not in (None, "none"))
    by_layer = (
        wanted not in (False, "none")
        for entry in _overrides(subject)
        for step, wanted in entry["set"].items()
        if step in TUNED_STEPS
    )
    tried = (config.tuning.level != "none" and _in_integers(subject)) or transforms(subject)
    return tried or any(asked) or any(by_layer)


def of_tune(subject: Subject) -> dict[str, Any]:
    """Of ``tune``: all that calibrate reads, the level, and the steps asked for: a block, or False where forbidden."""
    config = subject.target.recipe.quant_config
    steps = {"search_weight_scale": config.search_weight_scale, "hessian": config.hessian, "mod": config.mod}
    tuning = differences(config.tuning)
    if "int16" not in subject.target.platform.precisions.value:
        tuning["max_int16"] = 0
    return {
        **of_calibrate(subject),
        **stated(
            tuning=tuning,
            bias_correction=config.bias_correction,
            equivalent_transformation=(isinstance(config.equivalent_transformation, EquivalentTransformation), False),
        ),
        **{name: step and differences(step) for name, step in steps.items() if step is not None},
    }


def of_quantize(subject: Subject) -> dict[str, Any]:
    """Of ``quantize``."""
    preset = subject.preprocessing
    linear = stated(
        channels=(preset.channels, "rgb"),
        mean=None if preset.mean is None else list(preset.mean),
        std=None if preset.std is None else list(preset.std),
    )
    if preset.divide_by != 255:
        linear["divide_by"] = preset.divide_by
    runtime = {
        name: {"type": entry.type, **stated(range=(entry.range, "full")), **linear}
        for name, entry in _runtime(subject).items()
    }
    return stated(
        tail=(subject.target.platform.tail.value, "float32"),
        runtime_input=runtime,
        remove=_removed(subject),
    )


def of_compile(subject: Subject) -> dict[str, Any]:
    """Of ``compile``."""
    platform, options = subject.target.platform, subject.target.options
    return stated(
        platform={"name": platform.name, **platform.values(*_PLATFORM_FACTS)},
        options=stated(
            max_l2m_bytes=options.max_l2m_bytes,
            input_no_padding=(options.input_no_padding, False),
            output_no_padding=(options.output_no_padding, False),
            core_num=(options.core_num, 1),
        ),
        sdk=stated(version=options.sdk.version, bsp=options.sdk.bsp, runtime_package=options.sdk.runtime),
        preset=subject.preprocessing.expanded() if subject.preprocessing.decode else None,
        layouts=_layouts(subject) if subject.preprocessing.decode else None,
    )


def stated(**values: Any) -> dict[str, Any]:
    """The values that say something: None, empty ones, and ``(value, default)`` pairs at their default are left out."""
    pairs = {name: value if isinstance(value, tuple) else (value, None) for name, value in values.items()}
    return {name: value for name, (value, default) in pairs.items() if value != default and value not in (None, {}, "")}


def thresholds(recipe: Recipe, boundary: Boundary) -> dict[str, float]:
    """The figures that the gate judges; matched boxes of a detector alone, whose metric knows boxes."""
    detector = recipe.metric is not None and recipe.metric.name == "coco_map"
    names = ("cosine", "sqnr_db", "boxes_matched") if detector else ("cosine", "sqnr_db")
    return {name: value for name in names if (value := getattr(recipe.gates[boundary], name)) is not None}


def _layouts(subject: Subject) -> dict[str, str]:
    """Layouts that the recipe states in place of the preset's."""
    inputs = subject.target.recipe.model.inputs
    return {name: entry.layout for name, entry in inputs.items() if entry.layout != "NCHW"}


def _activation_bits(subject: Subject) -> int:
    """Of the lane's integers; 0 where it has none."""
    return INTEGER_BITS.get(subject.target.lane.value, (0, 0))[0]


def _in_integers(subject: Subject) -> bool:
    """Whether lane, bits or an override has anything computed in integers."""
    bits = subject.target.recipe.quant_config.bits
    asked = {*bits.op_types.values(), *bits.roles.values()}
    asked.update(entry["set"].get("activation") for entry in _overrides(subject))
    return _activation_bits(subject) > 0 or not asked.isdisjoint(("int8", "int16"))


def _overrides(subject: Subject) -> list[dict[str, Any]]:
    """The recipe's, and behind them the platform's own, each of these with its place."""
    options, block = subject.target.options, json_path(("platform_options", subject.target.platform.name))
    own = [
        {**override.as_params(), "path": f"{block[2:]}.layer_overrides[{index}]"}
        for index, override in enumerate(options.layer_overrides)
    ]
    return [*(override.as_params() for override in subject.target.recipe.layer_overrides), *own]


def _runtime(subject: Subject) -> dict[str, RuntimeInput]:
    return {name: entry for name, entry in subject.target.runtime_inputs.items() if entry.type != "featuremap"}


def _removed(subject: Subject) -> dict[str, Any]:
    remove = subject.target.recipe.remove
    return stated(inputs=list(remove.inputs) or None, outputs=list(remove.outputs) or None)
