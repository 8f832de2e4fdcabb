"""What the board feeds, by the real compiler and its emulator: bytes of pictures into a small convolution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from npubake.fixedpoint.colour import RuntimeInput
from npubake.layout.runtime_input import decode, encode
from npubake.toolchains.qualcomm.adapting.request import AdaptRequest
from tests.fixedpoint.builds import float_model, node, session
from tests.qualcomm import needs_qnn
from tests.qualcomm.emulated import adapted, compiled, emulator

pytestmark = needs_qnn

ROOT = Path(__file__).resolve().parents[2]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize("soc", ["77", "93"])
@pytest.mark.parametrize("lane", ["a8w8", "a16w8"])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize(("kind", "channels"), [("rgb", "rgb"), ("bgr", "rgb"), ("gray", "gray")])
def test_bytes_in_the_emulator_are_what_they_are_on_the_cpu(
    kind: str, channels: str, normalised: bool, lane: str, soc: str, tmp_path: Path
) -> None:
    """Within two steps of 8 bits; of 16 bits two in a thousand of the range."""
    random = np.random.default_rng(5)
    count = 1 if channels == "gray" else 3
    mean, std = (MEAN[:count], STD[:count]) if normalised else (None, None)
    spec = RuntimeInput.from_facts("x", {"type": kind, "channels": channels, "mean": mean, "std": std})
    held = {"w": random.standard_normal((4, count, 3, 3)).astype(np.float32)}
    model = float_model([node("Conv", "x w", "out")], {"x": [1, count, 16, 24]}, held, ["out"])
    ends = (-2.2, 2.7) if normalised else (0.0, 1.0)
    feeds = [{"x": random.uniform(*ends, (1, count, 16, 24)).astype(np.float32)} for _ in range(2)]
    feeds += [{"x": np.full((1, count, 16, 24), end, np.float32)} for end in ends]
    made = adapted(model, feeds, lane, AdaptRequest(lane=lane, runtime=(spec,), oldest=soc == "93"))
    assert compiled(made.compilable, soc, tmp_path) == ""
    fed = encode(spec, random.integers(0, 256, (16, 24, count), dtype=np.uint8))
    on_cpu, on_htp = session(made.compilable).run(None, fed)[0], emulator(tmp_path).run(None, fed)[0]
    apart = np.abs(on_cpu.astype(int) - on_htp.astype(int))
    assert apart.max() <= (2 if lane == "a8w8" else 130)


@pytest.mark.parametrize("soc", ["77", "93"])
@pytest.mark.parametrize("lane", ["a8w8", "a16w8"])
@pytest.mark.parametrize("colour_range", ["full", "video"])
@pytest.mark.parametrize("kind", ["nv12", "yuv444"])
def test_camera_frames_become_the_pixels_of_the_runtime(
    kind: str, colour_range: str, lane: str, soc: str, tmp_path: Path
) -> None:
    """A real picture and random ones, within two steps of 8 bits of what ``decode`` makes of the same bytes."""
    spec = RuntimeInput.from_facts("x", {"type": kind, "range": colour_range})
    random = np.random.default_rng(8)
    pictures = [picture(), *random.integers(0, 256, (2, *picture().shape), dtype=np.uint8)]
    shape = (1, 3, *picture().shape[:2])
    model = float_model([node("Relu", "x", "out")], {"x": shape}, {}, ["out"])
    ends = [{"x": np.full(shape, end, np.float32)} for end in (0.0, 1.0)]
    made = adapted(model, ends, lane, AdaptRequest(lane=lane, runtime=(spec,), oldest=soc == "93"))
    assert compiled(made.compilable, soc, tmp_path) == ""
    runner, held = emulator(tmp_path), made.record["outputs"]["out"]
    for pixels in pictures:
        fed = encode(spec, pixels)
        codes = runner.run(None, fed)[0].astype(np.float64)
        got = (codes - held["zero_point"]) * held["scale"] * 255
        apart = np.abs(got - decode(spec, fed).transpose(2, 0, 1)[None])
        assert apart.max() <= 2.01
        assert apart.mean() < 0.5


def picture() -> np.ndarray:
    """uint8 [H, W, 3], even sizes: a photograph of the validation set."""
    path = sorted((ROOT / "data" / "digits" / "validation").rglob("*.jpg"))[0]
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))[:128, :192]
