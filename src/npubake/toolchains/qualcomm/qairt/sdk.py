"""Qualcomm toolchain, SDK road: the folder of an installed QAIRT SDK: what it holds, its version. Nothing heavy.

``QAIRT_SDK_ROOT`` only says where it lies. The version is that of ``sdk.yaml`` at its root (the file that onnxruntime's
own build reads it from), else of the folder's name, as the archive unpacks it (``qairt/2.39.0.250926``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from npubake.errors import Fault, ToolchainError
from npubake.toolchains.qualcomm.facts import DEFAULT_CONVERTER
from npubake.toolchains.qualcomm.qairt.flags import flags_of
from npubake.toolchains.vendor_sdk import TakenSdk

Converter = Literal["qairt", "qnn"]  # to a DLC and through the quantizer; to C++ and through the library generator

VARIABLE = "QAIRT_SDK_ROOT"
HOST = "x86_64-linux-clang"
DESCRIPTION = "sdk.yaml"
_VERSION = re.compile(r"\d+\.\d+\.\d+(\.\d+)?")
_LINE = re.compile(r"^version:\s*['\"]?v?(?P<version>\d+\.\d+\.\d+(\.\d+)?)", re.MULTILINE)

BACKEND, DLC_LOADER, EXTENSIONS = "libQnnHtp.so", "libQnnModelDlc.so", "libQnnHtpNetRunExtensions.so"
_LAST_STEPS = ("qnn-context-binary-generator", "qnn-context-binary-utility", "qnn-net-run")
TOOLS: Mapping[Converter, tuple[str, ...]] = {
    "qairt": ("qairt-converter", "qairt-quantizer", *_LAST_STEPS),
    "qnn": ("qnn-onnx-converter", "qnn-model-lib-generator", *_LAST_STEPS),
}
LIBRARIES: Mapping[Converter, tuple[str, ...]] = {
    "qairt": (BACKEND, EXTENSIONS, DLC_LOADER),
    "qnn": (BACKEND, EXTENSIONS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdk:
    """An installed SDK. root: absolute; version: ``2.39.0.250926``; stated: the file that says so, or the root."""

    root: Path
    version: str
    stated: Path

    def tool(self, name: str) -> Path:
        return self.root / "bin" / HOST / name

    def library(self, name: str) -> Path:
        return self.root / "lib" / HOST / name

    def environment(self, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
        """What the tools need beside a fixed environment: the SDK's own folders, as ``bin/envsetup.sh`` sets them.

        The converters are Python programs (``env python3``) and the library generator calls a C++ compiler: both are
        taken from the caller's PATH, as the SDK's own scripts do.
        """
        folder = self.root / "bin" / HOST
        return {
            VARIABLE: str(self.root),
            "QNN_SDK_ROOT": str(self.root),
            "PATH": f"{folder}{os.pathsep}{variables.get('PATH', os.defpath)}",
            "LD_LIBRARY_PATH": str(self.root / "lib" / HOST),
            "PYTHONPATH": str(self.root / "lib" / "python"),
        }


def find_sdk(converter: Converter, variables: Mapping[str, str] = os.environ) -> Sdk:
    """The SDK that ``QAIRT_SDK_ROOT`` names, with the tools of ``converter``'s road.

    Raises ToolchainError, every fault at once: the variable is unset, no folder, no SDK, tools or libraries missing, a
    version whose flags are not known.
    """
    named = variables.get(VARIABLE, "")
    if not named:
        raise ToolchainError(_fault("road: sdk needs the QAIRT SDK, and it is not said where that lies"))
    root = Path(named)
    if not root.is_dir():
        raise ToolchainError(_fault(f"{VARIABLE} names no folder: {named}"))
    sdk = _described(root.absolute())
    if not flags_of(sdk.version).qairt and converter == "qairt":
        hint = "toolchain_options: {qualcomm: {sdk: {converter: qnn}}} takes the older converter"
        what = f"QAIRT SDK {sdk.version} is older than qairt-converter"
        raise ToolchainError(Fault(what=what, where=VARIABLE, hint=hint))
    absent = [str(sdk.tool(name)) for name in TOOLS[converter] if not os.access(sdk.tool(name), os.X_OK)]
    absent += [str(path) for path in map(sdk.library, LIBRARIES[converter]) if not path.is_file()]
    if absent:
        raise ToolchainError(*(_fault(f"the SDK has no {os.path.relpath(path, root)}") for path in absent))
    return sdk


def taken(options: Mapping[str, Any]) -> TakenSdk | None:
    """The SDK that ``toolchain_options.qualcomm`` takes; None on the other road, or where there is none to take."""
    if options.get("road", "wheel") != "sdk":
        return None
    try:
        found = find_sdk(options.get("sdk", {}).get("converter", DEFAULT_CONVERTER))
    except ToolchainError:
        return None  # toolchains.missing tells it, with the targets that need it
    return TakenSdk(version=found.version, stated=found.stated)


def made_by_sdk(contract: Mapping[str, Any]) -> bool:
    """Whether the tools of a QAIRT SDK made the binary, not the compiler of the package."""
    return "qairt_sdk" in contract["build"]


def _described(root: Path) -> Sdk:
    path = root / DESCRIPTION
    if path.is_file():
        found = _LINE.search(path.read_text(encoding="utf-8", errors="replace"))
        if found is None:
            raise ToolchainError(_fault(f"{DESCRIPTION} there states no version"))
        return Sdk(root=root, version=found["version"], stated=path)
    named = root.resolve().name.removeprefix("v")
    if not (root / "bin" / HOST).is_dir() or not _VERSION.fullmatch(named):
        raise ToolchainError(_fault(f"{root} is no QAIRT SDK: it has no {DESCRIPTION}, and no version in its name"))
    return Sdk(root=root, version=named, stated=root)


def _fault(what: str) -> Fault:
    hint = (
        f"unpack the QAIRT SDK (Qualcomm AI Runtime Community, softwarecenter.qualcomm.com) and set {VARIABLE} to the "
        "folder that holds bin/ and lib/; or take road: wheel, which needs no SDK"
    )
    return Fault(what=what, where=VARIABLE, hint=hint)
