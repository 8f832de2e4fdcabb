"""Recipe room: rules between the keys of ``toolchain_options.qualcomm`` and the rest. Plain data in; place, what, hint
out.

They run on what the schema found valid. What depends on the platform is judged with the targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npubake.document.tree import Path as Place
from npubake.recipe.quant_config import LANE_SPELLINGS

Found = Iterator[tuple[Place, str, str]]
_PLACE: Place = ("toolchain_options", "qualcomm")


def qualcomm_rules(data: dict[str, Any]) -> Found:
    """Options that contradict the lane or one another."""
    options = data.get("toolchain_options", {}).get("qualcomm", {})
    lane = LANE_SPELLINGS[data.get("quant_config", {}).get("lane", "platform")]
    if lane == "fp16":
        yield from _in_float(options)
    if options.get("road", "wheel") != "sdk":
        if "sdk" in options:
            yield (*_PLACE, "sdk"), "'sdk' without 'road: sdk'", "Add 'road: sdk', or remove the block."
    elif "cpu_nodes" in options:
        hint = "Remove it: a context binary of the SDK has no part that runs on the CPU."
        yield (*_PLACE, "cpu_nodes"), "'cpu_nodes' with 'road: sdk'", hint


def _in_float(options: dict[str, Any]) -> Found:
    """Of a lane that quantises nothing."""
    if options.get("io") == "quantized":
        hint = "Remove it, or take an integer lane: edges of integers need scales, and this lane has none."
        yield (*_PLACE, "io"), "'io: quantized' with lane fp16, in which nothing is quantised", hint
    if options.get("quantiser") == "aimet":
        hint = "Remove it, or take an integer lane."
        yield (*_PLACE, "quantiser"), "'quantiser: aimet' with lane fp16, in which nothing is quantised", hint
