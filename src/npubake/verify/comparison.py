"""verify: any two models compared tensor by tensor through their records. Paths in, figures out.

Tensors are paired by the name that both records trace them back to (``Provenance.old``), never by a guess; a tensor of
a model without a record stands for itself. A quantised tensor is read as ``factor * (value - zero_point)``. One example
is in memory at a time. Where the candidate takes what the board feeds (nv12, ...), the sample's pixels are encoded for
it, and the reference is fed what those tensors decode to: the figures measure the arithmetic, not the colour loss.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.inference import TensorSession, computed_tensors, input_dtypes, output_dtypes
from npubake.calibration.samples import SampleSet
from npubake.errors import Fault, StageError
from npubake.verify.feeding import Feeder
from npubake.verify.metrics import Figures, Sums, compare

Progress = Callable[[int, int], None]
Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One tensor of a model and how it stands for an older one: old = factor * (tensor - zero_point).

    factor: one number, or one a channel along ``axis`` (an int32 accumulator with a scale a channel).
    """

    name: str
    factor: float | tuple[float, ...] = 1.0
    zero_point: float = 0.0
    axis: int = 1

    def real(self, value: Array) -> Array:
        """The tensor in the older tensor's unit; float64 where a factor or zero point applies."""
        if self.factor == 1.0 and self.zero_point == 0.0:
            return value
        factor = np.asarray(self.factor, np.float64)
        if factor.ndim:
            factor = factor.reshape([-1 if axis == self.axis else 1 for axis in range(value.ndim)])
        real: Array = (value.astype(np.float64) - self.zero_point) * factor
        return real


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedModel:
    """A model file and its tensors by the name they are traced back to.

    outputs: model output by old name; inputs: dtypes by name; record: the JSON record, empty where the model has none.
    """

    path: Path
    tensors: Mapping[str, Traced]
    outputs: Mapping[str, Traced]
    inputs: Mapping[str, str]
    record: Mapping[str, Any]

    @classmethod
    def load(cls, path: Path, record_path: Path | None) -> TracedModel:
        """Pair the model's tensors with the record's entries that it still computes."""
        record = json.loads(record_path.read_text(encoding="utf-8")) if record_path else {}
        computed = dict.fromkeys(computed_tensors(path))
        traced: dict[str, Traced] = {}
        for entry in record.get("provenance", ()):
            if entry["relation"] in ("same", "scaled") and entry["new"] in computed:
                factor, zero = float(entry.get("factor", 1.0)), float(entry.get("zero_point", 0))
                traced.setdefault(entry["old"], Traced(name=entry["new"], factor=factor, zero_point=zero))
        if "provenance" not in record:
            traced = {name: Traced(name=name) for name in computed}
        outputs = _outputs(output_dtypes(path), traced, record)
        return cls(path=path, tensors=traced, outputs=outputs, inputs=input_dtypes(path), record=record)


def _outputs(dtypes: Mapping[str, str], traced: Mapping[str, Traced], record: Mapping[str, Any]) -> dict[str, Traced]:
    """Old name -> model output. An integer output is read by the record's ``outputs``: scale and zero point of the
    tensor ``integer`` that stands before the last node, and is itself the output where that node was removed.
    """
    facts = record.get("outputs", {})
    facts = facts if isinstance(facts, dict) else {}  # graph.json, a record too, has a list of names there
    removed = {fact["integer"]: name for name, fact in facts.items() if fact.get("integer")}
    old_of = {value.name: old for old, value in traced.items()}
    outputs = {}
    for name, dtype in dtypes.items():
        old = old_of.get(name, name)
        value = traced[old] if name in old_of else Traced(name=name)
        fact = facts.get(removed.get(name, name), {})
        if np.dtype(dtype).kind in "iu" and fact.get("scale"):
            old = removed.get(name, old)
            scale = np.atleast_1d(np.asarray(fact["scale"], np.float64))
            factor = float(scale[0]) if scale.size == 1 else tuple(scale.tolist())
            value = Traced(name=name, factor=factor, zero_point=float(fact["zero_point"]), axis=fact.get("axis", 1))
        outputs[old] = value
    return outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFigures:
    """Figures of one tensor over all examples. order: position among the reference's tensors, as they are computed;
    worst: the example with the lowest SQNR, and its figures.
    """

    name: str
    order: int
    figures: Figures
    worst_example: str
    worst: Figures

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "order": self.order,
            **self.figures.to_json(),
            "worst_example": self.worst_example,
            "worst": self.worst.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """outputs: in the reference's order; tensors: worst (lowest SQNR) first; unmatched: how many have no pair."""

    examples: int
    outputs: tuple[TensorFigures, ...]
    tensors: tuple[TensorFigures, ...]
    unmatched: int

    def to_json(self) -> dict[str, Any]:
        return {
            "examples": self.examples,
            "outputs": {entry.name: entry.to_json() for entry in self.outputs},
            "tensors": [entry.to_json() for entry in self.tensors],
            "unmatched": self.unmatched,
        }


