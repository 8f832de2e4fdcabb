"""Qualcomm toolchain: a lane, an SoC and a calibration method in AIMET's words. Data; no numpy, no onnx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from npubake.errors import Fault, StageError
from npubake.quant.lanes import LANES

# AIMET 2.42.0 has a configuration for each of these HTP architectures (aimet_onnx/common/quantsim_config).
ARCHITECTURES = ("v66", "v68", "v69", "v73", "v75", "v79", "v81", "v85")
# Calibration method of a recipe -> AIMET's scheme. auto is AIMET's own default; tf_enhanced takes the range with the
# least squared error over the histogram, clipping weighed threefold (AIMET: quantization scheme "SQNR").
SCHEMES: Mapping[str, str] = {"auto": "min_max", "minmax": "min_max", "mse": "tf_enhanced"}
INTEGER_LANES = tuple(name for name, lane in LANES.items() if lane.general in ("int8", "int16"))
# Of AIMET's supergroups, between whose operators it puts no quantiser, those made of these operators alone compile to
# integers: the quantiser behind a Relu cuts as it does. In the others (PRelu, LeakyRelu, HardSwish, a Transpose within)
# the QNN provider 2.7.0 fuses nothing: float16, or a refusal on an SoC without it (compiled for soc 93).
FUSED_OPERATORS = frozenset(("Conv", "ConvTranspose", "Gemm", "Add", "BatchNormalization", "Relu", "Clip"))
# MatMul + Add of a constant become one FullyConnected; the passes that fuse decomposed normalisations do not compile.
FUSED_PASSES = ("MatmulAdd",)
# In the folder of the process of ``simulation``: the float model; what it writes: the QDQ model, AIMET's file, examples
# seen so far.
FLOAT = "model.onnx"
QUANTISED, ENCODINGS, PROGRESS = "quantised.onnx", "aimet.encodings", "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What AIMET is asked. weights, activations: its names of integer types; architecture: of the HTP, ``v73``."""

    weights: str
    activations: str
    scheme: str
    architecture: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def settings_of(params: Mapping[str, Any]) -> Settings:
    """From the stage's parameters: ``lane``, ``march`` (``v73``, or several: ``v73,v75``), ``method``, ``weight_bits``.

    Of several architectures the oldest: what it takes, the newer take. Raises StageError for what AIMET does not know.
    """
    lane, method = LANES[params["lane"]], params.get("method", "auto")
    architecture = oldest(params["march"])
    faults = []
    if lane.name not in INTEGER_LANES:
        hint = f"lanes of integers alone: {', '.join(INTEGER_LANES)}"
        faults.append(Fault(what=f"AIMET does not quantise in lane {lane.name}", where=lane.name, hint=hint))
    if method not in SCHEMES:
        hint = f"one of {', '.join(SCHEMES)}"
        faults.append(Fault(what=f"AIMET has no calibration method {method}", where=method, hint=hint))
    if architecture not in ARCHITECTURES:
        hint = f"it has {', '.join(ARCHITECTURES)}"
        faults.append(Fault(what=f"AIMET has no configuration for {architecture}", where=architecture, hint=hint))
    if faults:
        raise StageError(*faults)
    bits = params.get("weight_bits")
    return Settings(
        weights=f"int{bits}" if bits else lane.weights,
        activations=lane.general,
        scheme=SCHEMES[method],
        architecture=architecture,
    )


def oldest(march: str) -> str:
    """The oldest of HTP architectures that are written ``v73`` or ``v73,v75``."""
    return min((part.strip() for part in march.split(",")), key=lambda name: (len(name), name))


def fused_by_htp(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """AIMET's configuration of an architecture (its JSON) with the supergroups and passes that the compiler fuses too:
    what stands between others gets a quantiser.
    """
    groups = [group for group in configuration.get("supergroups", ()) if FUSED_OPERATORS.issuperset(group["op_list"])]
    passes = [name for name in configuration.get("supergroup_pass_list", ()) if name in FUSED_PASSES]
    return {**configuration, "supergroups": groups, "supergroup_pass_list": passes}


def fused_pairs(configuration: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Neighbouring operators between which a configuration wants no quantiser; a folded BatchNormalization is gone."""
    lists = [
        [name for name in group["op_list"] if name != "BatchNormalization"] for group in configuration["supergroups"]
    ]
    pairs = {pair for names in lists for pair in pairwise(names)}
    if "MatmulAdd" in configuration["supergroup_pass_list"]:
        pairs.add(("MatMul", "Add"))
    return sorted(pairs)
