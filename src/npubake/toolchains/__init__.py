"""One folder a vendor, the same rooms in each; none knows another. Here: the table, and what is usable on this machine.

Imports nothing heavy: ``plan``, ``list`` and ``doctor`` ask this module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from npubake.errors import Fault, ToolchainError, UsageError

if TYPE_CHECKING:
    from npubake.graph.resolve import ResolvedOverride
    from npubake.graph.summary import GraphSummary
    from npubake.quant.precisions import Precisions

# name -> "module:function"; the function takes nothing and answers with a Probe.
TOOLCHAINS: Mapping[str, str] = {
    "reference": "npubake.toolchains.reference.probe:probe",
    "horizon": "npubake.toolchains.vendors:probe_horizon",
    "qualcomm": "npubake.toolchains.qualcomm.probe:probe",
    "mobilint": "npubake.toolchains.vendors:probe_mobilint",
}
# What ``doctor`` tells of a usable toolchain; the function takes nothing and answers with Details.
_DETAILS: Mapping[str, str] = {"qualcomm": "npubake.toolchains.qualcomm.details:details"}
# Toolchains whose options decide what they need; the function takes the options and answers with Faults.
_NEEDS: Mapping[str, str] = {"qualcomm": "npubake.toolchains.qualcomm.needs:missing"}
# Under which licences a toolchain's package, which made an artifact, stands; the function takes the contract.
_LICENCES: Mapping[str, str] = {"qualcomm": "npubake.toolchains.qualcomm.licence:licence_of"}
# What a toolchain refuses of a target whose graph is known; the function takes what ``judged`` takes.
_JUDGES: Mapping[str, str] = {"qualcomm": "npubake.toolchains.qualcomm.refusals:judge"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a toolchain refuses of a target, and what it warns of."""

    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What a toolchain here is made of, and what of it does not work."""

    facts: Mapping[str, str]
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A target, and the toolchain that is to make it with the recipe's options."""

    target: str
    toolchain: str
    options: Mapping[str, Any]


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
    ask: Callable[[], Probe] = _loaded(TOOLCHAINS[name])
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


def installed(distribution: str) -> bool:
    """Whether a Python package is installed, by the name of its distribution; it is not imported."""
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def judged(
    summary: GraphSummary,
    params: Mapping[str, Any],
    overrides: Sequence[Mapping[str, Any]],
    resolved: Sequence[ResolvedOverride],
    precisions: Precisions | None,
) -> Judged:
    """What the toolchain of ``check``'s parameter ``toolchain`` says of a target; nothing where it has none."""
    name = params.get("toolchain", "")
    if name not in _JUDGES:
        return Judged()
    judge: Callable[..., Judged] = _loaded(_JUDGES[name])
    return judge(summary, params, overrides, resolved, precisions)


def details(name: str) -> Details | None:
    """What a usable toolchain is made of; None where there is nothing more to tell. It may run the toolchain."""
    if name not in _DETAILS:
        return None
    ask: Callable[[], Details] = _loaded(_DETAILS[name])
    return ask()


def licence(contract: Mapping[str, Any]) -> dict[str, Any]:
    """Package, version and licence files of what made the artifact of a contract; {} where nothing is to be said."""
    name = contract["toolchain"]["name"]
    if name not in _LICENCES:
        return {}
    ask: Callable[[Mapping[str, Any]], dict[str, Any]] = _loaded(_LICENCES[name])
    return ask(contract)


def missing(served: Sequence[Served]) -> dict[str, tuple[Fault, ...]]:
    """Target -> what it needs and is not installed; targets that lack nothing are left out.

    One fault a need: it lists all the targets that have it, and how to build the others by name.
    """
    lacking = {entry.target: tuple(_lacks(entry)) for entry in served}
    able = [name for name, faults in lacking.items() if not faults]
    needing: dict[Fault, list[str]] = {}
    for name, faults in lacking.items():
        for fault in faults:
            needing.setdefault(fault, []).append(name)
    told = {fault: _told(fault, names, able) for fault, names in needing.items()}
    return {name: tuple(told[fault] for fault in faults) for name, faults in lacking.items() if faults}


def _lacks(entry: Served) -> Iterable[Fault]:
    if entry.toolchain in _NEEDS:
        ask: Callable[[Mapping[str, Any]], Iterable[Fault]] = _loaded(_NEEDS[entry.toolchain])
        yield from ask(entry.options)
    elif not (found := probe(entry.toolchain)).usable:
        yield Fault(where=entry.toolchain, what=found.why, hint=found.hint)


def _told(fault: Fault, targets: Sequence[str], able: Sequence[str]) -> Fault:
    others = f"; or build the others by name: recipe={','.join(able)}" if able else ""
    verb = "needs it" if len(targets) == 1 else "need it"
    return replace(fault, what=f"{fault.what}; {', '.join(targets)} {verb}", hint=f"{fault.hint}{others}")


def _loaded(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
