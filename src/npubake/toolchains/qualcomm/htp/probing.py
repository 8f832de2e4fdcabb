"""Qualcomm toolchain: whether the SoC's compiler takes a model at all, before any effort of calibration.

A model that was adapted with assumed ranges is compiled once, with the least optimisation: the compiler decides by
types, shapes and operators, which ranges do not change. With adapting it takes 0.5 s for the digits classifier, 1.4 s
for a detector of 640 x 640 pixels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx

from npubake.errors import Fault, PlatformError, RecipeError, StageError
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.htp import checks
from npubake.toolchains.qualcomm.htp.compiling import Asked, attempt
from npubake.toolchains.qualcomm.htp.operators import Operators
from npubake.toolchains.qualcomm.htp.refusal_table import NEVER_ON_THE_CPU
from npubake.toolchains.qualcomm.htp.trace import read_trace
from npubake.toolchains.qualcomm.htp.translation import explain_failure, explain_nodes

LEAST = 1  # optimization of the probe's compile


def refuse_lane(platform: HtpPlatform, lane: str) -> None:
    """Raises PlatformError for a lane that the SoC's hardware does not compute."""
    if lane not in platform.lanes:
        what = f"lane {lane} cannot run on {platform.name} (HTP {', '.join(platform.arch)})"
        hint = f"its lanes: {', '.join(platform.lanes)}"
        raise PlatformError(Fault(what=what, where=platform.name, path="$.lanes", hint=hint))


def look_ahead(compilable: onnx.ModelProto, platform: HtpPlatform, options: CompilerOptions) -> dict[str, Any]:
    """The report: ``{version, soc_model, qnn_operators: {type: count}, cpu_nodes: [names that stay on the CPU]}``.

    Raises RecipeError with every node that the compiler refuses and that ``cpu_nodes`` does not name, and for a name
    there that is no node; PlatformError for a platform that the compiler knows otherwise; StageError where it fails
    otherwise.
    """
    operators = Operators.of(compilable)
    checks.refuse_unknown_nodes(options.cpu_nodes, operators)
    cheapest = replace(options, optimization=LEAST)
    made = attempt(Asked(model=compilable.SerializeToString(), platform=platform, options=cheapest), reasons=True)
    trace = read_trace(made.trace, made.log, operators)
    refused = trace.without(options.cpu_nodes)
    if made.error:
        lost = [one.node for one in trace.unsupported if one.op_type in NEVER_ON_THE_CPU]
        refused = trace.without([name for name in options.cpu_nodes if name not in lost])
        told = explain_failure(made.error, made.log, refused, operators, platform)
        raise (RecipeError if refused.unsupported else StageError)(*told)
    if refused.unsupported:
        raise RecipeError(*explain_nodes(refused.unsupported, operators, platform))
    return {
        "version": 1,
        "soc_model": ",".join(str(model) for model in platform.soc_models),
        "qnn_operators": dict(trace.qnn_operators),
        "cpu_nodes": [one.node for one in trace.unsupported],
    }
