"""What stands between a board's bytes and the model, for the converter: values by numpy, encodings by their rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.fixedpoint.colour import RuntimeInput
from npubake.toolchains.qualcomm.adapting.request import AdaptRequest
from npubake.toolchains.qualcomm.qairt.encodings import Encoding, Encodings, of_record
from npubake.toolchains.qualcomm.qairt.picture_edges import fed_model, lines, pictures
from tests.fixedpoint.builds import float_model, node, session
from tests.qualcomm.emulated import adapted

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KINDS = [("rgb", "rgb"), ("bgr", "rgb"), ("rgb", "bgr"), ("gray", "gray")]


class Case:
    """A convolution behind a picture of 6 x 10, adapted, and what the converter would be given of it."""

    def __init__(self, kind: str, channels: str, layout: str, lane: str, *, normalised: bool) -> None:
        random = np.random.default_rng(5)
        self.count = 1 if channels == "gray" else 3
        self.mean: tuple[float, ...] | None = MEAN[: self.count] if normalised else None
        self.std: tuple[float, ...] | None = STD[: self.count] if normalised else None
        self.kind, self.channels, self.layout, self.lane = kind, channels, layout, lane
        facts = {"type": kind, "channels": channels, "mean": self.mean, "std": self.std}
        held = {"w": random.standard_normal((4, self.count, 3, 3)).astype(np.float32)}
        shape = [1, self.count, 6, 10] if layout == "NCHW" else [1, 6, 10, self.count]
        nodes = [node("Conv", "x w", "out")]
        if layout == "NHWC":
            nodes = [node("Transpose", "x", "turned", perm=[0, 3, 1, 2]), node("Conv", "turned w", "out")]
        self.model = float_model(nodes, {"x": shape}, held, ["out"])
        ends = (-2.2, 2.7) if normalised else (0.0, 1.0)
        feeds = [{"x": np.linspace(*ends, int(np.prod(shape)), dtype=np.float32).reshape(shape)}]
        request = AdaptRequest(lane=lane, runtime=(RuntimeInput.from_facts("x", facts),))
        self.record: dict[str, Any] = adapted(self.model, feeds, lane, request).record
        integer = lane != "fp16"
        encodings = of_record(self.record, None, ["w"]) if integer else None
        self.fed = fed_model(self.model, encodings, self.record)
        self.bytes = random.integers(0, 256, (6, 10, self.count), dtype=np.uint8)

    @property
    def encodings(self) -> Encodings:
        assert self.fed.encodings is not None
        return self.fed.encodings

    @property
    def entry(self) -> dict[str, Encoding]:
        return {entry.name: entry for entry in self.encodings.activations}

    @property
    def picture(self) -> NDArray[np.uint8]:
        """As the board feeds it."""
        return self.bytes[None] if self.kind != "gray" else self.bytes[None].transpose(0, 3, 1, 2)

    @property
    def real(self) -> NDArray[np.float32]:
        """What the model's input is to be: (p / 255 - mean) / std, channels and layout the model's."""
        turned = self.bytes if self.kind == self.channels else self.bytes[..., ::-1]
        values = turned.astype(np.float64) / 255
        if self.mean is not None and self.std is not None:
            values = (values - np.array(self.mean)) / np.array(self.std)
        held = values[None] if self.layout == "NHWC" else values[None].transpose(0, 3, 1, 2)
        return held.astype(np.float32)

    @property
    def last(self) -> str:
        """The tensor that the model's first node reads now."""
        first = next(each for each in self.fed.model.graph.node if each.name == self.model.graph.node[0].name)
        return str(first.input[0])


ALL = [
    pytest.param(kind, channels, layout, lane, normalised, id=f"{kind}-{channels}-{layout}-{lane}-{normalised}")
    for kind, channels in KINDS
    for layout in ("NCHW", "NHWC")
    for lane in ("a8w8", "a16w8", "fp16")
    for normalised in (False, True)
]


@pytest.mark.parametrize(("kind", "channels", "layout", "lane", "normalised"), ALL)
def test_bytes_become_what_the_model_was_fed(
    kind: str, channels: str, layout: str, lane: str, normalised: bool
) -> None:
    case = Case(kind, channels, layout, lane, normalised=normalised)
    (value,) = case.fed.model.graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    assert shape == list(case.picture.shape) == case.record["inputs"]["x"]["shape"]
    picture: NDArray[Any] = case.picture
    if lane != "fp16":  # codes of the input's encoding
        held = case.entry["x"]
        assert (held.bits, held.offsets, held.scales) == (8, (0,), (case.record["inputs"]["x"]["scale"],))
        picture = (case.picture * np.float64(held.scales[0])).astype(np.float32)
    onnx.checker.check_model(case.fed.model)
    found = session(case.fed.model).run(None, {"x": picture})[0]
    wanted = session(case.model).run(None, {"x": case.real})[0]
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.parametrize(
    ("kind", "channels", "layout", "lane", "normalised"), [p for p in ALL if "fp16" not in p.values]
)
def test_every_tensor_behind_the_bytes_has_an_encoding(
    kind: str, channels: str, layout: str, lane: str, normalised: bool
) -> None:
    """A Transpose's operand and result hold the same; the last tensor holds what the model's input held."""
    case = Case(kind, channels, layout, lane, normalised=normalised)
    grid = case.record["tensors"]["x"]
    bits = 8 if grid["dtype"] == "uint8" else 16
    last = case.entry[case.last]
    assert (last.bits, last.scales, last.offsets) == (bits, (grid["scale"],), (-grid["zero_point"],))
    added = [each for each in case.fed.model.graph.node if each.name.startswith("x/")]
    tensors = ["x", *(name for each in added for name in each.output)]
    assert set(tensors) <= set(case.entry)
    for each in added:
        if each.op_type == "Transpose":
            before, behind = case.entry[each.input[0]], case.entry[each.output[0]]
            assert (before.bits, before.scales, before.offsets) == (behind.bits, behind.scales, behind.offsets)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in case.fed.model.graph.initializer}
    weights = {entry.name: entry for entry in case.encodings.weights}
    for each in added:
        if each.op_type == "Conv":
            entry = weights[each.input[1]]
            codes = held[each.input[1]][..., 0, 0] / np.array(entry.scales)[:, None]
            assert np.abs(codes - np.rint(codes)).max() < 1e-5
            assert set(np.abs(np.rint(codes)).ravel()) <= {0, 64}
            assert set(entry.offsets) == {-128}


def test_bytes_that_are_the_codes_pass_no_arithmetic() -> None:
    case = Case("rgb", "rgb", "NCHW", "a8w8", normalised=False)
    assert [each.op_type for each in case.fed.model.graph.node] == ["Transpose", "Conv"]


def test_names_that_are_taken_stay_the_models() -> None:
    case = Case("rgb", "rgb", "NCHW", "a8w8", normalised=False)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.node[0].name = "x/planar"
    names = [each.name for each in fed_model(model, None, case.record).model.graph.node]
    assert names == ["x/pixels", "x/planar_", "x/linear_step", "x/planar"]


def test_which_inputs_are_pictures() -> None:
    record = {"inputs": {"a": {"kind": "rgb"}, "b": {"kind": "tensor"}, "c": {"kind": "gray"}}}
    assert (pictures(record), lines(record)) == (("a", "c"), ("a",))
