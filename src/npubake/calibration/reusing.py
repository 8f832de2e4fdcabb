"""calibration: a sample set of an earlier build, held against this model and preset, and used again. Paths only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from npubake.calibration.archive import ArchiveWriter
from npubake.calibration.inputs import Request, make_slots
from npubake.calibration.samples import HEAD, SampleSet
from npubake.errors import Fault, RecipeError, StageError
from npubake.graph.summary import GraphSummary

PLACE = "$.quant_config.load.samples"
_NAMES = ("name", "version")  # of a preset: what it does to a picture counts, not what it is called
_SHOWN = 10


def reuse(
    source: Path, graph: GraphSummary, request: Request, validation: Mapping[str, Any] | None, output: Path
) -> dict[str, Any]:
    """Copy the sample set ``source`` to ``output``, bytes as they are; its head. validation: the listing of the data
    that are judged on, or None. Raises RecipeError with all that keeps the set from fitting.
    """
    try:
        opened = SampleSet.open(source)
    except StageError as error:
        found = "; ".join(fault.what for fault in error.faults)
        hint = "name a calibration_samples.npz that a build with save_sample made"
        raise RecipeError(Fault(what=f"no sample set: {found}", path=PLACE, hint=hint)) from error
    with opened as samples:
        head = dict(samples.head)
    faults = [*_misfits(head, graph, request), *_judged_on(head, validation)]
    if faults:
        raise RecipeError(*faults)
    shutil.copyfile(source, output)
    return head


def write_archive(source: Path, head: Mapping[str, Any], path: Path) -> None:
    """What travels with the bundle: the sample set itself in place of its source files, and the head that names it."""
    name = "calibration_samples.npz"
    with ArchiveWriter(path) as archive:
        entry = f"sources/00000-{name}"
        archive.bytes(entry, source.read_bytes())
        archive.json(HEAD, {**head, "archived": {name: entry}})


def _misfits(head: Mapping[str, Any], graph: GraphSummary, request: Request) -> Iterator[Fault]:
    """Inputs, preset and randomness of the set against what this target needs."""
    slots = make_slots(graph, request)
    due = {name: slot.form.to_json() for name, slot in slots.items()}
    for name in sorted({*due, *head["inputs"]}):
        held, wanted = head["inputs"].get(name), due.get(name)
        if held is None or wanted is None:
            what = f"it holds nothing for the input {name!r}" if held is None else f"the model has no input {name!r}"
            yield Fault(what=what, path=PLACE, hint="a sample set belongs to models of the same inputs")
        elif held != json.loads(json.dumps(wanted)):
            parts = ", ".join(
                f"{key} {held[key]} where {wanted[key]} is due" for key in wanted if _differs(held, wanted, key)
            )
            yield Fault(
                what=f"input {name!r}: {parts}", path=PLACE, hint="make the set again for this model and preset"
            )
    stated, made = (_without_names(preset) for preset in (request.preset, head["preset"]))
    if stated != made:
        keys = ", ".join(sorted(key for key in {*stated, *made} if stated.get(key) != made.get(key)))
        what = f"it was prepared by another preset: {keys} differ"
        yield Fault(what=what, path=PLACE, hint="state the preset that the set was made with")
    if head["random"] and not request.smoke:
        hint = "load a set of real data, or say 'purpose: smoke' for a trial that is marked as not releasable"
        yield Fault(what="the sample set is random", path=PLACE, hint=hint)


def _differs(held: Mapping[str, Any], wanted: Mapping[str, Any], key: str) -> bool:
    return bool(held.get(key) != json.loads(json.dumps(wanted[key])))


def _without_names(preset: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in preset.items() if key not in _NAMES}


def _judged_on(head: Mapping[str, Any], validation: Mapping[str, Any] | None) -> Iterator[Fault]:
    """Sources of the set that are validated on too."""
    judged = {entry["digest"]: entry["name"] for entry in validation["files"]} if validation else {}
    used = {source["digest"]: source["name"] for example in head["examples"] for source in example["sources"].values()}
    shared = sorted(used.keys() & judged.keys(), key=used.__getitem__)
    for digest in shared[:_SHOWN]:
        what = f"sample {used[digest]} has the same bytes as validation file {judged[digest]}"
        yield Fault(what=what, path=PLACE, hint=f"validate on other data ({len(shared)} such files in all)")
