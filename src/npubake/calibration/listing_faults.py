"""calibration: what names and digests tell of the data of a build, before a file is read. Listings in, faults out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npubake.errors import Fault

Listing = Mapping[str, Any]
_SHOWN = 10


def data_faults(calibration: Listing | None, validation: Listing | None, wanted: int, smoke: bool) -> Iterator[Fault]:
    """Too few calibration examples or random ones, but for a trial (``smoke``), and files that are validated on too.

    calibration, validation: ``{kind, examples, files: [{name, digest}]}``; wanted: how many examples are asked for.
    """
    if calibration is not None and not smoke:
        count = len(calibration.get("examples", calibration["files"]))
        counted = "npz" not in calibration.get("kind", "")  # one npz may hold many examples: counted when it is read
        if calibration.get("kind") == "random":
            hint = "give real data, or say 'purpose: smoke' for a trial that is marked as not releasable"
            yield Fault(what="random calibration data for a release", path="$.calibration.data", hint=hint)
        elif counted and count < wanted:
            what = f"{count} calibration examples where {wanted} are asked for"
            yield Fault(what=what, path="$.calibration.samples", hint="add data, or lower calibration.samples")
    if calibration is None or validation is None:
        return
    judged = {entry["digest"]: entry["name"] for entry in validation["files"]}
    shared = [entry for entry in calibration["files"] if entry["digest"] in judged]
    for entry in shared[:_SHOWN]:
        what = f"calibration file {entry['name']} has the same bytes as validation file {judged[entry['digest']]}"
        hint = f"remove it from one of the two sets ({len(shared)} such files in all)"
        yield Fault(what=what, where=entry["name"], path="$.calibration.data", hint=hint)
