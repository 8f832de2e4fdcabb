"""What stands in ``build/<target>/``: the last good build by its manifest, and files there that are another build's.

A build publishes stage by stage and puts the folder right when it ends (``manifests.set_aside``); one that was killed
leaves its files beside the last good bundle. In: a folder. Out: plain data. Light: no plan, no store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npubake.pipeline.files import sha256_file

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The last good build of a target. artifacts: path -> sha256, as the manifest has them; finished: UTC, ISO 8601;
    astray: paths whose file is missing or no longer the one that the manifest describes.
    """

    bundle: str
    artifacts: Mapping[str, str]
    finished: str
    gates: tuple[dict[str, Any], ...]
    astray: tuple[str, ...]


def find(folder: Path) -> Released | None:
    """By the manifest in ``build/<target>/``; None where there is none, or a damaged one (the next build writes it)."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        told = manifest["reproducible"]
        artifacts = {str(entry["path"]): str(entry["digest"]) for entry in told["artifacts"]}
        bundle = next((path for path in artifacts if path.endswith(".bundle")), "")
        return Released(
            bundle=bundle,
            artifacts=artifacts,
            finished=str(manifest["circumstances"]["finished"]),
            gates=tuple(told["gates"]),
            astray=tuple(path for path, digest in artifacts.items() if not _stands(folder, path, digest)),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _stands(folder: Path, path: str, digest: str) -> bool:
    below = path.split("/", 2)[-1]  # behind build/<target>/: a copy of the folder has another name
    try:
        return sha256_file(folder / below) == digest
    except OSError:
        return False


def astray_text(astray: Sequence[str]) -> str:
    """One clause for people: how many files are not the manifest's, and which."""
    more = f" and {len(astray) - _SHOWN} more" if len(astray) > _SHOWN else ""
    what = "1 file there no longer is what" if len(astray) == 1 else f"{len(astray)} files there no longer are what"
    why = "a later build was cut short, or they were changed"
    return f"{what} the manifest says ({why}): {', '.join(astray[:_SHOWN])}{more}"
