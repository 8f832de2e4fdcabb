"""Our encodings as AIMET itself reads them: a second reading of offset, grid and channels, by its own authors."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npubake.quant.parameters import WeightParameters
from npubake.toolchains.qualcomm.qairt.encodings import (
    VERSIONS,
    Encodings,
    EncodingsVersion,
    encodings_text,
    tensor_encoding,
    weight_encoding,
)

pytestmark = pytest.mark.skipif(
    find_spec("aimet_onnx") is None, reason="aimet-onnx is not installed: pip install 'npubake[aimet]'"
)

GRIDS = {"x": ("uint8", 0.02, 113), "y": ("uint8", 0.05, 131)}  # both ends of it clip
SCALES = (0.011, 0.023, 0.005)


def convolution() -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    weights = rng.integers(-127, 128, (3, 2, 3, 3)) * np.reshape(SCALES, (3, 1, 1, 1))
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 8, 8])],
        [numpy_helper.from_array(weights.astype(np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rounded(values: Any, dtype: str, scale: float, zero_point: int) -> Any:
    """ONNX's own definition of QuantizeLinear and DequantizeLinear, in float64."""
    info = np.iinfo(dtype)
    codes = np.clip(np.rint(values / scale) + zero_point, info.min, info.max)
    return (codes - zero_point) * scale


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.filterwarnings("ignore")
def test_aimet_simulates_with_our_file_what_we_compute(tmp_path: Path, version: EncodingsVersion) -> None:
    import aimet_onnx
    import onnxruntime
    from aimet_onnx.quantsim import QuantizationSimModel, load_encodings_to_sim

    weights = WeightParameters(initializer="w", dtype="int8", axis=0, scales=SCALES, divisors=())
    activations = tuple(tensor_encoding(name, *grid) for name, grid in GRIDS.items())
    path = tmp_path / "model.encodings"
    path.write_text(encodings_text(Encodings(activations=activations, weights=(weight_encoding(weights),)), version))
    model = convolution()
    x = np.random.default_rng(4).normal(0, 2, (1, 2, 8, 8)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = rounded(session.run(None, {"x": rounded(x, *GRIDS["x"]).astype(np.float32)})[0], *GRIDS["y"])
    sim = QuantizationSimModel(
        model,
        param_type=aimet_onnx.int8,
        activation_type=aimet_onnx.int8,
        config_file="htp_v73",
        providers=["CPUExecutionProvider"],
    )
    load_encodings_to_sim(sim, str(path), strict=False)
    (found,) = sim.session.run(None, {"x": x})
    steps = np.abs(found - expected) / GRIDS["y"][1]
    assert steps.max() < 1.01  # a tie may round to the other side
    assert np.mean(steps < 0.01) > 0.98
