"""verify: COCO labels and pycocotools. Labels and detections in, figures and evidence out; no model."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from npubake.errors import Fault, RecipeError
from npubake.verify.detection import Detections
from npubake.verify.evidence import Matches


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoLabels:
    """Labels of a detector. categories: (id, name) in the file's order: the model's class k is the k-th of them.

    images: id by file name; annotations: COCO's, as they are.
    """

    categories: tuple[tuple[int, str], ...]
    images: Mapping[str, int]
    annotations: tuple[Mapping[str, Any], ...]

    @classmethod
    def load(cls, path: Path) -> CocoLabels:
        """RecipeError where the file is no COCO detection file."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                categories=tuple((entry["id"], str(entry.get("name", entry["id"]))) for entry in data["categories"]),
                images={entry["file_name"]: entry["id"] for entry in data["images"]},
                annotations=tuple(
                    {
                        "image_id": entry["image_id"],
                        "category_id": entry["category_id"],
                        "bbox": entry["bbox"],
                        "iscrowd": entry.get("iscrowd", 0),
                    }
                    for entry in data["annotations"]
                ),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecipeError(
                Fault(
                    what=f"the labels are not in COCO form: {error!r}",
                    where="labels",
                    hint="images, annotations and categories",
                )
            ) from error

    def image_ids(self, names: Sequence[str]) -> list[int]:
        """Image ids of pictures, by their path or, where that is not in the file, by its last part."""
        short = {PurePosixPath(name).name: number for name, number in self.images.items()}
        found = [self.images.get(name, short.get(PurePosixPath(name).name)) for name in names]
        missing = [name for name, number in zip(names, found, strict=True) if number is None]
        if missing:
            raise RecipeError(
                Fault(
                    what=f"no labels for {len(missing)} pictures: {', '.join(missing[:5])}",
                    hint="every picture of the validation set needs an entry in `images`",
                )
            )
        return [number for number in found if number is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoResult:
    """map50, map: pycocotools' mean average precision at IoU 0.5 and 0.5:0.95; matches: evidence at IoU 0.5."""

    map50: float
    map: float
    matches: Matches


def evaluate(labels: CocoLabels, names: Sequence[str], found: Sequence[Detections]) -> CocoResult:
    """Judge the detections of each picture (corners in pixels of the source) by COCO's rules, 100 a class and picture.

    RecipeError where a picture has no labels, or the model has other classes than the labels.
    """
    ids = labels.image_ids(names)
    highest = max((int(entry.classes.max()) for entry in found if len(entry.classes)), default=0)
    if highest >= len(labels.categories):
        what = f"the model finds class {highest}, the labels have {len(labels.categories)} categories"
        raise RecipeError(Fault(what=what, hint="class k of the model is the k-th entry of `categories`"))
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints
        judge = COCOeval(_truth(labels, ids), _answers(labels, ids, found), "bbox")
        judge.params.imgIds = ids
        judge.params.catIds = [number for number, _ in labels.categories]
        judge.params.areaRng, judge.params.areaRngLbl = [[0, 1e10]], ["all"]
        judge.evaluate()
        judge.accumulate()
    precision = judge.eval["precision"][:, :, :, 0, -1]
    return CocoResult(
        map50=_mean(precision[0]), map=_mean(precision), matches=_matches(judge.evalImgs, labels, ids, names)
    )


def _mean(precision: Any) -> float:
    known = precision[precision > -1]
    return float(known.mean()) if known.size else 0.0


def _index(labels: CocoLabels, ids: Sequence[int], annotations: list[dict[str, Any]]) -> Any:
    """A pycocotools index; annotations are numbered from 1, since 0 means "no match" in its evaluation."""
    coco = COCO()
    coco.dataset = {
        "images": [{"id": number} for number in ids],
        "categories": [{"id": number, "name": name} for number, name in labels.categories],
        "annotations": [{**entry, "id": index} for index, entry in enumerate(annotations, start=1)],
    }
    coco.createIndex()
    return coco


def _truth(labels: CocoLabels, ids: Sequence[int]) -> Any:
    wanted = set(ids)
    kept = [
        {**entry, "area": float(entry["bbox"][2]) * float(entry["bbox"][3])}
        for entry in labels.annotations
        if entry["image_id"] in wanted
    ]
    return _index(labels, ids, kept)


def _answers(labels: CocoLabels, ids: Sequence[int], found: Sequence[Detections]) -> Any:
    answers = []
    for number, entry in zip(ids, found, strict=True):
        sizes = entry.corners[:, 2:] - entry.corners[:, :2]
        for corner, size, score, which in zip(entry.corners, sizes, entry.scores, entry.classes, strict=True):
            answers.append(
                {
                    "image_id": number,
                    "category_id": labels.categories[which][0],
                    "score": float(score),
                    "iscrowd": 0,
                    "bbox": [*map(float, corner[:2]), *map(float, size)],
                    "area": float(size[0] * size[1]),
                }
            )
    return _index(labels, ids, answers)


def _matches(
    judged: Sequence[Mapping[str, Any] | None], labels: CocoLabels, ids: Sequence[int], names: Sequence[str]
) -> Matches:
    """What pycocotools matched at IoU 0.5, in its own order, so that equal scores are ranked as it ranks them."""
    picture = {number: index for index, number in enumerate(ids)}
    class_of = {number: index for index, (number, _) in enumerate(labels.categories)}
    columns: list[tuple[int, int, float, bool]] = []
    objects: list[tuple[int, int, int]] = []
    for entry in judged:
        if entry is None:
            continue
        where, which = picture[int(entry["image_id"])], class_of[int(entry["category_id"])]
        count = int((~np.asarray(entry["gtIgnore"], bool)).sum())
        if count:
            objects.append((where, which, count))
        for score, match, ignored in zip(entry["dtScores"], entry["dtMatches"][0], entry["dtIgnore"][0], strict=True):
            if not ignored:
                columns.append((where, which, float(score), bool(match)))
    return Matches(
        names=tuple(names),
        categories=tuple(name for _, name in labels.categories),
        image=tuple(row[0] for row in columns),
        category=tuple(row[1] for row in columns),
        score=tuple(row[2] for row in columns),
        matched=tuple(row[3] for row in columns),
        objects=tuple(objects),
    )
