"""Room ``graph``: the version of ONNX that models are brought to, and the one that a model states. Numbers only."""

from __future__ import annotations

import onnx

OPSET = 21  # the first whose QuantizeLinear knows int16
IR_VERSION = 10  # the intermediate representation that belongs to opset 21 (onnx's own table of versions)
STANDARD_DOMAINS = ("", "ai.onnx")  # two spellings of the same


def opset_of(model: onnx.ModelProto) -> int | None:
    """The version of the standard operators that ``model`` states; None where it states none."""
    return next((entry.version for entry in model.opset_import if entry.domain in STANDARD_DOMAINS), None)
