"""Fixed-point room: runtime input types and BT.601 colour conversion in exact integers. Constants and data only.

Every coefficient has 14 fraction bits, so that each partial sum stays below 2**24 and float32 holds it exactly
(largest: video range, (19077 + 33050) * 255 = 13,292,385). Sources of the real coefficients: ITU-R BT.601-7,
Kr = 0.299 and Kb = 0.114; video range: luma 16..235, chroma 16..240; full range: JFIF 1.02, 0..255.

Decoding rounds acc / 2**14 half to even and saturates to 0..255: what ONNX's QuantizeLinear does with scale 2**14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from npubake.errors import Fault, RecipeError

RuntimeType = Literal["nv12", "yuv444", "rgb", "bgr", "gray", "featuremap"]
ColourRange = Literal["full", "video"]
Channels = Literal["rgb", "bgr", "gray"]

RUNTIME_TYPES: tuple[RuntimeType, ...] = ("nv12", "yuv444", "rgb", "bgr", "gray", "featuremap")
FRACTION_BITS = 14
ONE = 1 << FRACTION_BITS
CHROMA_CENTRE = 128
IMAGE_DIVISOR = 255  # largest uint8 value: the linear step's first part maps 0..255 onto 0..1


@dataclass(frozen=True, slots=True, kw_only=True)
class YuvCoefficients:
    """One range's integer matrices, rows in the order given, 14 fraction bits.

    to_yuv: rows Y, U, V over columns R, G, B; chroma rows sum to 0, so that grey has no colour.
    luma: factor of Y - offset; to_rgb: rows R, G, B over columns U - 128, V - 128. offset: black's luma.
    """

    to_yuv: tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]
    luma: int
    to_rgb: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    offset: int


BT601: Mapping[ColourRange, YuvCoefficients] = {
    "full": YuvCoefficients(
        to_yuv=((4899, 9617, 1868), (-2765, -5427, 8192), (8192, -6860, -1332)),
        luma=16384,
        to_rgb=((0, 22970), (-5638, -11700), (29032, 0)),
        offset=0,
    ),
    "video": YuvCoefficients(
        to_yuv=((4207, 8260, 1604), (-2428, -4768, 7196), (7196, -6026, -1170)),
        luma=19077,
        to_rgb=((0, 26149), (-6419, -13320), (33050, 0)),
        offset=16,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInput:
    """What the board feeds for one model input, and the linear step that is baked in behind it.

    name: the model's input. range: for nv12 and yuv444. channels: order of the channels that the model was trained on.
    The linear step, in float32, in this order: x / divide_by, x - mean, x / std (each left out where it is None).
    mean and std: one number a channel, in the order of ``channels``, in units of what the division leaves.
    """

    name: str
    type: RuntimeType
    range: ColourRange = "full"
    channels: Channels = "rgb"
    divide_by: int | None = IMAGE_DIVISOR
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the runtime's tensors; nv12 is two (``<n>_y``, ``<n>_uv``: the vendor's own names)."""
        return (f"{self.name}_y", f"{self.name}_uv") if self.type == "nv12" else (self.name,)

    def facts(self) -> dict[str, Any]:
        """JSON form, as it stands in records and contracts; ``from_facts`` is its inverse."""
        return {
            "type": self.type,
            "range": self.range,
            "channels": self.channels,
            "divide_by": self.divide_by,
            "mean": None if self.mean is None else list(self.mean),
            "std": None if self.std is None else list(self.std),
            "tensors": list(self.tensors),
        }

    @classmethod
    def from_facts(cls, name: str, facts: Mapping[str, Any]) -> RuntimeInput:
        """Read a recipe's entry or a record's; keys at their default may be absent.

        Raises RecipeError for a type, range or channel order that does not exist, or a pair that cannot be converted.
        """
        mean, std = facts.get("mean"), facts.get("std")
        spec = cls(
            name=name,
            type=facts["type"],
            range=facts.get("range") or "full",
            channels=facts.get("channels") or "rgb",
            divide_by=facts.get("divide_by", IMAGE_DIVISOR),
            mean=None if mean is None else tuple(float(value) for value in mean),
            std=None if std is None else tuple(float(value) for value in std),
        )
        faults = spec.faults()
        if faults:
            raise RecipeError(*faults)
        return spec

    def faults(self) -> list[Fault]:
        """All that is wrong with the description itself, before any model is seen."""
        where = f"runtime_input.{self.name}"
        found: list[Fault] = []
        if self.type not in RUNTIME_TYPES:
            hint = f"one of {', '.join(RUNTIME_TYPES)}"
            return [Fault(where=where, what=f"unknown type {self.type!r}", hint=hint)]
        if self.range not in BT601:
            found.append(Fault(where=where, what=f"unknown range {self.range!r}", hint="full or video"))
        if self.type == "featuremap":
            return found
        if (self.type == "gray") != (self.channels == "gray"):
            hint = "gray feeds a model with one channel; nv12, yuv444, rgb and bgr feed one trained on rgb or bgr"
            found.append(Fault(where=where, what=f"{self.type} cannot become {self.channels}", hint=hint))
        if self.std is not None and any(value == 0.0 for value in self.std):
            found.append(Fault(where=where, what="std holds 0", hint="a channel cannot be divided by 0"))
        return found
