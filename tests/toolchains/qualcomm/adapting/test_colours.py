"""Camera frames as the HTP's nodes make pixels of them, beside the runtime's own integer arithmetic; CPU alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npubake.fixedpoint.colour import ColourRange, RuntimeInput
from npubake.layout.runtime_input import decode, encode
from npubake.toolchains.qualcomm.adapting.colours import colour_rows
from npubake.toolchains.qualcomm.adapting.request import AdaptRequest
from tests.fixedpoint.builds import float_model, node, session
from tests.qualcomm.emulated import adapted

# ITU-R BT.601-7 (video) and JFIF 1.02 (full): R, G, B of (Y, U, V), published to three decimals.
PUBLISHED = {
    "full": ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0)),
    "video": ((1.164, 0.0, 1.596), (1.164, -0.392, -0.813), (1.164, 2.017, 0.0)),
}
LUMA_OF_BLACK = {"full": 0, "video": 16}


@pytest.mark.parametrize("colour_range", ["full", "video"])
def test_the_codes_are_the_published_coefficients_to_a_tenth_of_a_step(colour_range: ColourRange) -> None:
    rows = colour_rows(colour_range)
    missed = np.abs(rows.codes * rows.steps[:, None] - np.array(PUBLISHED[colour_range]))
    assert (missed @ (255, 128, 128)).max() < (0.1 if colour_range == "full" else 0.3)  # three decimals of the standard
    black = np.array([LUMA_OF_BLACK[colour_range], 128, 128])
    np.testing.assert_allclose((rows.codes * rows.steps[:, None]) @ black + rows.bias, 0, atol=1e-9)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("channels", ["rgb", "bgr"])
@pytest.mark.parametrize("colour_range", ["full", "video"])
@pytest.mark.parametrize("kind", ["nv12", "yuv444"])
def test_pixels_are_those_of_the_runtime_to_one_step(kind: str, colour_range: str, channels: str, layout: str) -> None:
    spec, fed, real = frame(kind, colour_range, channels)
    planes = real.transpose((2, 0, 1) if layout == "NCHW" else (0, 1, 2))[None].astype(np.float32) / 255
    model = float_model([node("Relu", "x", "out")], {"x": planes.shape}, {}, ["out"])
    ends = [{"x": np.full(planes.shape, end, np.float32)} for end in (0.0, 1.0)]
    made = adapted(model, ends, "a8w8", AdaptRequest(lane="a8w8", runtime=(spec,)))
    assert {name: entry["shape"] for name, entry in made.record["inputs"].items()} == {
        name: list(value.shape) for name, value in fed.items()
    }
    got = session(made.compilable).run(None, fed)[0]
    apart = np.abs(got.astype(int) - np.rint(planes * 255).astype(int))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.2


@pytest.mark.parametrize("lane", ["a8w8", "a16w8", "fp16"])
def test_mean_and_deviation_follow(lane: str) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    spec, fed, real = frame("nv12", "full", "rgb", mean=mean, std=std)
    planes = (((real.astype(np.float32) / 255) - np.array(mean)) / np.array(std)).transpose(2, 0, 1)[None]
    model = float_model([node("Identity", "x", "out")], {"x": planes.shape}, {}, ["out"])
    ends = [{"x": np.full(planes.shape, end, np.float32)} for end in (-2.2, 2.7)]
    made = adapted(model, ends, lane, AdaptRequest(lane=lane, runtime=(spec,)))
    codes, held = session(made.compilable).run(None, fed)[0], made.record["outputs"]["out"]
    got = codes if held["scale"] is None else (codes.astype(np.float32) - held["zero_point"]) * held["scale"]
    pixel = 1 / 255 / 0.224
    np.testing.assert_allclose(got, planes, atol=pixel * (1.05 if lane != "a8w8" else 2.2))


def frame(kind: str, colour_range: str, channels: str, **linear: Any) -> tuple[RuntimeInput, dict[str, Any], Any]:
    """A description, the board's bytes of a random picture, and the pixels that they decode to."""
    facts = {"type": kind, "range": colour_range, "channels": channels, **linear}
    spec = RuntimeInput.from_facts("x", facts)
    fed = encode(spec, np.random.default_rng(2).integers(0, 256, (12, 18, 3), dtype=np.uint8))
    return spec, fed, decode(spec, fed)
