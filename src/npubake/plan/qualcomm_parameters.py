"""Plan room: what the stages of the qualcomm toolchain read of a recipe and a platform, as JSON. Pure."""

from __future__ import annotations

from typing import Any

from npubake.plan import parameters
from npubake.plan.parameters import stated
from npubake.plan.subject import Subject
from npubake.toolchains.qualcomm.facts import DEFAULT_OPTIMIZATION, FLOAT_LANES

EMULATED_EXAMPLES = 8  # 5 to 16 s each for a 640 x 640 detector in the emulator
_PLATFORM_FACTS = ("soc_model", "march", "vtcm_bytes")


def options(subject: Subject) -> dict[str, Any]:
    """What the recipe says under ``toolchain_options.qualcomm``."""
    return dict(subject.target.recipe.toolchain_options.get("qualcomm", {}))


def in_float(subject: Subject) -> bool:
    """Whether the lane quantises nothing: the artifact is the float model's."""
    return subject.target.lane.value in FLOAT_LANES


def has_float(subject: Subject) -> bool:
    """Whether the SoC computes in float16, so that a float artifact can be compared."""
    return "float16" in subject.target.platform.precisions.value


def by_aimet(subject: Subject) -> bool:
    """Whether AIMET quantises, in place of our own quantiser."""
    return bool(options(subject).get("quantiser", "npubake") == "aimet")


def io(subject: Subject) -> str:
    """What the binary takes and gives: ``quantized`` integers (the default of integer lanes) or ``float``."""
    return str(options(subject).get("io", "float" if in_float(subject) else "quantized"))


def of_check(subject: Subject) -> dict[str, Any]:
    """Of ``check``: what every toolchain's check reads, and what this one's refusals read besides. Only AIMET is asked
    about the method: another one checks nothing anew.
    """
    common, asked = parameters.of_check(subject), options(subject)
    facts = subject.target.platform.values("lanes", "march")
    found = {**common, "toolchain": "qualcomm", "platform": {**common["platform"], **facts}}
    if by_aimet(subject):
        method = stated(method=(subject.target.recipe.quant_config.calibration.method, "auto"))
        found |= {"quantiser": "aimet", **stated(calibration={**common.get("calibration", {}), **method})}
    road = (asked.get("road", "wheel"), "wheel")
    return {**found, **stated(cpu_nodes=list(asked.get("cpu_nodes", ())) or None, road=road)}


def of_probe(subject: Subject) -> dict[str, Any]:
    """Of ``probe``: all that decides the form of the graph, and the SoC; no range, since it assumes them."""
    decided = parameters.of_calibrate(subject)
    kept = ("lane", "weights", "bits", "layer_overrides", "quantisers")
    return {
        **{name: decided[name] for name in kept if name in decided},
        "platform": _platform(subject, "precisions", "lanes"),
        **stated(options=_compiler_options(subject), io=io(subject), runtime_input=_runtime(subject)),
    }


def of_adapt(subject: Subject) -> dict[str, Any]:
    """Of ``adapt``: no SoC, so that platforms share it; but v68, which takes fewer forms. Of the compiler's options the
    one that decides which of its fusions go wrong.
    """
    march = str(subject.target.platform.march.value)
    edges = stated(io=io(subject), runtime_input=_runtime(subject), march=march if "v68" in march.split(",") else None)
    chosen = stated(optimization=(options(subject).get("optimization"), DEFAULT_OPTIMIZATION))
    return {"lane": subject.target.lane.value, **edges, **stated(options=chosen)}


def of_quantise_aimet(subject: Subject) -> dict[str, Any]:
    """Of ``quantise_aimet``: of the SoC its architecture alone, which AIMET has a configuration for."""
    config = subject.target.recipe.quant_config
    march = str(subject.target.platform.march.value)
    return {
        "lane": subject.target.lane.value,
        "march": march,
        **stated(method=(config.calibration.method, "auto"), weight_bits=config.weights.bits),
    }


def of_float_adapt() -> dict[str, Any]:
    """Of ``adapt`` for the float artifact that the float gate is measured on."""
    return {"lane": "fp16", "io": "float"}


def socs(subject: Subject) -> list[dict[str, Any]]:
    """The platform's facts for each SoC that its binary is for; several where it is of the form ``a+b``."""
    whole = _platform(subject)
    names, models, arches = (whole["name"].split("+"), whole["soc_model"].split(","), whole["march"].split(","))
    return [
        {**whole, "name": name, "soc_model": model, "march": arch}
        for name, model, arch in zip(names, models, arches, strict=True)
    ]


def of_compile(subject: Subject, *, floating: bool = False, soc: dict[str, Any] | None = None) -> dict[str, Any]:
    """Of ``compile_htp``. floating: of the float artifact that the float gate is measured on; soc: one of ``socs``
    alone, in place of all.
    """
    common = parameters.of_compile(subject)
    kept = () if floating else ("sdk", "preset", "layouts")
    return {
        "platform": soc or _platform(subject),
        **stated(options=_compiler_options(subject), io="float" if floating else io(subject)),
        **{name: common[name] for name in kept if name in common},
    }


def of_emulate(subject: Subject, boundary: str) -> dict[str, Any]:
    """Of ``emulate``."""
    count = 2 if subject.fast else options(subject).get("emulated_examples", EMULATED_EXAMPLES)
    metric = subject.target.recipe.metric
    return {"boundary": boundary, "count": count, **stated(metric=metric.name if metric else None)}


def _platform(subject: Subject, *more: str) -> dict[str, Any]:
    platform = subject.target.platform
    return {"name": platform.name, **platform.values(*_PLATFORM_FACTS, *more)}


def _compiler_options(subject: Subject) -> dict[str, Any]:
    asked = options(subject)
    return stated(
        optimization=(asked.get("optimization"), DEFAULT_OPTIMIZATION),
        vtcm_mb=asked.get("vtcm_mb"),
        cpu_nodes=list(asked.get("cpu_nodes", ())) or None,
    )


def _runtime(subject: Subject) -> dict[str, Any]:
    entries: dict[str, Any] = parameters.of_quantize(subject).get("runtime_input", {})
    return entries
