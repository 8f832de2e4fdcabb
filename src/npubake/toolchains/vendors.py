"""Toolchains room: the vendors' toolchains that this version names and does not drive yet. Looks, runs nothing."""

from __future__ import annotations

import shutil

from npubake.toolchains import Probe, installed

_HINT = "build with --toolchain reference, where the platform has it; it needs no SDK"


def probe_horizon() -> Probe:
    """Horizon OpenExplorer: the SDK's command is ``hb_compile``."""
    found = shutil.which("hb_compile") is not None
    return _not_built("horizon", "hb_compile of the Horizon OpenExplorer SDK", found)


def probe_mobilint() -> Probe:
    """Mobilint: the package ``qbcompiler`` of the qb SDK."""
    return _not_built("mobilint", "the package qbcompiler of Mobilint's qb SDK", installed("qbcompiler"))


def _not_built(name: str, needs: str, found: bool) -> Probe:
    state = "was found" if found else "was not found"
    why = f"this version of npubake does not drive toolchain {name} yet; {needs} {state}"
    return Probe(name=name, usable=False, version="", why=why, hint=_HINT)
