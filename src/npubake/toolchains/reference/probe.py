"""Reference toolchain: its version and whether it can serve here. Imports nothing heavy."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from npubake.toolchains import Probe

NAME = "reference"
VERSION = "1"  # of the package's form and its rules; raised when the same model would give another package
_NEEDS = ("onnx", "onnxruntime", "numpy")


def probe() -> Probe:
    """Usable where its three libraries are installed, which the package itself requires."""
    missing = []
    for distribution in _NEEDS:
        try:
            version(distribution)
        except PackageNotFoundError:
            missing.append(distribution)
    if missing:
        names = ", ".join(missing)
        return Probe(
            name=NAME, usable=False, version=VERSION, why=f"{names} not installed", hint=f"pip install {names}"
        )
    return Probe(name=NAME, usable=True, version=VERSION)
