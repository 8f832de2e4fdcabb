"""Qualcomm toolchain: camera frames to pixels by nodes that the HTP compiler takes. Chains of nodes are extended.

  nv12    uint8 Y [N, H, W, 1] and UV [N, H/2, W/2, 2]: chroma repeated over its 2 x 2 block by a nearest Resize, beside
          the luma by Concat, then as yuv444
  yuv444  uint8 [N, H, W, 3] -> planar -> 1 x 1 Conv over (Y, U, V) -> uint8 pixels [N, 3, H, W], rounded and clamped to
          0..255 by their grid, as ``layout.runtime_input.decode`` does

The HTP multiplies by weights of 8 bits, which hold no 14 fraction bits. For each of the three rows the step is chosen
that misses the row's real coefficients least over all of 0..255: by at most 0.08 of a pixel's step (BT.601, both
ranges; tests/toolchains/qualcomm/adapting/test_colours.py), so that what rounding adds decides the result's last step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.fixedpoint.colour import BT601, CHROMA_CENTRE, ONE, ColourRange, RuntimeInput
from npubake.toolchains.qualcomm.adapting.chain import Chain
from npubake.toolchains.qualcomm.adapting.grids import Grid

CAMERA_TYPES = ("nv12", "yuv444")
BYTES = Grid(dtype="uint8", scale=1.0, zero_point=0, by="fixed")
_MOST = 127  # of an int8 code
_LEAST = 40  # below it, steps are coarser than what the search can win
_TRIED = 8704  # steps a row: a hundred between two codes
_SWING = np.array([255.0, CHROMA_CENTRE, CHROMA_CENTRE])  # of Y, and of U and V around their centre


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColourRows:
    """Pixels = codes * steps * (Y, U, V) + bias: codes int8 [3, 3], rows R, G, B; steps, bias: float64 [3]."""

    codes: NDArray[np.int8]
    steps: NDArray[np.float64]
    bias: NDArray[np.float64]

    def reversed(self) -> ColourRows:
        """Rows B, G, R."""
        return ColourRows(codes=self.codes[::-1], steps=self.steps[::-1], bias=self.bias[::-1])


def colour_rows(colour_range: ColourRange) -> ColourRows:
    """The inverse of BT.601 in int8 codes with a step a row; biases that make up for the centre by these codes."""
    numbers = BT601[colour_range]
    real = np.array([(numbers.luma, *row) for row in numbers.to_rgb], np.float64) / ONE
    found = [_nearest_codes(row) for row in real]
    codes, steps = np.array([row for row, _ in found]), np.array([step for _, step in found])
    bias = -(codes * steps[:, None]) @ np.array([numbers.offset, CHROMA_CENTRE, CHROMA_CENTRE], np.float64)
    return ColourRows(codes=codes.astype(np.int8), steps=steps, bias=bias)


def _nearest_codes(row: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The codes and the step whose products miss ``row`` least, weighed by what they multiply; the first of several."""
    steps = np.abs(row).max() / np.linspace(_LEAST, _MOST, _TRIED)
    codes = np.rint(row / steps[:, None])
    missed = np.abs(codes * steps[:, None] - row) @ _SWING
    best = int(missed.argmin())
    return codes[best], float(steps[best])


def add_pixels(chain: Chain, spec: RuntimeInput, pixels: Grid) -> None:
    """From the camera's bytes to planar pixels on ``pixels``, channels in the model's order."""
    chain.dequantise("bytes", BYTES)
    chain.add("Transpose", "planar_bytes", perm=[0, 3, 1, 2])
    chain.through("planar_bytes", BYTES)
    if spec.type == "nv12":
        luma = chain.seen
        chain.seen = spec.tensors[1]
        chain.dequantise("chroma", BYTES)
        chain.add("Transpose", "planar_chroma", perm=[0, 3, 1, 2])
        chain.through("planar_chroma", BYTES)
        twice = chain.constant("twice", np.array([1, 1, 2, 2], np.float32))
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        chain.add("Resize", "repeated_chroma", "", twice, **how)
        chain.through("repeated_chroma", BYTES)
        chroma, chain.seen = chain.seen, luma
        chain.add("Concat", "frame", chroma, axis=1)
        chain.through("frame", BYTES)
    rows = colour_rows(spec.range)
    rows = rows if spec.channels == "rgb" else rows.reversed()
    steps = rows.steps * pixels.scale
    weights = chain.dequantised("colour_weights", rows.codes[..., None, None], steps)
    bias = chain.dequantised("colour_bias", np.rint(rows.bias / rows.steps).astype(np.int32), steps)
    chain.add("Conv", "colours", weights, bias)
    chain.through("colours", pixels)
