"""Qualcomm toolchain, SDK road: what one who runs the SDK by hand takes from a build. Bytes and data in, files out.

Nothing of an SDK is needed here. Every file's bytes follow from the build alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.calibration.samples import SampleSet
from npubake.errors import Fault, StageError
from npubake.graph.summary import GraphSummary
from npubake.quant.parameters import QuantizationParameters
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.qairt import backend_config, commands
from npubake.toolchains.qualcomm.qairt.commands import Conversion
from npubake.toolchains.qualcomm.qairt.encodings import (
    FLOAT_BITS,
    Encodings,
    EncodingsVersion,
    check_encodings,
    encodings_text,
    of_file,
    of_parameters,
    of_record,
)
from npubake.toolchains.qualcomm.qairt.picture_edges import pictures
from npubake.toolchains.qualcomm.qairt.raw_files import LIST, RawFile, files_of, list_text
from npubake.toolchains.qualcomm.qairt.script import here_document, script_text
from npubake.toolchains.qualcomm.qairt.sdk import EXTENSIONS
from npubake.verify.feeding import Feeder

SCRIPT = "run_qairt.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a build decided. summary: of the float model that the scales are for; record: ``adapt``'s, where the target
    has that stage; file: what another quantiser wrote, in place of parameters.
    """

    summary: GraphSummary
    parameters: QuantizationParameters | None = None
    record: Mapping[str, Any] | None = None
    file: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRequest:
    """What the script is for."""

    name: str
    platform: HtpPlatform
    options: CompilerOptions
    conversion: Conversion


def encodings_of(decided: Decided, model: onnx.ModelProto) -> Encodings:
    """All scales of a build. Raises StageError where it quantises nothing."""
    if decided.file is not None:
        check_encodings(decided.file)
        return of_file(decided.file)
    if decided.parameters is None:
        raise StageError(
            Fault(what="the target quantises nothing: there are no encodings", hint="take an integer lane")
        )
    if decided.record is not None:
        return of_record(decided.record, decided.parameters, [tensor.name for tensor in model.graph.initializer])
    return of_parameters(decided.parameters, float_tensors(decided.summary, decided.parameters))


def float_tensors(summary: GraphSummary, parameters: QuantizationParameters) -> dict[str, str]:
    """What groups in float make -> float16 or float32; tensors of other types (indices, masks) are left out."""
    return {
        name: precision
        for group in summary.groups
        if (precision := parameters.groups[group.name].precision) in FLOAT_BITS
        for name in group.outputs
        if summary.tensors[name].dtype == "float32"
    }


def encodings_file(encodings: Encodings, version: EncodingsVersion) -> bytes:
    """The file, held to its own specification."""
    text = encodings_text(encodings, version)
    check_encodings(json.loads(text))
    return text.encode()


def sample_files(samples: SampleSet) -> Iterator[RawFile]:
    """Raw files of every example as the float model is fed, one example at a time, and the list last.

    float32 in the model's own layout; inputs of other types keep theirs.
    """
    dtypes = {name: form.dtype for name, form in samples.inputs.items() if form.dtype != "float32"}
    yield from _listed(samples, samples.read, dtypes)


def board_files(samples: SampleSet, record: Mapping[str, Any]) -> Iterator[RawFile]:
    """The same as the binary is fed, in float32, which qnn-net-run rounds to the input's codes: pictures are pixel
    values times the step of their encoding; in a lane without encodings the pixel values. record: ``adapt``'s.
    """
    dtypes = {name: form.dtype for name, form in samples.inputs.items() if form.dtype != "float32"}
    steps = {name: float(record["inputs"][name]["scale"]) if record["tensors"] else 1.0 for name in pictures(record)}
    feeder = Feeder.of(record, samples)

    def read(index: int) -> dict[str, NDArray[Any]]:
        return {name: value * np.float32(steps[name]) if name in steps else value
                for name, value in feeder.candidate(index).items()}  # fmt: skip

    yield from _listed(samples, read, dtypes)


def _listed(
    samples: SampleSet, read: Callable[[int], Mapping[str, NDArray[Any]]], dtypes: Mapping[str, str]
) -> Iterator[RawFile]:
    listed = list_text(list(samples.inputs), samples.count)  # refuses names before anything is written
    for index in range(samples.count):
        yield from files_of(index, read(index), dtypes)
    yield RawFile(path=LIST, data=listed.encode())


def script_file(request: ScriptRequest) -> bytes:
    """``run_qairt.sh``: from ``model.onnx`` to the binary, what it says of itself, and its run on the input list."""
    asked = request.conversion
    inner = backend_config.inner_text(request.platform, request.options, commands.GRAPH, asked.version)
    configuration = "\n".join(
        [
            here_document(backend_config.OUTER, backend_config.outer_text(commands.library(EXTENSIONS))),
            here_document(backend_config.INNER, inner),
            "",
        ]
    )
    text = script_text(
        f"{request.name} for {request.platform.name}",
        asked.version,
        [*commands.conversion(asked), commands.read_back(), commands.net_run(native=False)],
        folders=("float", commands.BINARY_FOLDER),
        inner=configuration,
    )
    return text.encode()
