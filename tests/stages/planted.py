"""The real classifier, its validation data, and faults planted in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.calibration.sets import PREPARED, build, request, summary

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "digits_mobilenet.onnx"
VALIDATION = ROOT / "data" / "digits_cls" / "validation.npz"


def validation_set(folder: Path, count: int) -> Path:
    """A sample set of ``count`` labelled digits."""
    build([{"": VALIDATION}], summary(onnx.load(MODEL)), request(PREPARED, count=count), folder / "samples.npz")
    return folder / "samples.npz"


def faulty(folder: Path, name: str, change: Callable[[onnx.ModelProto], None]) -> Path:
    model = onnx.load(MODEL)
    change(model)
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def wrong_bias(model: onnx.ModelProto) -> None:
    """A rewrite that changes the function: one channel of the last layer's bias is off by a little."""
    gemm = next(node for node in reversed(model.graph.node) if node.op_type == "Gemm")
    _change(model, gemm.input[2], lambda bias: bias + np.eye(1, len(bias), 3, dtype=np.float32)[0] * np.float32(0.7))


def coarse_output(model: onnx.ModelProto) -> None:
    """Too few bits where they matter: the logits on a grid of 4."""
    _on_output(model, [("Div", ["four"]), ("Round", []), ("Mul", ["four"])], {"four": np.array(4, np.float32)})


def clipped_output(model: onnx.ModelProto) -> None:
    """A range that cuts the signal: the logits between -1 and 1."""
    limits = {"low": np.array(-1, np.float32), "high": np.array(1, np.float32)}
    _on_output(model, [("Clip", ["low", "high"])], limits)


def shifted_classes(model: onnx.ModelProto) -> None:
    """Decoding that disagrees: class k is answered as k + 1. Tensors look alike, answers do not."""
    _on_output(model, [("Gather", ["order"])], {"order": np.roll(np.arange(10), 1)}, axis=1)


def not_a_number(model: onnx.ModelProto) -> None:
    """0 / 0 at the output."""
    _on_output(model, [("Mul", ["none"]), ("Div", ["none"])], {"none": np.array(0, np.float32)})


def shifted_accumulator(model: onnx.ModelProto) -> None:
    """An integer model with one int32 bias off by 5,000 steps."""
    int32 = onnx.TensorProto.INT32
    bias = next(tensor for tensor in model.graph.initializer if tensor.data_type == int32 and tensor.dims)
    offset = np.zeros(bias.dims, np.int32)
    offset.flat[0] = 5000
    _change(model, bias.name, lambda values: values + offset)


def _change(model: onnx.ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor).copy()), name))


def _on_output(
    model: onnx.ModelProto, steps: list[tuple[str, list[str]]], constants: dict[str, np.ndarray], **attributes: Any
) -> None:
    """Nodes between what makes ``logits`` and ``logits``."""
    last = next(node for node in model.graph.node if "logits" in node.output)
    last.output[list(last.output).index("logits")] = "plant/0"
    for index, (op_type, extra) in enumerate(steps):
        output = "logits" if index == len(steps) - 1 else f"plant/{index + 1}"
        inputs = [f"plant/{index}", *extra]
        model.graph.node.append(helper.make_node(op_type, inputs, [output], name=f"plant/{op_type}", **attributes))
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
