"""Qualcomm toolchain: what of a recipe AIMET cannot heed, for ``check``. Parameters in, faults out; no numpy, no onnx.

AIMET's simulation quantises the optimised model as it is, whole, with one type of activations and one of weights. What
asks for another thing would be accepted and ignored, so it is refused at its place, all places at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npubake.errors import Fault
from npubake.graph.bit_policy import override_paths
from npubake.toolchains.qualcomm.aimet.settings import ARCHITECTURES, INTEGER_LANES, SCHEMES, oldest

_CONFIG, _QUANTISER = "$.quant_config", "$.toolchain_options.qualcomm.quantiser"
_OURS = "Remove it, or take npubake's own quantiser (quantiser: npubake), which does it."
# Places below quant_config that are heeded: the method by its value, the bits of weights, the file of samples.
_HEEDED = ("calibration.method", "weights.bits")


def aimet_faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    """Every place that AIMET cannot heed. Read of ``check``'s parameters: ``lane``, ``asked``, ``bits``,
    ``layer_overrides``, ``weights``, ``calibration: {method, granularity}`` and ``platform: {march}``.
    """
    lane, march = str(params.get("lane", "")), str(params.get("platform", {}).get("march", ""))
    if lane and lane not in INTEGER_LANES:
        hint = f"Take one of {', '.join(INTEGER_LANES)}, or 'quantiser: npubake'."
        yield Fault(what=f"AIMET does not quantise in lane {lane}", path=_QUANTISER, hint=hint)
    if march and oldest(march) not in ARCHITECTURES:
        hint = f"It has {', '.join(ARCHITECTURES)}; take 'quantiser: npubake'."
        yield Fault(what=f"AIMET has no configuration for HTP {oldest(march)}", path=_QUANTISER, hint=hint)
    yield from _of_all(params)
    overrides = params.get("layer_overrides", ())
    for place, override in zip(override_paths(overrides), overrides, strict=True):
        for key in sorted(override.get("set", {})):
            yield _fault(f"$.{place}.set.{key}", f"'{key}' of single layers")


def _of_all(params: Mapping[str, Any]) -> Iterator[Fault]:
    """What is asked of the whole model."""
    calibration, weights = params.get("calibration", {}), params.get("weights", {})
    method = str(calibration.get("method", "auto"))
    if method not in SCHEMES:
        hint = f"Take one of {', '.join(SCHEMES)}, or 'quantiser: npubake'."
        yield Fault(what=f"AIMET has no method {method}", path=f"{_CONFIG}.calibration.method", hint=hint)
    if calibration.get("granularity", "per_tensor") != "per_tensor":
        yield _fault(f"{_CONFIG}.calibration.granularity", "other granularities of activations")
    for place in params.get("asked", ()):
        if place not in _HEEDED:
            yield _fault(f"{_CONFIG}.{place}", f"'{place}'")
    if "group_size" in weights and "weights.granularity" not in params.get("asked", ()):
        yield _fault(f"{_CONFIG}.weights.group_size", "weights by groups")
    for kind, entries in params.get("bits", {}).items():
        for name in entries:
            yield _fault(f"{_CONFIG}.bits.{kind}.{name}", f"precision by {kind}")


def _fault(path: str, what: str) -> Fault:
    return Fault(what=f"AIMET's quantiser does not heed {what}", path=path, hint=_OURS)
