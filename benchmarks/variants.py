"""The exact options of every peer: what ``peers.py`` runs and the tables show.

A variant stands here because a peer's documentation recommends it for some kind of model, or because it was the best of
that peer. Left out: what gives layers back to float until a limit is met (NNCF's accuracy control, the automatic mixed
precision of AIMET and Quark), since that is no a8w8 any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from models import Subject

NAMES = {"ort": "ONNX Runtime", "nncf": "NNCF", "aimet": "AIMET", "quark": "Quark", "olive": "Olive"}
TOOLS = tuple(NAMES)
ATTENTION = ("digits_vit", "ppocr_rec")
TRANSFORMERS = ("digits_vit",)  # Quark's mode for them leaves every Conv in float: on the recogniser 37 of 46 layers
SMALL = ("orientation", "digits_vit", "digits_mobilenet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run one peer. options: as ``peer_runner`` reads them; only: models it is for, all where empty."""

    tool: str
    title: str
    lane: str
    options: dict[str, Any]
    only: tuple[str, ...] = ()

    def fits(self, subject: Subject) -> bool:
        return not self.only or subject.name in self.only


_ASYMMETRIC = {"CalibTensorRangeSymmetric": False}  # else ranges of Percentile are mirrored, and half of uint8 is lost
_MOVING_AVERAGE = {"CalibMovingAverage": True}  # the mean of each sample's extremes
_HTP = "htp_quantsim_config_v73_per_channel_linear"
_OLIVE = {
    "calibrate_method": "MinMax",
    "quant_format": "QDQ",
    "per_channel": True,
    "reduce_range": False,
    "activation_type": "uint8",
    "precision": "int8",
    "quant_preprocess": False,
}

VARIANTS: tuple[Variant, ...] = (
    Variant(tool="ort", title="MinMax", lane="a8w8", options={"method": "MinMax", "activation": "QUInt8"}),
    Variant(
        tool="ort",
        title="MinMax, moving average",
        lane="a8w8",
        options={"method": "MinMax", "activation": "QUInt8", "extra": _MOVING_AVERAGE},
    ),
    Variant(
        tool="ort",
        title="Percentile 99.999",
        lane="a8w8",
        options={"method": "Percentile", "activation": "QUInt8", "extra": {"CalibPercentile": 99.999, **_ASYMMETRIC}},
    ),
    Variant(
        tool="ort",
        title="Entropy, 128 bins (its default)",
        lane="a8w8",
        options={"method": "Entropy", "activation": "QUInt8"},
        only=(*SMALL, "efficientnet_lite0", "digits_yolo_640"),  # 128 bins leave one candidate: MinMax's figures
    ),
    Variant(
        tool="ort",
        title="Entropy, 2048 bins",
        lane="a8w8",
        options={"method": "Entropy", "activation": "QUInt8", "bins": 2048},
        only=SMALL,  # its search is a Python loop: 10 minutes and more
    ),
    Variant(tool="ort", title="MinMax", lane="a16w8", options={"method": "MinMax", "activation": "QUInt16"}),
    Variant(tool="nncf", title="mixed, fast bias correction", lane="a8w8", options={}),
    Variant(tool="nncf", title="mixed, bias correction", lane="a8w8", options={"fast_bias_correction": False}),
    Variant(
        tool="nncf",
        title="mixed, transformer (SmoothQuant)",
        lane="a8w8",
        options={"transformer": True},
        only=ATTENTION,
    ),
    Variant(tool="nncf", title="mixed, fast bias correction", lane="a16w8", options={"bits": 16}),
    Variant(
        tool="aimet",
        title="min_max",
        lane="a8w8",
        options={"configuration": _HTP, "scheme": "min_max", "activation": "int8"},
    ),
    Variant(
        tool="aimet",
        title="tf_enhanced",
        lane="a8w8",
        options={"configuration": _HTP, "scheme": "tf_enhanced", "activation": "int8"},
    ),
    Variant(
        tool="aimet",
        title="equalised, min_max",
        lane="a8w8",
        options={"configuration": _HTP, "scheme": "min_max", "activation": "int8", "equalise": True},
    ),
    Variant(
        tool="aimet",
        title="default configuration, min_max",
        lane="a8w8",
        options={"configuration": "default_config_per_channel", "scheme": "min_max", "activation": "int8"},
    ),
    Variant(
        tool="aimet",
        title="sequential MSE, min_max",
        lane="a8w8",
        options={"configuration": _HTP, "scheme": "min_max", "activation": "int8", "sequential_mse": True},
        only=SMALL,  # minutes to an hour on the others
    ),
    Variant(
        tool="aimet",
        title="AdaRound, min_max",
        lane="a8w8",
        options={"configuration": _HTP, "scheme": "min_max", "activation": "int8", "adaround": 10000},
        only=SMALL,
    ),
    Variant(
        tool="aimet",
        title="min_max",
        lane="a16w8",
        options={"configuration": _HTP, "scheme": "min_max", "activation": "int16"},
    ),
    Variant(tool="quark", title="preset A8W8", lane="a8w8", options={"preset": "A8W8_QCONFIG"}),
    Variant(
        tool="quark",
        title="U8S8 per channel, MinMax",
        lane="a8w8",
        options={"method": "MinMax", "activation": "QUInt8"},
    ),
    Variant(
        tool="quark",
        title="U8S8 per channel, equalised, MinMax",
        lane="a8w8",
        options={"method": "MinMax", "activation": "QUInt8", "equalise": True},
    ),
    Variant(
        tool="quark",
        title="U8S8 per channel, Percentile",
        lane="a8w8",
        options={"method": "Percentile", "activation": "QUInt8", "extra": {"Percentile": 99.999}},
        only=(*SMALL, "ppocr_cls", "efficientnet_lite0"),
    ),
    Variant(
        tool="quark",
        title="INT8_CNN_ACCURATE (AdaRound), per channel",
        lane="a8w8",
        options={"method": "Percentile", "activation": "QUInt8", "extra": {"Percentile": 99.9999}, "adaround": True},
        only=SMALL,
    ),
    Variant(
        tool="quark",
        title="preset INT8_TRANSFORMER_DEFAULT",
        lane="a8w8",
        options={"legacy": "INT8_TRANSFORMER_DEFAULT"},
        only=TRANSFORMERS,
    ),
    Variant(
        tool="quark",
        title="U8S8 per channel, transformer",
        lane="a8w8",
        options={"method": "MinMax", "activation": "QUInt8", "transformer": True, "extra": _MOVING_AVERAGE},
        only=TRANSFORMERS,
    ),
    Variant(tool="quark", title="preset A16W8", lane="a16w8", options={"preset": "A16W8_QCONFIG"}),
    Variant(
        tool="quark",
        title="U16S8 per channel, MinMax",
        lane="a16w8",
        options={"method": "MinMax", "activation": "QUInt16"},
    ),
    Variant(tool="olive", title="OnnxStaticQuantization, MinMax", lane="a8w8", options={"settings": _OLIVE}),
    Variant(
        tool="olive",
        title="OnnxStaticQuantization, MinMax",
        lane="a16w8",
        options={"settings": {**_OLIVE, "activation_type": "uint16"}},
    ),
)


def variants(tools: Sequence[str], lanes: Sequence[str]) -> list[Variant]:
    return [variant for variant in VARIANTS if variant.tool in tools and variant.lane in lanes]


def variant_named(tool: str, title: str, lane: str) -> Variant:
    (found,) = (variant for variant in VARIANTS if (variant.tool, variant.title, variant.lane) == (tool, title, lane))
    return found
