"""Room ``graph``: the first boundary. A model and the golden arrays of the training framework enter, faults leave.

The archive is an npz whose keys are names of the model's inputs and outputs; where one name is both, or for order's
sake, the keys may be written ``input/NAME`` and ``output/NAME``. float64 and float16 arrays stand for float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npubake.errors import Fault, RecipeError, StageError
from npubake.graph.array_files import UnreadableArrayError, read_npz
from npubake.graph.execution import RUNTIME_ERRORS, cosine, run_model
from npubake.graph.inference import static_shape
from npubake.nearest import did_you_mean

Array = NDArray[Any]

DEFAULT_COSINE = 0.9999
BOUNDARY = "training framework -> ONNX"
SUSPECTS = "export, layout, preprocessing, or unsupported graph rewrite"


def compare_baseline(model: onnx.ModelProto, archive: Path, threshold: float = DEFAULT_COSINE) -> dict[str, float]:
    """Cosine of each output that ``archive`` holds. Raises RecipeError where the archive does not fit the model,
    StageError naming the boundary and the suspects where an output is below ``threshold``.
    """
    golden = _read(archive)
    feeds, wanted = _assign(model, golden, archive.name)
    try:
        answers = run_model(model, feeds, list(wanted))
    except RUNTIME_ERRORS as error:
        what = f"{BOUNDARY}: the model does not run on the baseline's inputs ({error})"
        hint = "check the values of integer inputs, and that ONNX Runtime knows every operator"
        raise StageError(Fault(what=what, where=archive.name, hint=hint)) from error
    cosines: dict[str, float] = {}
    faults: list[Fault] = []
    for name, expected in wanted.items():
        answer = answers[name]
        if answer.shape != expected.shape:
            what = f"{BOUNDARY}: output {name!r} has shape {answer.shape}, the baseline's has {expected.shape}"
            faults.append(Fault(what=what, where=name, hint=f"likely: {SUSPECTS}"))
            continue
        if not (np.isfinite(answer).all() and np.isfinite(expected).all()):
            what = f"{BOUNDARY}: output {name!r} or its baseline holds NaN or infinities"
            faults.append(Fault(what=what, where=name, hint=f"likely: {SUSPECTS}"))
            continue
        cosines[name] = cosine(answer, expected)
        if cosines[name] < threshold:
            what = f"{BOUNDARY}: output {name!r} has cosine {cosines[name]:.6f} with the baseline, below {threshold}"
            hint = f"likely: {SUSPECTS}; compare the exporter's input with what the framework was fed"
            faults.append(Fault(what=what, where=name, hint=hint))
    if faults:
        raise StageError(*faults)
    return cosines


def _read(archive: Path) -> dict[str, Array]:
    try:
        return read_npz(archive.read_bytes())
    except (OSError, UnreadableArrayError) as error:
        hint = "write it with numpy.savez(path, **{input name: array, output name: array})"
        raise RecipeError(
            Fault(
                what=f"this is no npz archive of plain arrays ({error})",
                where=archive.name,
                path="$.model.baseline",
                hint=hint,
            )
        ) from error


def _assign(
    model: onnx.ModelProto, golden: Mapping[str, Array], where: str
) -> tuple[dict[str, Array], dict[str, Array]]:
    """(feeds, expected outputs), float32, checked against the model."""
    inputs = {value.name: value for value in model.graph.input}
    outputs = [value.name for value in model.graph.output]
    feeds: dict[str, Array] = {}
    wanted: dict[str, Array] = {}
    faults: list[Fault] = []
    for key, value in golden.items():
        if key in inputs or key.removeprefix("input/") in inputs:
            name = key if key in inputs else key.removeprefix("input/")
            feeds[name], fault = _fitting(value, inputs[name], where)
            faults.extend([fault] if fault is not None else [])
        elif key in outputs or key.removeprefix("output/") in outputs:
            wanted[key if key in outputs else key.removeprefix("output/")] = value
        else:
            hint = did_you_mean(key, [*inputs, *outputs])
            faults.append(Fault(what=f"{key!r} is neither an input nor an output of the model", where=where, hint=hint))
    missing = [name for name in inputs if name not in feeds]
    faults.extend(
        Fault(
            what=f"the baseline holds no array for input {name!r}", where=where, hint=f"add it under the key {name!r}"
        )
        for name in missing
    )
    if not wanted:
        hint = f"add at least one of: {', '.join(outputs)}"
        faults.append(Fault(what="the baseline holds no output to compare with", where=where, hint=hint))
    if faults:
        raise RecipeError(*faults)
    return feeds, wanted


def _fitting(value: Array, wanted: onnx.ValueInfoProto, where: str) -> tuple[Array, Fault | None]:
    dtype = helper.tensor_dtype_to_np_dtype(wanted.type.tensor_type.elem_type)
    shape = static_shape(wanted)
    if value.dtype.kind == "f" == dtype.kind:
        value = value.astype(dtype)
    if value.dtype == dtype and value.shape == shape:
        return value, None
    what = f"input {wanted.name!r} is {value.dtype} {value.shape}, the model takes {dtype} {shape}"
    return value, Fault(
        what=what, where=where, hint="store what was fed to the training framework, in the model's shape"
    )
