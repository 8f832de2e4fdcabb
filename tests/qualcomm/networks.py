"""Small models in the forms that ``adapt`` writes, for tests that compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.toolchains.qualcomm.facts import HtpPlatform

SHAPE, CHANNELS = (1, 3, 16, 16), 8
_SOCS = {
    "77": ("qcs9075", "v73", 8),
    "82": ("qcs8275", "v75", 8),
    "93": ("qcs6490", "v68", 2),
    "77,82": ("qcs9075+qcs8275", "v73,v75", 8),
}


def platform(soc_model: str = "77", lanes: Sequence[str] = ("a8w8",)) -> HtpPlatform:
    """A platform by its soc_model."""
    name, march, mib = _SOCS[soc_model]
    facts = {"name": name, "soc_model": soc_model, "march": march, "vtcm_bytes": mib << 20, "lanes": list(lanes)}
    return HtpPlatform.from_params(facts)


@dataclass(kw_only=True)
class Builder:
    """Nodes and constants of a model as it grows. dtype: of quantised activations, None for a float model."""

    dtype: type[np.unsignedinteger[Any]] | None = np.uint8
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def quantised(self, tensor: str, scale: float) -> str:
        """A quantiser behind ``tensor``; the name of what its readers take."""
        if self.dtype is None:
            return tensor
        half = (int(np.iinfo(self.dtype).max) + 1) // 2
        names = [
            self._constant(f"{tensor}/scale", np.float32(scale)),
            self._constant(f"{tensor}/zero", self.dtype(half)),
        ]
        self.add("QuantizeLinear", [tensor, *names], f"{tensor}/quantized")
        return self.add("DequantizeLinear", [f"{tensor}/quantized", *names], f"{tensor}/dequantized")

    def weight(self, name: str, values: NDArray[np.float32], dtype: type[np.signedinteger[Any]]) -> str:
        """A weight with a scale a channel."""
        if self.dtype is None:
            return self._constant(name, values)
        scales = np.abs(values).max(axis=tuple(range(1, values.ndim))) / np.iinfo(dtype).max
        codes = np.rint(values / scales.reshape(-1, *[1] * (values.ndim - 1))).astype(dtype)
        parts = [
            self._constant(f"{name}/codes", codes),
            self._constant(f"{name}/scale", scales.astype(np.float32)),
            self._constant(f"{name}/zero", np.zeros(len(scales), dtype)),
        ]
        return self.add("DequantizeLinear", parts, f"{name}/dequantized", axis=0)

    def add(self, op_type: str, inputs: Sequence[str], output: str, name: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=name or output, **attributes))
        return output

    def model(self, batch: int | str = 1) -> onnx.ModelProto:
        """Input ``x`` to the last node's output, which is called ``y``."""
        self.nodes[-1].output[0] = "y"
        source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *SHAPE[1:]])
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, CHANNELS, *SHAPE[2:]])
        graph = helper.make_graph(self.nodes, "small", [source], [result], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        return model

    def _constant(self, name: str, values: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name


def convolution(
    *then: str,
    dtype: type[np.unsignedinteger[Any]] | None = np.uint8,
    weights: type[np.signedinteger[Any]] = np.int8,
    batch: int | str = 1,
) -> onnx.ModelProto:
    """A Conv ``stem``, then an operator of one input for each of ``then``, named ``after0``, ``after1``, ..."""
    made = Builder(dtype=dtype)
    values = np.random.default_rng(4).standard_normal((CHANNELS, 3, 3, 3), dtype=np.float32)
    step = 1.0 if dtype is None else 2.0 / float(np.iinfo(dtype).max)
    inputs = [made.quantised("x", step), made.weight("w", values, weights)]
    at = made.quantised(made.add("Conv", inputs, "stem_out", "stem", pads=[1, 1, 1, 1]), 4 * step)
    for index, op_type in enumerate(then):
        at = made.quantised(made.add(op_type, [at], f"after{index}_out", f"after{index}"), 4 * step)
    return made.model(batch)


def record_of(model: onnx.ModelProto) -> dict[str, Any]:
    """What ``adapt`` would say of a model with float edges."""

    def edges(values: Sequence[onnx.ValueInfoProto], of: str, **more: Any) -> dict[str, Mapping[str, Any]]:
        return {
            value.name: {
                of: value.name,
                "dtype": "float32",
                "shape": [size.dim_value for size in value.type.tensor_type.shape.dim],
                "scale": None,
                "zero_point": None,
                **more,
            }
            for value in values
        }

    return {
        "version": 1,
        "lane": "a8w8",
        "io": "float",
        "runtime_inputs": {},
        "inputs": edges(model.graph.input, "model_input", kind="tensor"),
        "outputs": edges(model.graph.output, "model_output"),
    }
