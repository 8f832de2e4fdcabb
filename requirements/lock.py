"""Rewrites the locks from pyproject.toml, with hashes. Needs pip-tools; run by `make lock`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {
    "runtime": ["install"],
    "dev": ["install", "dev"],
    "qualcomm": ["install", "dev", "qualcomm"],
    "aimet": ["install", "dev", "qualcomm", "aimet"],
}
OPTIONS = (
    "--quiet",
    "--generate-hashes",
    "--allow-unsafe",
    "--strip-extras",
    "--no-header",
    "--no-emit-index-url",
    "--no-emit-trusted-host",
    "--no-emit-find-links",
)


def main() -> None:
    """Compiles ``requirements/<name>.lock`` for each entry of LOCKS."""
    for name, extras in LOCKS.items():
        chosen = [word for extra in extras for word in ("--extra", extra)]
        output = ["--output-file", f"requirements/{name}.lock"]
        command = [sys.executable, "-m", "piptools", "compile", *OPTIONS, *chosen, *output, "pyproject.toml"]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
