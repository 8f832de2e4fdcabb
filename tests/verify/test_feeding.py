"""What both models of a comparison are fed: channel orders, the colour loss of nv12, inputs beside the picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.calibration.preprocessing import LinearStep
from npubake.calibration.samples import Example, InputForm, SampleSet, SampleWriter
from npubake.verify.feeding import Feeder

PIXELS = np.random.default_rng(6).integers(0, 256, (4, 6, 3), dtype=np.uint8)


def feeder(folder: Path, channels: Literal["rgb", "bgr"], facts: dict[str, Any]) -> Feeder:
    linear = LinearStep(channels=channels, divide_by=1.0, mean=(0.0,) * 3, std=(1.0,) * 3, layout="NCHW")
    forms = {
        "images": InputForm(shape=(1, 3, 4, 6), dtype="float32", linear=linear),
        "extra": InputForm(shape=(1, 2), dtype="float32", linear=None),
    }
    with SampleWriter(folder / "s.npz", forms) as writer:
        stored: dict[str, NDArray[Any]] = {"images": PIXELS, "extra": np.array([[3.0, 4.0]], np.float32)}
        writer.add(Example(stored=stored, geometry={}, sources={}))
        writer.finish({"random": False})
    return Feeder.of({"runtime_inputs": {"images": facts}} if facts else {}, SampleSet.open(folder / "s.npz"))


def planes(fed: NDArray[Any]) -> NDArray[Any]:
    """[H, W, C] of a [1, C, H, W] tensor."""
    turned: NDArray[Any] = fed[0].transpose(1, 2, 0)
    return turned


@pytest.mark.parametrize("channels", ["rgb", "bgr"])
@pytest.mark.parametrize("kind", ["rgb", "bgr"])
def test_the_board_gets_its_order_and_the_float_model_its_own(
    tmp_path: Path, channels: Literal["rgb", "bgr"], kind: str
) -> None:
    made = feeder(tmp_path, channels, {"type": kind, "channels": channels})
    with made.samples:
        feeds = made.read(0)
    assert np.array_equal(feeds.candidate["images"][0], PIXELS if kind == "rgb" else PIXELS[:, :, ::-1])
    assert np.array_equal(planes(feeds.reference["images"]), PIXELS if channels == "rgb" else PIXELS[:, :, ::-1])
    assert feeds.candidate["extra"].tolist() == feeds.reference["extra"].tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize("channels", ["rgb", "bgr"])
def test_the_reference_is_fed_what_nv12_leaves_of_the_colours(tmp_path: Path, channels: Literal["rgb", "bgr"]) -> None:
    made = feeder(tmp_path, channels, {"type": "nv12", "range": "full", "channels": channels})
    with made.samples:
        feeds, alone = made.read(0), made.candidate(0)
    assert sorted(feeds.candidate) == ["extra", "images_uv", "images_y"]
    assert all(np.array_equal(alone[name], value) for name, value in feeds.candidate.items())
    rgb = PIXELS.astype(np.float64)
    luma = rgb @ [0.299, 0.587, 0.114]  # ITU-R BT.601
    assert np.abs(feeds.candidate["images_y"][0, :, :, 0] - luma).max() <= 0.51
    shown = planes(feeds.reference["images"])
    shown = shown if channels == "rgb" else shown[:, :, ::-1]
    blocks = (rgb - luma[:, :, None]).reshape(2, 2, 3, 2, 3).mean(axis=(1, 3))
    wanted = np.clip(luma[:, :, None] + blocks.repeat(2, 0).repeat(2, 1), 0, 255)
    assert np.abs(shown - wanted).max() <= 2.5  # luma and chroma are rounded to 8 bits before


def test_without_runtime_inputs_both_are_fed_the_same(tmp_path: Path) -> None:
    made = feeder(tmp_path, "rgb", {})
    with made.samples:
        feeds = made.read(0)
    assert np.array_equal(planes(feeds.reference["images"]), PIXELS)
    assert feeds.reference["images"] is feeds.candidate["images"]


@pytest.mark.parametrize(("kind", "name"), [("rgb", "images"), ("nv12", "images")])
def test_a_model_with_float_inputs_is_fed_what_the_boards_tensors_decode_to(
    tmp_path: Path, kind: str, name: str
) -> None:
    facts = {"type": kind, "range": "full", "channels": "rgb"}
    made = feeder(tmp_path, "rgb", facts)
    real = Feeder.of({"runtime_inputs": {name: facts}}, made.samples, {name: "float32", "extra": "float32"})
    integer = Feeder.of({"runtime_inputs": {name: facts}}, made.samples, {"images_y": "uint8", "images_uv": "uint8"})
    with made.samples:
        fed, alone, encoded = real.read(0), real.candidate(0), integer.candidate(0)
        assert sorted(fed.candidate) == sorted(alone) == ["extra", "images"]
        for tensor, value in made.read(0).reference.items():
            np.testing.assert_array_equal(fed.candidate[tensor], value)
            np.testing.assert_array_equal(alone[tensor], value)
            assert fed.candidate[tensor].dtype == np.float32
        assert ("images_y" in encoded) == (kind == "nv12")
