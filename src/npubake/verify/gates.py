"""verify: figures against thresholds. JSON in, verdict out; pure and instant; no model, no samples.

A figure passes when it is at least its threshold; NaN (null) fails. The product metric is judged by a bootstrap: it
fails only where the lower bound of the drop is above ``max_drop``, and warns where the drop itself is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from npubake.errors import Fault, StageError
from npubake.verify.bootstrap import paired_drop
from npubake.verify.evidence import evidence_from_json

BOXES = "boxes_matched"  # figure of a detector: the share of boxes that two models both show
UNITS = {"cosine": "", "sqnr_db": " dB", "max_abs": ""}
# An artifact whose own arithmetic adds four times the noise of the quantisation (6 dB), and shows (below 40 dB), is
# told of: a kernel that was fused wrongly cost a detector 11 dB with every gate passed (QNN 2.51.0).
_FOREIGN_NOISE_DB, _SHOWS_DB = 6.0, 40.0
_NOT_QUANTISED_DB = 150.0  # float32 itself ends at about 150 dB
_LADDER = "better calibration data, asymmetric ranges, per-channel weights, percentile, int16 layers, a16w8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where two models are compared, who is suspected when they differ, and what to do first.

    thresholds: the starting values of the seed documents; a recipe's own come first. alone: suspect and action once
    the boundaries before it are known to pass; empty where none is asked.
    """

    between: str
    suspect: str
    action: str
    thresholds: Mapping[str, float]
    alone: tuple[str, str] | None = None


