"""Run by ``toolchains.process``: tells what it sees of the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npubake.toolchains.process import serve


def told(_request: Mapping[str, Any]) -> dict[str, Any]:
    """The import path, what of it is the interpreter's own, variables, folder, and modules read as compiled files."""
    return {
        "path": sys.path,
        "own": [entry for entry in sys.path if entry.startswith(sys.base_prefix)],
        "variables": dict(os.environ),
        "folder": str(Path.cwd()),
        "compiled": [
            name for name, module in sys.modules.items() if Path(getattr(module, "__cached__", None) or "-").exists()
        ],
    }


if __name__ == "__main__":
    serve(told)
