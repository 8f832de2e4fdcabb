"""Qualcomm toolchain: what its stages read of a platform and a recipe, parsed once. Plain data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from npubake.errors import Fault, RecipeError

Io = Literal["quantized", "float"]
FLOAT_LANES = ("fp16",)  # in which nothing is quantised
# Of toolchain_options.qualcomm, where the recipe says nothing.
DEFAULT_OPTIMIZATION = 3  # the graph that the compiler looks longest for
DEFAULT_CONVERTER: Final = "qairt"
DEFAULT_ENCODINGS: Final = "1.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class HtpPlatform:
    """One platform as the compiler sees it.

    soc_models: Qualcomm's ids of the SoCs that one binary is for, in ascending order (77: QCS9075, 82: QCS8275);
    arch: HTP architectures in the same order (``v73``); vtcm_bytes: vector memory of the smallest; precisions: of the
    platform file (``int8``, ``int16``, ``float16``); lanes: those that its hardware computes.
    """

    name: str
    soc_models: tuple[int, ...]
    arch: tuple[str, ...]
    vtcm_bytes: int
    precisions: tuple[str, ...]
    lanes: tuple[str, ...]

    @classmethod
    def from_params(cls, facts: Mapping[str, Any]) -> HtpPlatform:
        """From a stage's ``platform`` parameter; ``soc_model`` and ``march`` are comma lists (``77,82``)."""
        return cls(
            name=facts["name"],
            soc_models=tuple(int(text) for text in str(facts["soc_model"]).split(",")),
            arch=tuple(str(facts["march"]).split(",")),
            vtcm_bytes=int(facts["vtcm_bytes"]),
            precisions=tuple(facts.get("precisions", ())),
            lanes=tuple(facts.get("lanes", ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOptions:
    """``toolchain_options.qualcomm`` that reach the compiler. optimization: 1 to 3, of the graph's finalisation;
    vtcm_mb: MiB of vector memory, 0 for all that the SoC has; cpu_nodes: nodes that may stay on the CPU, by name.
    """

    optimization: int = DEFAULT_OPTIMIZATION
    vtcm_mb: int = 0
    cpu_nodes: tuple[str, ...] = ()

    @classmethod
    def from_params(cls, options: Mapping[str, Any]) -> CompilerOptions:
        """From a stage's ``options`` parameter; what is at its default is left out there. Raises RecipeError for an
        option that is not known: the compiler itself would ignore it without a word.
        """
        known = {"optimization", "vtcm_mb", "cpu_nodes"}
        unknown = sorted(set(options) - known)
        if unknown:
            hint = f"known: {', '.join(sorted(known))}"
            path = "$.toolchain_options.qualcomm"
            raise RecipeError(*(Fault(what=f"there is no option {name!r}", path=path, hint=hint) for name in unknown))
        return cls(**{**options, "cpu_nodes": tuple(options.get("cpu_nodes", ()))})
