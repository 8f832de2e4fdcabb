"""Qualcomm toolchain: the compiler's own simulation of a graph, to compare candidates: never a latency. Pure.

``profile.csv`` holds them for the SoCs that QNN 2.51.0 simulates (soc_model 52, 72, 77); the times in it that are of
this machine are left out, so that what remains is the same for each compile of the same model.
"""

from __future__ import annotations

import csv
import re
from typing import Any

LABEL = "simulated by the compiler; not a latency"
_EXECUTION = re.compile(
    r"Simulated \(Accelerator exec (?P<unit>cycles|time us)(?: \((?P<bound>lower|upper) estimate\))?\)"
)
_TRAFFIC = ("Input Fill", "Intermediate Fill", "Intermediate Spill", "Output Spill")
_UNITS = {"cycles": "cycles", "time us": "microseconds"}


def read_estimates(profile: str) -> dict[str, Any]:
    """``{}`` where the compiler simulates no such SoC, else ``{label, cycles, microseconds: {estimate, lower, upper},
    bytes: {input_fill, ...}}``: execution of the accelerator, and its traffic with the memory.
    """
    found: dict[str, Any] = {}
    rows = csv.DictReader(profile.splitlines())
    for row in rows:
        name, value = row["Event Identifier"], int(row["Time"])
        match = _EXECUTION.fullmatch(name)
        if match is not None:
            found.setdefault(_UNITS[match["unit"]], {})[match["bound"] or "estimate"] = value
        elif name in _TRAFFIC and row["Unit of Measurement"] == "BYTES":
            found.setdefault("bytes", {})[name.lower().replace(" ", "_")] = value
    return {"label": LABEL, **found} if "cycles" in found else {}
