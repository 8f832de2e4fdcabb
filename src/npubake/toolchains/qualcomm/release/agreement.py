"""Qualcomm toolchain: figures of a compiled artifact in the emulator, in the form that ``gate`` reads. Arrays in, JSON
out.

``outputs`` compares with the float model; ``agreement`` with the QDQ model that was compiled, on the same examples:
what the compiler's own arithmetic adds; ``quantised_sqnr_db`` beside it is what quantisation cost on these examples.
Both models are fed what the board's tensors decode to, so that the figures hold the arithmetic and not the colour loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault, StageError
from npubake.toolchains.board_edges import Arrays, BoardEdges
from npubake.toolchains.recorded import Recorded
from npubake.verify.boxes import IOU, BoxAgreement, compare_boxes
from npubake.verify.detection import SHOWN
from npubake.verify.metrics import Figures, Sums, compare

DETECTOR = "coco_map"  # the metric whose models answer with boxes


@dataclass(slots=True)
class _Pair:
    """Sums of one output over the examples so far, and its worst example."""

    total: Sums = field(default_factory=Sums)
    worst: Figures | None = None
    where: str = ""
    cosines: list[float] = field(default_factory=list)

    def add(self, reference: NDArray[Any], candidate: NDArray[Any], where: str) -> None:
        sums = compare(reference, candidate)
        self.total += sums
        found = sums.figures()
        self.cosines.append(found.cosine)
        if self.worst is None or _rank(found) < _rank(self.worst):
            self.worst, self.where = found, where

    def to_json(self) -> dict[str, Any]:
        worst, lowest = self.worst or self.total.figures(), float(np.min(self.cosines))  # NaN, if there is one
        return {
            **self.total.figures().to_json(),
            "worst_example": self.where,
            "worst": worst.to_json(),
            "min_cosine": None if np.isnan(lowest) else lowest,
        }


def _rank(figures: Figures) -> float:
    """Lower is worse; NaN is the worst."""
    return -np.inf if np.isnan(figures.sqnr_db) else figures.sqnr_db


class Agreement:
    """Collects one artifact's examples. contract: the artifact's; metric: the recipe's product metric, or ''."""

    def __init__(self, contract: Mapping[str, Any], metric: str) -> None:
        self._edges = BoardEdges(contract)
        self._entries: dict[str, Mapping[str, Any]] = {entry["model_output"]: entry for entry in contract["outputs"]}
        self._float: dict[str, _Pair] = {}
        self._qdq: dict[str, _Pair] = {}
        self._quantised: dict[str, _Pair] = {}
        self._boxes = BoxAgreement() if metric == DETECTOR else None
        boxes = self._entries.get("boxes") or next(iter(self._entries.values()))  # or all in one output
        self._box_step = float(boxes["scale"][0]) if boxes["scale"] else 0.0
        self._examples = 0

    def require(self, outputs: Sequence[str]) -> None:
        """Raises StageError for outputs of the float model that the artifact does not give."""
        hint = f"the artifact gives {', '.join(self._entries)}: report it with the record of adapt"
        faults = [
            Fault(where=name, what="the artifact has no such output", hint=hint)
            for name in outputs
            if name not in self._entries
        ]
        if faults:
            raise StageError(*faults)

    def real(self, outputs: Arrays) -> Arrays:
        """The artifact's outputs as real values, by the model's own names."""
        restored = self._edges.restore(outputs)
        return {name: restored[entry["name"]] for name, entry in self._entries.items()}

    def add(self, done: Recorded, reference: Arrays, quantised: Arrays) -> None:
        """One example. reference, quantised: outputs of the float and of the QDQ model, by the model's names."""
        found = self.real(dict(done.outputs))
        for name, value in reference.items():
            self._float.setdefault(name, _Pair()).add(value, found[name], done.example)
            self._qdq.setdefault(name, _Pair()).add(quantised[name], found[name], done.example)
            self._quantised.setdefault(name, _Pair()).add(value, quantised[name], done.example)
        if self._boxes is not None:
            self._boxes += compare_boxes(found, quantised, self._box_step)
        self._examples += 1

    def to_json(self) -> dict[str, Any]:
        """``examples``, ``outputs``, ``agreement`` and, of a detector, ``boxes``; no tensor inside is seen."""
        facts: dict[str, Any] = {
            "examples": self._examples,
            "outputs": {name: {"name": name, **pair.to_json()} for name, pair in self._float.items()},
            "tensors": [],
            "unmatched": 0,
            "agreement": {
                "between": "the artifact in the emulator and the QDQ model that it was compiled from",
                "outputs": {
                    name: {
                        **pair.to_json(),
                        "largest_steps": self._steps(name, pair),
                        "quantised_sqnr_db": self._quantised[name].to_json()["sqnr_db"],
                    }
                    for name, pair in self._qdq.items()
                },
            },
        }
        return facts if self._boxes is None else {**facts, "boxes": _boxes_json(self._boxes, self._box_step)}

    def _steps(self, name: str, pair: _Pair) -> int | None:
        """The largest difference in steps of the output's own scale; None for a float output, or one not finite."""
        scale, largest = self._entries[name]["scale"], pair.total.figures().max_abs
        return None if scale is None or not np.isfinite(largest) else round(largest / scale[0])


def _boxes_json(boxes: BoxAgreement, step: float) -> dict[str, Any]:
    return {
        "between": "the artifact in the emulator and the QDQ model",
        "fraction": boxes.fraction,
        "matched": boxes.matched,
        "within_a_step": boxes.near,
        "step_pixels": step,
        "only_candidate": boxes.only_left,
        "only_quantised": boxes.only_right,
        "iou": IOU,
        "rule": asdict(SHOWN),
    }
