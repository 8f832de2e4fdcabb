"""Print one digest of what baked runtime inputs compute: run natively, and under an emulator of older CPUs."""

from __future__ import annotations

import hashlib

import numpy as np

from npubake.fixedpoint.colour import RuntimeInput
from npubake.fixedpoint.runtime_input import bake_runtime_input
from npubake.layout.runtime_input import encode
from npubake.toolchains.reference.executor import open_session
from tests.fixedpoint.test_runtime_input import MEAN, STD, quantising_model

HEIGHT, WIDTH = 34, 38  # no multiple of any vector width


def digest() -> str:
    """sha256 over model bytes and outputs: every colour type and range, identity and per-channel tables, int16."""
    found = hashlib.sha256()
    generator = np.random.default_rng(1)
    for kind in ("nv12", "yuv444"):
        for colour_range in ("full", "video"):
            for mean, std, scale, zero in (
                (None, None, 1 / 255, np.uint8(0)),
                (MEAN, STD, 0.0173, np.uint8(118)),
                (MEAN, STD, 0.00008, np.int16(0)),
            ):
                spec = RuntimeInput(name="images", type=kind, range=colour_range, mean=mean, std=std)
                shapes = encode(spec, np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8))
                feeds = {name: generator.integers(0, 256, value.shape, np.uint8) for name, value in shapes.items()}
                model, _ = bake_runtime_input(quantising_model((1, 3, HEIGHT, WIDTH), scale, zero), [spec])
                data = model.SerializeToString(deterministic=True)
                found.update(data)
                for output in open_session(data, 1, optimise=True).run(None, feeds):
                    found.update(output.tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest())
