"""Recipe room: the validated recipe as frozen data. No I/O; past the loader no untyped mapping travels.

The defaults of this module and those of schemas/recipe.schema.json are the same: a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from npubake.recipe.presets import Layout, Preprocessing
from npubake.recipe.quant_config import LayerOverride, QuantConfig

RuntimeType = Literal["nv12", "yuv444", "rgb", "bgr", "gray", "featuremap"]
ColourRange = Literal["full", "video"]
Boundary = Literal["optimized", "calibrated", "ptq", "quantized", "converted", "compiled"]

BASELINE_COSINE = 0.9999  # as near as the optimised model must be to the original one


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """One input as the recipe states it. shape: None means the model's own, which is then static."""

    shape: tuple[int, ...] | None = None
    layout: Layout = "NCHW"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """The trained model and what is known of its export. baseline: npz of the training framework, or None."""

    path: Path
    inputs: Mapping[str, ModelInput] = field(default_factory=dict)
    baseline: Path | None = None
    baseline_cosine: float = BASELINE_COSINE
    export_command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInput:
    """What the board feeds into one input. range: None where the type carries no YUV colour range."""

    type: RuntimeType = "featuremap"
    range: ColourRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The calibration set. data: a path, or None for random data (purpose smoke only) or a loaded sample set."""

    data: Path | None
    samples: int = 64
    purpose: Literal["release", "smoke"] = "release"
    script_version: str = ""
    letterboxed: Literal["allowed"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Operator types removed at the edges."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Thresholds of one boundary; None: measured, not judged. sqnr_db in decibel; boxes_matched: of a detector, least
    share of boxes, 0 to 1.
    """

    cosine: float | None = None
    sqnr_db: float | None = None
    boxes_matched: float | None = None


# Starting gates of the vendor text (seed 003): "ONNX simplification", "FP32 converted artifact", "Quantized artifact".
# boxes_matched, our own: a score within a few steps of the limit of 0.25 falls on either side, and so does the stronger
# of two overlapping boxes; one in ten may go so. More, and the artifact is not the model whose metric was measured.
DEFAULT_GATES: Mapping[Boundary, Gate] = {
    "optimized": Gate(cosine=0.9999),
    "calibrated": Gate(),
    "ptq": Gate(),
    "quantized": Gate(cosine=0.99, sqnr_db=20.0),
    "converted": Gate(cosine=0.999, sqnr_db=30.0, boxes_matched=0.9),
    "compiled": Gate(cosine=0.99, sqnr_db=20.0, boxes_matched=0.9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The product metric. labels: None means beside the data; max_drop: fraction of 1; confidence: bootstrap level."""

    name: Literal["coco_map", "top1"]
    data: Path
    labels: Path | None = None
    max_drop: float = 0.01
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSoftware:
    """Versions of the vendor's SDK and of what runs on the board; '' where the recipe does not say."""

    version: str = ""
    bsp: str = ""
    runtime: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformOptions:
    """Choices for one platform. max_l2m_bytes: None means not stated (the compiler uses no L2M); layer_overrides: those
    of this platform alone, which win over the recipe's.
    """

    max_l2m_bytes: int | None = None
    input_no_padding: bool = False
    output_no_padding: bool = False
    core_num: int = 1
    runtime_inputs: Mapping[str, RuntimeInput] = field(default_factory=dict)
    sdk: BoardSoftware = field(default_factory=BoardSoftware)
    layer_overrides: tuple[LayerOverride, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """Licence notes for the manifest."""

    model: str = ""
    data: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One recipe, merged and checked.

    file: where it was read; files: every file read for it, bases first; single: it names one ``platform:`` and is a
    target under its own name; request: what it asked of the preset, as written; preprocessing: that, expanded by the
    shipped presets; positions: JSON path -> ``file:line:column`` of every value written, for messages.
    """

    name: str
    file: Path
    files: tuple[Path, ...]
    description: str = ""
    model: ModelSource
    request: str | Mapping[str, Any]
    preprocessing: Preprocessing
    runtime_inputs: Mapping[str, RuntimeInput] = field(default_factory=dict)
    calibration: Calibration
    quant_config: QuantConfig = field(default_factory=QuantConfig)
    layer_overrides: tuple[LayerOverride, ...] = ()
    remove: Remove = field(default_factory=Remove)
    gates: Mapping[Boundary, Gate] = field(default_factory=lambda: dict(DEFAULT_GATES))
    metric: Metric | None = None
    platforms: tuple[str, ...]
    single: bool = False
    platform_options: Mapping[str, PlatformOptions] = field(default_factory=dict)
    toolchain: str | None = None
    toolchain_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    runtime_options: Mapping[str, Any] = field(default_factory=dict)
    licence: Licence = field(default_factory=Licence)
    positions: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def where(self, path: str) -> str:
        """``file:line:column`` of a JSON path (``$.model.path``), of its nearest written parent, or the file."""
        while path not in self.positions and len(path) > 1:
            path = path[: max(path.rfind("."), path.rfind("["), 1)]
        return self.positions.get(path, str(self.file))

    def options(self, platform: str) -> PlatformOptions:
        return self.platform_options.get(platform) or PlatformOptions()

    def runtime_inputs_on(self, platform: str) -> dict[str, RuntimeInput]:
        """Runtime inputs with the platform's own entries in place of the recipe's."""
        return {**self.runtime_inputs, **self.options(platform).runtime_inputs}
