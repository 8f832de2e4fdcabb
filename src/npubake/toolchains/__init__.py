"""One folder a vendor, the same rooms in each; none knows another. Here: the table, and what is usable on this machine.

Imports nothing heavy: ``plan``, ``list`` and ``doctor`` ask this module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from npubake.errors import Fault, ToolchainError, UsageError

# name -> "module:function"; the function takes nothing and answers with a Probe.
TOOLCHAINS: Mapping[str, str] = {
    "reference": "npubake.toolchains.reference.probe:probe",
    "horizon": "npubake.toolchains.vendors:probe_horizon",
    "qualcomm": "npubake.toolchains.qualcomm.probe:probe",
    "mobilint": "npubake.toolchains.vendors:probe_mobilint",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether a toolchain can serve here. version: of the toolchain, '' where unknown; why: reason, where it cannot;
    hint: what to do about it.
    """

    name: str
    usable: bool
    version: str
    why: str = ""
    hint: str = ""


def probe(name: str) -> Probe:
    """Ask one toolchain; raises UsageError for a name that is not in the table."""
    if name not in TOOLCHAINS:
        hint = f"toolchains: {', '.join(TOOLCHAINS)}"
        raise UsageError(Fault(where=name, what=f"there is no toolchain {name!r}", hint=hint))
    module, _, function = TOOLCHAINS[name].partition(":")
    ask: Callable[[], Probe] = getattr(importlib.import_module(module), function)
    return ask()


def probe_all() -> tuple[Probe, ...]:
    """Every toolchain, in the table's order."""
    return tuple(probe(name) for name in TOOLCHAINS)


def require(name: str) -> Probe:
    """The probe of a usable toolchain; raises ToolchainError with what to install."""
    found = probe(name)
    if not found.usable:
        raise ToolchainError(Fault(where=name, what=found.why, hint=found.hint))
    return found
