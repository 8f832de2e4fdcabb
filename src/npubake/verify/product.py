"""verify: the product metric of one model on labelled samples. Paths in, figures with evidence for each picture out.

``coco_map``: mean average precision at IoU 0.5 of a detector; ``top1``: share of right classes of a classifier.
A model with runtime inputs is fed what the board would feed: the metric holds the colour loss too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration import arrays
from npubake.calibration.inference import TensorSession
from npubake.calibration.samples import SampleSet, Source
from npubake.errors import Fault, RecipeError, StageError
from npubake.verify import coco, detection
from npubake.verify.comparison import TracedModel
from npubake.verify.evidence import Hits
from npubake.verify.feeding import Feeder

Outputs = dict[str, NDArray[Any]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One model on one set of samples: its real-valued outputs, example by example."""

    model: TracedModel
    samples: SampleSet
    threads: int
    progress: Progress

    def outputs(self) -> Iterator[tuple[int, Outputs]]:
        """Yield (index, outputs by the float model's names)."""
        session = TensorSession(self.model.path, (entry.name for entry in self.model.outputs.values()), self.threads)
        feeder = Feeder.of(self.model.record, self.samples, self.model.inputs)
        for index in range(self.samples.count):
            values = session.run(feeder.candidate(index))
            yield index, {old: entry.real(values[entry.name]) for old, entry in self.model.outputs.items()}
            self.progress(index + 1, self.samples.count)


def measure_product(metric: str, options: Mapping[str, Any], trial: Trial, labels: Sequence[Path]) -> dict[str, Any]:
    """Figures JSON: value, figures, evidence. RecipeError for labels that do not fit, StageError for outputs."""
    if trial.samples.count == 0:
        raise StageError(Fault(what="the validation set holds no example", hint="give validation data"))
    if not labels:
        raise RecipeError(Fault(what=f"the metric {metric} needs labels", hint="give metric.labels"))
    measure = {"coco_map": _coco_map, "top1": _top1}.get(metric)
    if measure is None:
        raise RecipeError(Fault(what=f"no metric is called {metric!r}", hint="coco_map or top1"))
    return {"version": 1, "kind": "product", "metric": metric, **measure(trial, options, labels)}


def _coco_map(trial: Trial, options: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    unknown = sorted(set(options) - {entry.name for entry in fields(detection.DetectionRule)})
    if unknown:
        raise RecipeError(Fault(what=f"the metric coco_map has no option {', '.join(unknown)}"))
    rule = detection.DetectionRule(**options)
    labels = coco.CocoLabels.load(paths[0])
    sources = [_source(trial.samples, index) for index in range(trial.samples.count)]
    names = [source.name for source in sources]
    labels.image_ids(names)
    found = []
    for index, outputs in trial.outputs():
        answer = detection.detect(*detection.split_outputs(outputs), rule)
        (geometry,) = trial.samples.geometry(index).values()
        corners = geometry.to_source(answer.corners)
        found.append(detection.Detections(corners=corners, scores=answer.scores, classes=answer.classes))
    result = coco.evaluate(labels, names, found)
    return {
        "value": result.map50,
        "figures": {"map50": result.map50, "map": result.map},
        "examples": len(names),
        "evidence": result.matches.to_json(),
    }


def _top1(trial: Trial, options: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    if options:
        raise RecipeError(Fault(what=f"the metric top1 takes no options, not {', '.join(sorted(options))}"))
    sources = [_source(trial.samples, index) for index in range(trial.samples.count)]
    wanted = read_labels(paths, sources)
    right = []
    for index, outputs in trial.outputs():
        if len(outputs) != 1:
            raise StageError(Fault(what=f"top1 reads a model with one output, not {len(outputs)}"))
        (scores,) = outputs.values()
        if not 0 <= wanted[index] < scores.size:
            raise _bad_labels(
                f"{sources[index].where} has class {wanted[index]}, the model's are 0 to {scores.size - 1}"
            )
        right.append(int(np.argmax(scores)) == wanted[index])
    names = tuple(source.where for source in sources)
    hits = Hits(names=names, right=tuple(right))
    value = sum(right) / len(right)
    return {"value": value, "figures": {"top1": value}, "examples": len(right), "evidence": hits.to_json()}


def _source(samples: SampleSet, index: int) -> Source:
    sources = samples.sources(index)
    if not sources:
        raise StageError(Fault(what="random examples have no labels", hint="a metric needs real validation data"))
    return next(iter(sources.values()))


def read_labels(paths: Sequence[Path], sources: Sequence[Source]) -> list[int]:
    """Class of every example: ``labels`` of an npz (by the example's item), an npy, or JSON {file name: class}.

    Several files are the npz that hold the examples, in the order of their names. RecipeError where a file is something
    else or an example has no label.
    """
    data = [path.read_bytes() for path in paths]
    if len(data) == 1 and data[0][:1] in (b"{", b" ", b"\n"):
        return _json_labels(data[0], sources)
    names = sorted({source.name for source in sources})
    if len(data) == 1 and len(names) > 1:
        found = _array_labels(data[0])
        if len(found) != len(sources):
            raise _bad_labels(f"{len(found)} labels for {len(sources)} pictures")
        return found
    if len(data) != len(names):
        raise _bad_labels(f"{len(data)} files of labels for {len(names)} files of examples")
    tables = {name: _array_labels(part) for name, part in zip(names, data, strict=True)}
    items = [(source, source.item or 0) for source in sources]
    missing = [source.where for source, item in items if item >= len(tables[source.name])]
    if missing:
        raise _bad_labels(f"{len(missing)} pictures have none: {', '.join(missing[:5])}")
    return [tables[source.name][item] for source, item in items]


def _json_labels(data: bytes, sources: Sequence[Source]) -> list[int]:
    try:
        table = json.loads(data)
        by_name = {PurePosixPath(name).name: int(label) for name, label in table.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise _bad_labels(f"not a JSON object of file name and class: {error}") from error
    missing = [source.name for source in sources if PurePosixPath(source.name).name not in by_name]
    if missing:
        raise _bad_labels(f"{len(missing)} pictures have none: {', '.join(missing[:5])}")
    return [by_name[PurePosixPath(source.name).name] for source in sources]


def _array_labels(data: bytes) -> list[int]:
    named = arrays.read_arrays(data, name="labels.npz" if data[:2] == b"PK" else "labels.npy", labels=True)
    found = next((named[key] for key in (*arrays.LABELS, "") if key in named), None)
    if found is None or found.ndim > 1 or found.dtype.kind not in "iu":
        raise _bad_labels("the file needs an array `labels` of integers, one a picture")
    return [int(value) for value in found.reshape(-1)]


def _bad_labels(what: str) -> RecipeError:
    hint = "top1 needs the index of its class for every picture: {file name: class}, or an integer array"
    return RecipeError(Fault(what=f"labels that cannot be used: {what}", where="labels", hint=hint))
