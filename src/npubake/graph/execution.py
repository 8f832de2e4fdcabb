"""Room ``graph``: run a float model on the CPU. A model and feeds enter, arrays leave.

One thread and ONNX Runtime's own graph rewriting switched off: what is compared is the graph that was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as states

from npubake.graph.inference import static_shape
from npubake.graph.model_file import serialise

Array = NDArray[Any]

# What a session raises when it cannot load or run a model: its status codes, RuntimeError for unknown types.
RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    states.Fail,
    states.InvalidArgument,
    states.InvalidGraph,
    states.InvalidProtobuf,
    states.NoSuchFile,
    states.NotImplemented,
    states.RuntimeException,
    RuntimeError,
    ValueError,
)


def run_model(
    model: onnx.ModelProto, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None
) -> dict[str, Array]:
    """Outputs of ``model`` by name; ``outputs`` may name intermediate tensors too (default: the graph's outputs).

    Raises one of ``RUNTIME_ERRORS`` when ONNX Runtime cannot load or run the model.
    """
    wanted = list(outputs) if outputs is not None else [value.name for value in model.graph.output]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        serialise(_exposing(model, wanted)), options, providers=["CPUExecutionProvider"]
    )
    return dict(zip(wanted, session.run(wanted, dict(feeds)), strict=True))


def evaluate(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of ``model`` by onnx's own evaluator: slow, for opsets and types of which ONNX Runtime has no kernel.

    Raises RuntimeError or ValueError (both ``RUNTIME_ERRORS``) where it cannot. The evaluator is plain Python: what its
    operators do not take ends in whatever error their lines raise.
    """
    names = [value.name for value in model.graph.output]
    try:
        with np.errstate(all="ignore"):  # what overflows shows in the outputs
            answers = ReferenceEvaluator(model).run(names, dict(feeds))
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"onnx's evaluator does not run it ({type(error).__name__}: {error})") from error
    return dict(zip(names, map(np.asarray, answers), strict=True))


def random_feeds(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Feeds of the model's static shapes: standard normal floats, small non-negative integers, random booleans."""
    generator = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        shape = static_shape(value)
        if shape is None:
            raise ValueError(f"input {value.name!r} has no static shape")
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype.kind == "f":
            feeds[value.name] = generator.standard_normal(shape).astype(dtype)
        else:
            feeds[value.name] = generator.integers(0, 2, shape).astype(dtype)
    return feeds


def cosine(left: Array, right: Array) -> float:
    """Cosine of the angle between two arrays, in float64; two zero arrays are equal (1), NaN anywhere gives 0."""
    a, b = left.astype(np.float64).ravel(), right.astype(np.float64).ravel()
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return 0.0
    norm = float(np.sqrt((a * a).sum()) * np.sqrt((b * b).sum()))
    if norm == 0.0:
        return 1.0 if not a.any() and not b.any() else 0.0
    return float((a * b).sum() / norm)


def _exposing(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    known = {value.name for value in model.graph.output}
    extra = [name for name in names if name not in known]
    if not extra:
        return model
    facts = {value.name: value for value in (*model.graph.value_info, *model.graph.input)}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(facts.get(name, onnx.ValueInfoProto(name=name)) for name in extra)
    return copy
