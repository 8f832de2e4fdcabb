"""stages: ``samples``, the calibration set from its source files or from an earlier build, and the archive that travels
with the bundle.

Inputs: ``listing`` and ``files``; or ``loaded``, a sample set, with ``validation``, the listing that is judged on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from npubake.calibration.archive import ArchiveWriter
from npubake.calibration.collection import SourceFiles, collect
from npubake.calibration.inputs import Request
from npubake.calibration.reusing import reuse, write_archive
from npubake.calibration.samples import HEAD
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job


def run(job: Job) -> None:
    """Write ``samples`` and ``archive``; RecipeError with every fault of the set."""
    graph, request = GraphSummary.load(job.input("graph")), Request.from_params(job.params)
    loaded = job.optional("loaded")
    if loaded is not None:
        head = reuse(loaded, graph, request, _listing(job.optional("validation")), job.outputs["samples"])
        write_archive(loaded, head, job.outputs["archive"])
        return
    files = SourceFiles(json.loads(job.input("listing").read_text(encoding="utf-8")), job.inputs.get("files", ()))
    head = collect(files, graph, request, job.outputs["samples"], job.progress)
    _archive(head, files, job.outputs["archive"])


def _listing(path: Path | None) -> dict[str, Any] | None:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path is not None else None


def _archive(head: Mapping[str, Any], files: SourceFiles, path: Path) -> None:
    """The source files that were used, as they are, and the head of the sample set that names them."""
    used = sorted({source["name"] for example in head["examples"] for source in example["sources"].values()})
    with ArchiveWriter(path) as archive:
        entries = {}
        for index, name in enumerate(used):
            entries[name] = f"sources/{index:05d}-{PurePosixPath(name).name}"
            archive.bytes(entries[name], files.bytes(name))
        archive.json(HEAD, {**head, "archived": entries})
