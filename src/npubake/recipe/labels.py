"""Recipe room: the labels of validation data: which file holds them, and whether it names every picture. No numpy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from npubake.errors import Fault, RecipeError
from npubake.recipe.data import Listing, capped
from npubake.recipe.places import is_folder, why_no_file


def find_labels(data: Path, listing: Listing, metric: str, stated: Path | None = None) -> tuple[Path, ...]:
    """The labels file of validation data: the stated one; ``labels.json`` beside the pictures; the npz itself.

    Its form: COCO for coco_map; for top1 a JSON mapping file name -> class index. Raises RecipeError where there is
    none, where it has another form, or where it leaves a picture out.
    """
    reason = "" if stated is None else why_no_file(stated)
    if reason:
        hint = "Check 'metric.labels': its path is relative to the recipe."
        raise RecipeError(Fault(what=f"no labels: {reason}", where=str(stated), hint=hint))
    folder = data if is_folder(data) else data.parent
    beside = [folder / name for name in ("labels.json", "annotations.json") if (folder / name).is_file()]
    found = stated or next(iter(beside), None)
    if found is None and listing.kind == "npz":
        return listing.paths
    if found is None:
        hint = "Put labels.json beside the data (COCO form, or {file name: class}), or state 'metric.labels'."
        raise RecipeError(Fault(what="the validation data have no labels", where=str(folder), hint=hint))
    if found.suffix.lower() == ".json":
        names = [name for example in listing.examples for name in example.values()]
        faults = list(_label_faults(found, names, metric))
        if faults:
            raise RecipeError(*capped(faults))
    return (found,)


_FORMS = {
    "coco_map": "COCO form: {images: [{id, file_name}], annotations: [{image_id, bbox, category_id}], ...}.",
    "top1": 'A mapping of file name to class index: {"0001.png": 7, ...}.',
}


def _label_faults(labels: Path, names: Iterable[str], metric: str) -> Iterator[Fault]:
    try:
        data = json.loads(labels.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        yield Fault(what=f"not JSON: {error}", where=str(labels), hint=_FORMS[metric])
        return
    known = _coco_names(data) if metric == "coco_map" else _class_names(data)
    if known is None:
        yield Fault(what=f"no labels that {metric} can read", where=str(labels), hint=_FORMS[metric])
        return
    for name in names:
        if name not in known and PurePosixPath(name).name not in known:
            hint = "Every picture that is measured needs its entry, also one with nothing in it."
            yield Fault(what=f"no labels for {name}", where=str(labels), hint=hint)


def _coco_names(data: Any) -> set[str] | None:
    if not isinstance(data, dict) or not all(isinstance(data.get(key), list) for key in ("images", "annotations")):
        return None
    return {str(entry.get("file_name")) for entry in data["images"] if isinstance(entry, dict)}


def _class_names(data: Any) -> set[str] | None:
    if not isinstance(data, dict) or not all(type(value) is int and value >= 0 for value in data.values()):
        return None
    return set(data)