BOUNDARIES: Mapping[str, Boundary] = {
    "baseline": Boundary(
        between="the training framework and the original float model",
        suspect="the export: layout, preprocessing, or an operator that was rewritten",
        action="feed both the same tensor, and compare layout and scaling of the input",
        thresholds={"cosine": 0.9999},
    ),
    "optimized": Boundary(
        between="the original and the optimised float model",
        suspect="optimize: its rewrites must not change the function",
        action="compare the two tensor by tensor: the first that differs names the rewrite",
        thresholds={"cosine": 0.9999},
    ),
    "calibrated": Boundary(
        between="the optimised float model and the fake-quantised one",
        suspect="calibrate: calibration data, ranges, or too few bits for a sensitive layer",
        action="check that the calibration pictures resemble the product's and went through its preprocessing; "
        "then try 'tuning: {level: best}', and for the worst layers listed int16, or int8 weights where those have 4",
        thresholds={"cosine": 0.99, "sqnr_db": 20.0},
    ),
    "ptq": Boundary(
        between="the fake-quantised model and the one with lookup tables",
        suspect="ptq: a lookup table of a nonlinear operator",
        action="look at the first table in the list of worst tensors, and at its error bound in the record",
        thresholds={"cosine": 0.99, "sqnr_db": 20.0},
    ),
    "quantized": Boundary(
        between="the optimised float model and the integer model",
        suspect="quantize, or what calibrate decided: compare the calibrated boundary first",
        action="if the calibrated boundary passes, compare input preparation (runtime input, range, mean, scale); "
        "if it fails too, better calibration data, then wider types for the worst layers listed",
        thresholds={"cosine": 0.99, "sqnr_db": 20.0},
        alone=(
            "quantize, or input preparation",
            "compare input preparation (runtime input, range, mean, scale), then the record of quantize",
        ),
    ),
    "deployable": Boundary(
        between="the integer model and the deployable",
        suspect="compile or the runtime: input preparation, stride alignment, or the type of the last output",
        action="check the strides of the inputs and whether the outputs are int32 or float32 on this platform",
        thresholds={"cosine": 0.9999},
    ),
    "converted": Boundary(
        between="the optimised float model and what the vendor's compiler made of it, run in its emulator",
        suspect="compile: the conversion itself (operator support, tensor names, layout), before any quantisation",
        action="compare the outputs listed: one that is wrong alone points at an operator; all of them at input names "
        "or layout, or at values beyond 65504, which float16 has not: an integer lane is none the worse for those, and "
        "thresholds of null (gates.converted) measure without judging",
        thresholds={"cosine": 0.999, "sqnr_db": 30.0},
    ),
    "compiled": Boundary(
        between="the optimised float model and the compiled artifact, run in the vendor's emulator",
        suspect="the compiler's kernels where the quantized boundary passes; else what calibrate decided",
        action="compare the agreement of emulator and QDQ model: where they differ, give the worst layers int16; "
        f"else climb the ladder: {_LADDER}",
        thresholds={"cosine": 0.99, "sqnr_db": 20.0},
    ),
    "product": Boundary(
        between="the product metric of the float model and of the quantised one",
        suspect="quantisation where the tensor gates fail too; else preprocessing, decoding or thresholds",
        action=f"if the quantised boundary passes, check preprocessing and decoding; else climb the ladder: {_LADDER}",
        thresholds={"max_drop": 0.01},
        alone=(
            "preprocessing, decoding or thresholds of the metric",
            f"check preprocessing and decoding; else climb the ladder: {_LADDER}",
        ),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One figure of one output against one threshold. value: None for NaN; warning: passed, but look at it; part: of
    the artifact, where the gate judges several.
    """

    boundary: str
    output: str
    figure: str
    value: float | None
    threshold: float
    passed: bool
    warning: str = ""
    detail: Mapping[str, float] | None = None
    part: str = ""

    @property
    def label(self) -> str:
        """The output as people read it."""
        return f"{self.output} on {self.part}" if self.part else self.output

    def to_json(self) -> dict[str, Any]:
        """As a verdict has it; ``output`` names the part too."""
        facts = {**asdict(self), "output": self.label}
        del facts["part"]
        return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What is asked at one boundary. thresholds: figure -> value; suspect, action: the table's, unless given; parts:
    whose figures are given, in their order, where the artifact has several.
    """

    boundary: str
    thresholds: Mapping[str, float]
    suspect: str
    action: str
    parts: tuple[str, ...] = ()

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Gate:
        """From the stage's parameters; what is left out comes from the table."""
        known = BOUNDARIES.get(params["boundary"])
        if known is None:
            what = f"no boundary is called {params['boundary']!r}"
            raise StageError(Fault(what=what, hint=", ".join(BOUNDARIES)))
        return cls(
            boundary=params["boundary"],
            thresholds=params.get("thresholds") or known.thresholds,
            suspect=params.get("suspect") or known.suspect,
            action=params.get("action") or known.action,
            parts=tuple(params.get("parts", ())),
        )


def judge(gate: Gate, figures: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Every figure against its threshold, in the order of outputs. figures: of a measure, or of the product metric of
    the reference and then of the candidate. StageError for figures that a gate cannot read.
    """
    if figures and all(entry["kind"] == "product" for entry in figures):
        return [_judge_product(gate, figures)]
    if gate.parts and len(gate.parts) != len(figures):
        what = f"figures of {len(figures)} parts, wanted those of {', '.join(gate.parts)}"
        raise StageError(Fault(what=what, where=gate.boundary))
    return [
        replace(check, part=part)
        for entry, part in zip(figures, gate.parts or ("",) * len(figures), strict=True)
        for check in (*_judge_tensors(gate, entry), *_judge_boxes(gate, entry))
    ]


def _judge_tensors(gate: Gate, figures: Mapping[str, Any]) -> list[Check]:
    known = {*UNITS, BOXES} if figures.get("boxes") else {*UNITS}
    unknown = sorted(set(gate.thresholds) - known)
    if unknown or not figures["outputs"]:
        what = f"no figure is called {', '.join(unknown)}" if unknown else "the measure compared no output"
        raise StageError(Fault(what=what, where=gate.boundary, hint="figures: " + ", ".join(UNITS)))
    checks = []
    for output, found in figures["outputs"].items():
        for figure, threshold in sorted((name, value) for name, value in gate.thresholds.items() if name != BOXES):
            value = found[figure]
            good = value is not None and (value <= threshold if figure == "max_abs" else value >= threshold)
            checks.append(
                Check(
                    boundary=gate.boundary,
                    output=output,
                    figure=figure,
                    value=value,
                    threshold=threshold,
                    passed=good,
                    warning=_foreign_noise(output, figures) if good and figure == "sqnr_db" else "",
                )
            )
    return checks


def _foreign_noise(output: str, figures: Mapping[str, Any]) -> str:
    """A sentence where an artifact differs from the model that it was made of by more than quantisation explains."""
    found = figures.get("agreement", {}).get("outputs", {}).get(output, {})
    between, quantised = found.get("sqnr_db"), found.get("quantised_sqnr_db")
    if between is None or quantised is None or quantised > _NOT_QUANTISED_DB:
        return ""
    if between > min(_SHOWS_DB, quantised - _FOREIGN_NOISE_DB):
        return ""
    return (
        f"{output}: the artifact and the QDQ model that it was made of differ by {between:.1f} dB, quantisation by "
        f"{quantised:.1f} dB: kernels of the compiler compute otherwise; compare their outputs layer by layer"
    )


def _judge_boxes(gate: Gate, figures: Mapping[str, Any]) -> list[Check]:
    """Of a detector: the share of boxes that the candidate and the model that it was made of both show."""
    boxes, threshold = figures.get("boxes"), gate.thresholds.get(BOXES)
    if boxes is None or threshold is None:
        return []
    counts = {name: float(boxes[name]) for name in ("matched", "within_a_step", "only_candidate", "only_quantised")}
    warning = "" if any(counts.values()) else "neither model shows a box in any example: nothing was compared"
    return [
        Check(
            boundary=gate.boundary,
            output="detections",
            figure=BOXES,
            value=boxes["fraction"],
            threshold=threshold,
            passed=boxes["fraction"] >= threshold,
            warning=warning,
        )
    ]


def _judge_product(gate: Gate, figures: Sequence[Mapping[str, Any]]) -> Check:
    if len(figures) != 2 or figures[0]["metric"] != figures[1]["metric"]:
        raise StageError(Fault(what="a product gate reads one metric of two models", where=gate.boundary))
    limit, confidence = gate.thresholds.get("max_drop", 0.01), gate.thresholds.get("confidence", 0.95)
    reference, candidate = (evidence_from_json(entry["evidence"]) for entry in figures)
    drop = paired_drop(reference, candidate, confidence)
    warning = ""
    if drop.lower <= limit < drop.drop:
        bound = f"lower bound with {confidence:.0%} confidence {drop.lower:.4f}"
        warning = f"the drop is {drop.drop:.4f}, above {limit}, which may be noise ({bound}): measure on more pictures"
    return Check(
        boundary=gate.boundary,
        output=figures[0]["metric"],
        figure="drop",
        value=drop.drop,
        threshold=limit,
        passed=drop.lower <= limit,
        warning=warning,
        detail={**asdict(drop), "confidence": confidence},
    )
