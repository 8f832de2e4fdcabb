"""Toolchains room: the vendor's SDK on this machine that a recipe's options take: its version enters keys. A table."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Toolchain -> function of its options: the SDK that they take, or None.
_FINDERS: Mapping[str, str] = {"qualcomm": "npubake.toolchains.qualcomm.qairt.sdk:taken"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenSdk:
    """version: as the SDK states it; stated: the file or folder that says so, whose change is another SDK."""

    version: str
    stated: Path


def taken_sdk(toolchain: str, options: Mapping[str, Any]) -> TakenSdk | None:
    """The SDK of a target; None where it takes none, or where there is none (``toolchains.missing`` says that)."""
    if toolchain not in _FINDERS:
        return None
    module, _, function = _FINDERS[toolchain].partition(":")
    find: Callable[[Mapping[str, Any]], TakenSdk | None] = getattr(importlib.import_module(module), function)
    return find(options)


def sdk_version(toolchain: str, options: Mapping[str, Any], noted: Callable[[Path], None]) -> str:
    """Of the SDK of a target, '' where it takes none. noted: called with what states it."""
    taken = taken_sdk(toolchain, options)
    if taken is None:
        return ""
    noted(taken.stated)
    return taken.version
