"""quant: the formats of weights: type, granularity, zero points. Data and small tables; numpy for limits; no onnx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from npubake.quant.parameters import WeightType

Granularity = Literal["per_channel", "per_tensor", "per_group"]

CODE_LIMITS: Mapping[str, tuple[int, int]] = {"int4": (-8, 7), "int8": (-128, 127), "int16": (-32768, 32767)}
# The largest |w| / step of symmetric weights. int4 goes to just below 7.5, which still rounds to 7: no weight moves by
# more than half a step, and the step is 7 % finer than absmax / 7. With 7 or 15 bits that would gain nothing.
SYMMETRIC_REACH: Mapping[str, float] = {"int4": 7.5 - 2.0**-20, "int8": 127.0, "int16": 32767.0}
BITS: Mapping[int, WeightType] = {4: "int4", 8: "int8", 16: "int16"}
MULTIPLIER_LIMIT = 16  # |code| <= 8 times 16 fits the 8-bit kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How the weights of one group are held. symmetric: zero point 0, codes -L..L; else a zero point a scale.

    group_size: input channels that share a multiplier of their channel's scale, read by ``per_group`` alone.
    """

    dtype: WeightType = "int8"
    granularity: Granularity = "per_channel"
    group_size: int = 32
    symmetric: bool = True

    @property
    def fits_byte(self) -> bool:
        """True where the integers that kernels multiply, (code - zero point) * multiplier, lie within -128..127."""
        return self.symmetric and (self.dtype == "int4" or (self.dtype == "int8" and self.granularity != "per_group"))

    @property
    def levels(self) -> int:
        """Largest distance of two codes."""
        low, high = CODE_LIMITS[self.dtype]
        return high - low


def contraction_axis(axis: int) -> int:
    """The input channels' axis of an initialiser whose output channels lie along ``axis``.

    Conv [O, I, ...] 1, ConvTranspose [I, O, ...] 0, Gemm either, MatMul [..., K, N] the last but one.
    """
    return 1 - axis if axis < 2 else axis - 1
