"""Qualcomm toolchain: AIMET as the quantiser, from the float model and samples to its QDQ model and facts about it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from npubake.errors import Fault, StageError
from npubake.graph.inference import infer_shapes
from npubake.graph.model_file import load_model
from npubake.graph.summary import GraphSummary
from npubake.toolchains.process import run_module
from npubake.toolchains.qualcomm.aimet.coverage import Coverage, covered
from npubake.toolchains.qualcomm.aimet.encodings import Encodings, read_encodings
from npubake.toolchains.qualcomm.aimet.qdq import Quantiser, Renamed, form_faults, renamed
from npubake.toolchains.qualcomm.aimet.settings import ENCODINGS, FLOAT, PROGRESS, QUANTISED, Settings

MODULE = "npubake.toolchains.qualcomm.aimet.simulation"
_TIMEOUT = 4 * 3600.0  # seconds; AIMET runs the float model in one thread, over every sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """model: QDQ, with the float model's nodes, inputs and outputs; encodings: AIMET's own file; record: JSON facts."""

    model: onnx.ModelProto
    encodings: str
    record: dict[str, Any]


def quantise(
    floating: Path,
    samples: Path,
    summary: GraphSummary,
    settings: Settings,
    progress: Callable[[int], None] = lambda _seen: None,
) -> Quantised:
    """Run AIMET on the model ``floating`` (a file) with a sample set, in a clean process.

    progress: called with the examples seen so far. Raises StageError where AIMET fails, leaves a tensor without an
    encoding that npubake would quantise, writes a form that the compiler takes wrongly, or contradicts its own file.
    """
    with tempfile.TemporaryDirectory(prefix="npubake-aimet-") as name:
        folder = Path(name)
        shutil.copyfile(floating, folder / FLOAT)
        request = {"model": FLOAT, "samples": str(samples.resolve()), "settings": settings.to_json()}
        seen = _Seen(folder / PROGRESS, progress)
        answer = run_module(MODULE, request, folder=folder, timeout=_TIMEOUT, watch=seen)
        quantised = load_model(folder / QUANTISED)
        text = (folder / ENCODINGS).read_text(encoding="utf-8")
    made = renamed(load_model(floating), quantised)
    fused = [(first, second) for first, second in answer["fused"]]
    found = covered(summary, made.quantisers.keys(), fused)
    faults = [*found.faults(), *form_faults(made.quantisers, made.model)]
    faults += _contradictions(read_encodings(text), made.quantisers)
    if faults:
        raise StageError(*faults, facts={"coverage": found.to_json()})
    record = _record(made, found, settings, answer)
    return Quantised(model=infer_shapes(made.model), encodings=text, record=record)


class _Seen:
    """Tells ``progress`` of each new count in the file that the process keeps."""

    def __init__(self, file: Path, progress: Callable[[int], None]) -> None:
        self._file, self._progress, self._last = file, progress, 0

    def __call__(self) -> None:
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        if text.isdigit() and int(text) > self._last:  # the process may be in the middle of writing
            self._last = int(text)
            self._progress(self._last)


def _contradictions(encodings: Encodings, quantisers: Mapping[str, Quantiser]) -> Iterator[Fault]:
    """Tensors that AIMET's encodings and its QDQ model hold differently: one of the two would be deployed wrongly."""
    for name, wanted in {**encodings.activations, **encodings.parameters}.items():
        found = quantisers.get(name)
        if found is None:
            continue
        zero = wanted.zero_points(signed=not found.dtype.startswith("u"))
        scales = [np.float32(scale) for scale in found.scale] == [np.float32(scale) for scale in wanted.scales]
        if not scales or found.zero_point != zero or not found.dtype.endswith(f"int{wanted.bits}"):
            what = f"AIMET's QDQ model holds {name} in {found.dtype} otherwise than its encodings say"
            yield Fault(what=what, where=name)


def _record(made: Renamed, found: Coverage, settings: Settings, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Facts in the form of adapt's record (docs of the stage), and how AIMET was asked."""
    held = made.quantisers
    return {
        "version": 1,
        "quantiser": {"name": "aimet", "settings": settings.to_json(), "versions": dict(answer["versions"])},
        "provenance": [asdict(entry) for entry in made.provenance],
        "tensors": {
            name: {
                "dtype": entry.dtype,
                "scale": entry.scale[0],
                "zero_point": entry.zero_point[0],
                "by": "constant" if entry.constant else "parameters",
            }
            for name, entry in sorted(held.items())
            if entry.axis is None and entry.dtype != "int32"
        },
        "weights": {
            name: {"dtype": entry.dtype, "axis": entry.axis, "granularity": "per_channel"}
            for name, entry in sorted(held.items())
            if entry.axis is not None and entry.constant and entry.dtype != "int32"
        },
        "coverage": found.to_json(),
    }
