"""The float side of every comparison: a subject's outputs on its held-out inputs, and the figure that is reported.

SQNR in dB of one output: 10 log10(sum of squares of the float values / sum of squares of the differences), both sums
over all held-out inputs and all elements (pooled), in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from models import Subject


def session(path: str, threads: int = 2) -> onnxruntime.InferenceSession:
    """A session that shares the machine: few threads, none of them spinning."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def float_outputs(subject: Subject) -> list[NDArray[Any]]:
    """Every output of the float model, held-out inputs joined along the first axis."""
    running, name = session(str(subject.model_path)), subject.input_name
    rows = [running.run(None, {name: sample[None]}) for sample in subject.held_out]
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def sqnr_of_outputs(reference: Sequence[NDArray[Any]], found: Sequence[NDArray[Any]]) -> list[float | None]:
    """The figure of each output; None where the found values are not finite."""
    return [sqnr_db(one, two) for one, two in zip(reference, found, strict=True)]


def sqnr_db(reference: NDArray[Any], found: NDArray[Any]) -> float | None:
    """Pooled SQNR in dB; inf where both are equal, None where ``found`` holds NaN or infinity."""
    one, two = reference.astype(np.float64), found.astype(np.float64)
    if not np.isfinite(two).all():
        return None
    noise = float(np.square(one - two).sum())
    return math.inf if noise == 0 else 10 * math.log10(float(np.square(one).sum()) / noise)
