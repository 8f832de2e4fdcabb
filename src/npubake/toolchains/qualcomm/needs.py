"""Qualcomm toolchain: what a recipe's options need here that is not there. Options in, faults out; nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npubake.errors import Fault, ToolchainError
from npubake.toolchains import installed
from npubake.toolchains.qualcomm.facts import DEFAULT_CONVERTER
from npubake.toolchains.qualcomm.probe import NAME, probe
from npubake.toolchains.qualcomm.qairt.sdk import find_sdk

_AIMET = "aimet-onnx"


def missing(options: Mapping[str, Any]) -> Iterator[Fault]:
    """Every fault of ``toolchain_options.qualcomm``: no compiler of that road, no quantiser of that name."""
    if options.get("road", "wheel") == "sdk":
        try:
            find_sdk(options.get("sdk", {}).get("converter", DEFAULT_CONVERTER))
        except ToolchainError as error:
            yield from error.faults
    elif not (found := probe()).usable:
        yield Fault(what=found.why, where=NAME, hint=found.hint)
    if options.get("quantiser", "npubake") == "aimet" and not installed(_AIMET):
        hint = "pip install 'npubake[aimet]'; or take quantiser: npubake, which needs nothing else"
        yield Fault(what=f"{_AIMET}, which quantiser: aimet runs, is not installed", where=NAME, hint=hint)
