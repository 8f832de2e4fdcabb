"""Room ``fixedpoint``: the forms in which one tensor of the optimised graph exists in the integer model.

quantized  q as uint8 (zero point any) or int16 (zero point 0), ``t/quantized``
centred    q - zero point as float32, always an exact integer, ``t/integer``
real       float32 value: computed by a float group (then called ``t``), or scale * centred, ``t/dequantized``

A form that is missing is made from another one, once, when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from onnx import TensorProto

from npubake.errors import Fault, StageError
from npubake.fixedpoint.writer import ModelWriter
from npubake.quant.parameters import QuantizationParameters, TensorParameters

Form = Literal["quantized", "centred", "real"]

NUMPY_TYPES: Mapping[str, Callable[[int], np.generic]] = {"uint8": np.uint8, "int16": np.int16}
ONNX_TYPES = {"uint8": TensorProto.UINT8, "int16": TensorProto.INT16}


class TensorForms:
    """All forms of all tensors."""

    def __init__(self, writer: ModelWriter, parameters: QuantizationParameters) -> None:
        self._writer = writer
        self._parameters = parameters
        self._forms: dict[str, dict[Form, str]] = {}

    def parameters(self, tensor: str) -> TensorParameters:
        """Integer form of ``tensor``. Raises StageError where calibrate gave none (rule 7 of docs/architecture.md)."""
        found = self._parameters.tensors.get(tensor)
        if found is None:
            raise StageError(
                Fault(
                    what="an integer group stands on this tensor, and it has no quantisation parameters",
                    where=tensor,
                    hint="run calibrate again; parameters must hold every tensor that an integer group reads or makes",
                )
            )
        return found

    def put(self, tensor: str, form: Form, name: str) -> None:
        """Say that ``name`` holds ``tensor`` in ``form``."""
        self._forms.setdefault(tensor, {})[form] = name

    def held(self, tensor: str) -> dict[Form, str]:
        """The forms that exist by now."""
        return dict(self._forms.get(tensor, {}))

    def has(self, tensor: str, form: Form) -> bool:
        return form in self._forms.get(tensor, {})

    def quantized(self, tensor: str) -> str:
        """``tensor`` as uint8 or int16."""
        if not self.has(tensor, "quantized"):
            self.put(tensor, "quantized", self._make_quantized(tensor))
        return self._forms[tensor]["quantized"]

    def centred(self, tensor: str) -> str:
        """``tensor`` as float32 integers around zero."""
        if not self.has(tensor, "centred"):
            source, zero_point = self.quantized(tensor), self.parameters(tensor).zero_point
            name = self._writer.unique(f"{tensor}/integer")
            if zero_point == 0:
                self._writer.node("Cast", [source], tensor, name, to=TensorProto.FLOAT)
            else:
                wide = self._writer.node("Cast", [source], tensor, to=TensorProto.FLOAT)
                offset = self._writer.constant(np.float32(zero_point), f"{tensor}/zero_point_f32")
                self._writer.node("Sub", [wide, offset], tensor, name)
            self.put(tensor, "centred", name)
        return self._forms[tensor]["centred"]

    def real(self, tensor: str) -> str:
        """``tensor`` as float32 real values."""
        if not self.has(tensor, "real"):
            scale = self._writer.constant(np.float32(self.parameters(tensor).scale), f"{tensor}/scale")
            name = self._writer.unique(f"{tensor}/dequantized")
            self._writer.node("Mul", [self.centred(tensor), scale], tensor, name)
            self.put(tensor, "real", name)
        return self._forms[tensor]["real"]

    def _make_quantized(self, tensor: str) -> str:
        facts, forms = self.parameters(tensor), self._forms.get(tensor, {})
        name = self._writer.unique(f"{tensor}/quantized")
        zero = NUMPY_TYPES[facts.dtype](facts.zero_point)
        if "centred" in forms:
            source = forms["centred"]
            if facts.zero_point:
                offset = self._writer.constant(np.float32(facts.zero_point), f"{tensor}/zero_point_f32")
                source = self._writer.node("Add", [source, offset], tensor)
            return self._writer.node("Cast", [source], tensor, name, to=ONNX_TYPES[facts.dtype])
        scale = self._writer.constant(np.float32(facts.scale), f"{tensor}/scale")
        zero_point = self._writer.constant(zero, f"{tensor}/zero_point")
        return self._writer.node("QuantizeLinear", [forms["real"], scale, zero_point], tensor, name)
