"""Qualcomm toolchain: what ``adapt`` is asked for and what it answers. Data; parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from npubake.calibration.statistics import TensorStatistics
from npubake.fixedpoint.colour import RuntimeInput
from npubake.quant.lanes import parse_lane
from npubake.quant.parameters import QuantizationParameters
from npubake.toolchains.qualcomm.facts import DEFAULT_OPTIMIZATION, Io


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptRequest:
    """lane: canonical spelling; io: what the binary takes and gives; runtime: what the board feeds, by model input;
    oldest: whether an SoC of v68 is among those it is for, which takes fewer forms; optimization: that the compiler
    will be asked for.
    """

    lane: str
    io: Io = "quantized"
    runtime: tuple[RuntimeInput, ...] = ()
    oldest: bool = False
    optimization: int = DEFAULT_OPTIMIZATION

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> AdaptRequest:
        """From the stage's parameters. Raises RecipeError for a runtime input that does not exist."""
        specs = [RuntimeInput.from_facts(name, facts) for name, facts in params.get("runtime_input", {}).items()]
        return cls(
            lane=parse_lane(params["lane"]).name,
            io=params.get("io", "quantized"),
            oldest="v68" in str(params.get("march") or params.get("platform", {}).get("march", "")).split(","),
            optimization=params.get("options", {}).get("optimization", DEFAULT_OPTIMIZATION),
            runtime=tuple(spec for spec in specs if spec.type != "featuremap"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What decides the integers: parameters (None in a lane that has none) and what was observed of the same graph."""

    parameters: QuantizationParameters | None = None
    statistics: Mapping[str, TensorStatistics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adapted:
    """model: float32 inputs and outputs; compilable: those that the binary gets; record: docs/architecture.md."""

    model: onnx.ModelProto
    compilable: onnx.ModelProto
    record: dict[str, Any]
