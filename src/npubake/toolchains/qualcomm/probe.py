"""Qualcomm toolchain: whether it can serve here. Looks at what is installed; imports nothing heavy."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from npubake.toolchains import Probe

NAME = "qualcomm"
DISTRIBUTION = "onnxruntime-qnn"


def probe() -> Probe:
    """Usable where the package with the offline compiler is installed."""
    try:
        found = version(DISTRIBUTION)
    except PackageNotFoundError:
        why = f"{DISTRIBUTION}, which holds the HTP compiler and its emulator, is not installed"
        return Probe(name=NAME, usable=False, version="", why=why, hint="pip install 'npubake[qualcomm]'")
    return Probe(name=NAME, usable=True, version=found)
