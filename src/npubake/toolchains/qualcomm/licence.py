"""Qualcomm toolchain: under which licences the installed package stands, by their files. Imports nothing heavy.

The wrapper is MIT; the compiler, the emulator and what goes to the board stand under Qualcomm's AI Stack License, which
whoever installs the package accepts. npubake depends on the package and hands none of it on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from npubake.toolchains.qualcomm.probe import DISTRIBUTION

# File in the package -> what it is for.
FILES = {
    "onnxruntime_qnn/LICENSE": "MIT: the execution provider",
    "onnxruntime_qnn/Qualcomm_LICENSE.pdf": "Qualcomm AI Stack License: the libraries of QNN (compiler, emulator)",
    "onnxruntime_qnn/ThirdPartyNotices.txt": "notices of third parties",
    "onnxruntime_qnn/Privacy.md": "privacy of the execution provider",
}


def licence_of(contract: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of the package where it made the artifact; ``{}`` where an SDK did, which brings its own."""
    return licence_facts() if "onnxruntime_qnn" in contract["build"] else {}


def licence_facts() -> dict[str, Any]:
    """``{distribution, version, files: [{name, for, sha256}]}``, the same on every machine with the same package;
    ``{}`` where it is not installed. A file that the package lacks is left out.
    """
    found = _installed()
    if found is None:
        return {}
    files = [
        {"name": name, "for": purpose, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for name, purpose in FILES.items()
        if (path := _path(found, name)).is_file()
    ]
    return {"distribution": DISTRIBUTION, "version": found.version, "files": files}


def licence_folder() -> str:
    """Where these files lie on this machine, for people; '' where the package is not installed."""
    found = _installed()
    return "" if found is None else str(_path(found, next(iter(FILES))).parent)


def _installed() -> Distribution | None:
    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def _path(found: Distribution, name: str) -> Path:
    return Path(str(found.locate_file(name)))
