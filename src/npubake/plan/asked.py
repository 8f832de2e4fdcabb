"""Plan room: what quant_config asks of the whole model, as places; ``check`` refuses what no layer can heed. Pure.

Places alone, so that another value at one of them redoes no check. What is at its default asks for nothing, smoothing
apart, which a transformation brings along unless it is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from npubake.plan.subject import Subject
from npubake.recipe.quant_config import EquivalentTransformation, QuantConfig, differences

# Implied by the method and by the granularity: one mistake is one fault.
_IMPLIED = ("calibration.percentile", "weights.group_size")
_JUDGED_APART = "calibration.granularity"  # by what the platform takes
_SMOOTHING = "equivalent_transformation.smoothing"


def asked(subject: Subject) -> list[str]:
    """Places below ``quant_config`` at which something is asked for, in the order of the schema."""
    recipe = subject.target.recipe
    written = f"$.quant_config.{_SMOOTHING}" in recipe.positions
    return [*_blocks(recipe.quant_config), *_steps(recipe.quant_config, written), *_tuning(recipe.quant_config)]


def _blocks(config: QuantConfig) -> Iterator[str]:
    blocks = {"calibration": config.calibration, "weights": config.weights}
    places = [f"{block}.{name}" for block, stated in blocks.items() for name in differences(stated)]
    yield from (place for place in places if place not in (*_IMPLIED, _JUDGED_APART))
    if config.load is not None and config.load.scales is not None:
        yield "load.scales"


def _steps(config: QuantConfig, smoothing_written: bool) -> Iterator[str]:
    """Steps asked for; False and ``none`` keep something out, whatever there is."""
    transform = config.equivalent_transformation
    if isinstance(transform, EquivalentTransformation):
        yield "equivalent_transformation"
        if smoothing_written and transform.smoothing is not False:
            yield _SMOOTHING
    steps = {"search_weight_scale": config.search_weight_scale, "hessian": config.hessian, "mod": config.mod}
    yield from (name for name, block in steps.items() if block)
    if config.bias_correction not in (None, "none"):
        yield "bias_correction"
    if config.mod is not None:
        yield from (f"mod.learn.{name}" for name in config.mod.learn)


def _tuning(config: QuantConfig) -> Iterator[str]:
    if config.tuning.level == "best":
        yield "tuning.level"
    if config.tuning.max_int16:
        yield "tuning.max_int16"
    yield from (f"tuning.{name}" for name in ("judge", "held_out") if name in differences(config.tuning))