@dataclass(slots=True)
class _Running:
    """Sums of one pair so far, and its worst example."""

    total: Sums = field(default_factory=Sums)
    worst: Figures | None = None
    where: str = ""

    def add(self, sums: Sums, where: str) -> None:
        self.total += sums
        figures = sums.figures()
        if self.worst is None or _rank(figures) < _rank(self.worst):
            self.worst, self.where = figures, where

    def result(self, name: str, order: int) -> TensorFigures:
        figures = self.total.figures()
        return TensorFigures(
            name=name, order=order, figures=figures, worst_example=self.where, worst=self.worst or figures
        )


def _rank(figures: Figures) -> float:
    """Lower is worse; NaN is the worst."""
    return -math.inf if math.isnan(figures.sqnr_db) else figures.sqnr_db


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How far to compare: limit of examples (None: all, else evenly spaced) and threads."""

    limit: int | None
    threads: int
    progress: Progress


def compare_models(reference: TracedModel, candidate: TracedModel, samples: SampleSet, run: Run) -> Comparison:
    """Figures of every pair of tensors, and of every output of the reference.

    StageError where an output of the reference has no counterpart, sizes differ, or there is no example.
    """
    pairs, outputs = _pairs(reference, candidate)
    feeder = Feeder.of(candidate.record, samples, candidate.inputs)
    left = TensorSession(reference.path, (pair[0].name for pair in pairs.values()), run.threads)
    right = TensorSession(candidate.path, (pair[1].name for pair in pairs.values()), run.threads)
    running = {old: _Running() for old in pairs}
    chosen = evenly(samples.count, run.limit)
    with ThreadPoolExecutor(max_workers=run.threads) as pool:
        for done, index in enumerate(chosen):
            feeds = feeder.read(index)
            one, two = left.run(feeds.reference), right.run(feeds.candidate)
            sums = list(pool.map(lambda old, a=one, b=two: _pair_sums(old, pairs[old], a, b), pairs))
            for old, value in zip(pairs, sums, strict=True):
                running[old].add(value, samples.describe(index))
            del one, two
            run.progress(done + 1, len(chosen))
    results = {old: running[old].result(old, order) for order, old in enumerate(pairs)}
    inner = [results[old] for old in pairs if old not in outputs]
    return Comparison(
        examples=len(chosen),
        outputs=tuple(results[old] for old in outputs),
        tensors=tuple(sorted(inner, key=lambda entry: (_rank(entry.figures), entry.order))),
        unmatched=len(set(reference.tensors) - set(pairs)),
    )


def evenly(count: int, limit: int | None) -> list[int]:
    """Indices of at most ``limit`` of ``count`` examples, evenly spaced. StageError where there is none."""
    if count == 0:
        raise StageError(Fault(what="the sample set holds no example", hint="give validation data"))
    wanted = count if limit is None else min(limit, count)
    return [index * count // wanted for index in range(wanted)]


def _pairs(reference: TracedModel, candidate: TracedModel) -> tuple[dict[str, tuple[Traced, Traced]], list[str]]:
    """Every pair by old name, in the reference's order, outputs included; and the old names of the outputs."""
    missing = [old for old in reference.outputs if old not in candidate.outputs]
    if missing:
        raise StageError(
            *(
                Fault(
                    what=f"output {name!r} has no counterpart in {candidate.path.name}",
                    hint="its record must say where the output went; outputs there: " + ", ".join(candidate.outputs),
                )
                for name in missing
            )
        )
    inner = {
        old: (left, candidate.tensors[old])
        for old, left in reference.tensors.items()
        if old in candidate.tensors and old not in reference.outputs
    }
    outputs = {old: (left, candidate.outputs[old]) for old, left in reference.outputs.items()}
    return inner | outputs, list(outputs)


def _pair_sums(old: str, pair: tuple[Traced, Traced], left: Mapping[str, Array], right: Mapping[str, Array]) -> Sums:
    one, two = left[pair[0].name], right[pair[1].name]
    if one.size != two.size:
        raise StageError(
            Fault(
                what=f"{old!r} has the shape {one.shape} in the reference and {two.shape} in the candidate",
                hint="the record pairs tensors that are not the same: report it with both models",
            )
        )
    if isinstance(pair[1].factor, float):  # in the kernel: no float64 copy of the tensor
        return compare(pair[0].real(one), two, factor=pair[1].factor, zero_point=pair[1].zero_point)
    return compare(pair[0].real(one), pair[1].real(two))
