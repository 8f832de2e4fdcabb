"""AIMET itself as the quantiser: its ranges against the data, the same bytes twice, every lane through the compiler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from npubake.errors import StageError
from npubake.graph.model_file import load_model, save_model
from npubake.pipeline.stage import Job
from npubake.stages import adapt, quantise_aimet
from tests.graph.writing import build, floats, normal
from tests.qualcomm import needs_qnn
from tests.tuning.networks import prepare, write_samples

pytestmark = pytest.mark.skipif(
    find_spec("aimet_onnx") is None, reason="aimet-onnx is not installed: pip install 'npubake[aimet]'"
)
BODY = """
c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w, b)
l = LeakyRelu <alpha = 0.1> (c)
d = Conv <kernel_shape = [1, 1]> (l, w2, b2)
r = Relu (d)
p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
g = GlobalAveragePool (p)
f = Flatten (g)
m = MatMul (f, w3)
y = Add (m, b3)
"""
# dB, three below what was measured: below that something else is wrong than rounding. 16-bit weights: the HTP's own.
LANES = {"a8w8": 38, "a16w8": 41, "a16w16": 51, "w4a16": 19}
WITHOUT_FLOAT = ("a8w8", "a16w8")  # lanes of soc 93 (QCS6490), which refuses whatever stays in float


def network() -> onnx.ModelProto:
    """Two convolutions (one before a LeakyRelu, which the compiler does not fuse), a pool, a layer with its bias."""
    constants = {"w": normal(8, 8, 3, 3), "b": normal(8), "w2": normal(8, 8, 1, 1), "b2": normal(8)}
    return build("float[1,8,8,8] x => float[1,10] y", BODY, **constants, w3=normal(8, 10), b3=floats(*range(10)) / 10)


def pictures() -> list[NDArray[np.float32]]:
    return [normal(1, 8, 8, 8, seed=seed, scale=1.0) for seed in range(8)]


@dataclass(frozen=True)
class Quantised:
    """What the stage wrote in ``folder``."""

    folder: Path
    lane: str

    @cached_property
    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "record").read_text(encoding="utf-8")))

    @property
    def files(self) -> Mapping[str, bytes]:
        return {name: (self.folder / name).read_bytes() for name in ("model", "encodings", "record")}


def run(source: Path, folder: Path, lane: str = "a8w8", threads: int = 1) -> Quantised:
    folder.mkdir()
    inputs = {"model": source / "model.onnx", "graph": source / "graph.json", "samples": source / "samples.npz"}
    ports = ("model", "encodings", "record")
    quantise_aimet.run(
        Job(
            params={"lane": lane, "march": "v73"},
            inputs={port: (path,) for port, path in inputs.items()},
            outputs={port: folder / port for port in ports},
            threads=threads,
        )
    )
    return Quantised(folder=folder, lane=lane)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    prepare(folder, source=network())
    write_samples(folder / "samples.npz", pictures())
    return folder


@pytest.fixture(scope="module")
def made(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    return run(source, tmp_path_factory.mktemp("made") / "a8w8")


def outputs(model: bytes, names: list[str]) -> list[list[NDArray[Any]]]:
    """Of every picture, by ONNX Runtime without graph optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [list(session.run(names, {"x": value})) for value in pictures()]


def compiled(model: bytes, soc: str) -> onnxruntime.InferenceSession:
    """A session in the emulator of an SoC; refused where a node would stay on the CPU."""
    from npubake.toolchains.qualcomm.htp.session import open_session

    strict = {"session.disable_cpu_ep_fallback": "1"}
    return open_session(model, provider={"soc_model": soc}, entries=strict)


def emulated(model: bytes, record: Mapping[str, Any]) -> NDArray[Any]:
    """Output y of every picture, in the emulator of soc 77."""
    fed, given = record["inputs"]["x"], record["outputs"]["y"]
    session = compiled(model, "77")
    highest = np.iinfo(fed["dtype"]).max
    codes = [np.clip(np.rint(value / fed["scale"]) + fed["zero_point"], 0, highest) for value in pictures()]
    found = np.stack([session.run(["y"], {"x": value.astype(fed["dtype"])})[0] for value in codes])
    return np.asarray((found.astype(np.float64) - given["zero_point"]) * given["scale"])


def decibels(wanted: NDArray[Any], found: NDArray[Any]) -> float:
    return float(10 * np.log10(np.square(wanted).sum() / np.square(wanted - found).sum()))


def test_min_max_ranges_are_those_of_the_data(source: Path, made: Quantised) -> None:
    """min_max: scale = (max - min) / 255 over all examples, zero within (AIMET's specification of encodings)."""
    model = load_model(source / "model.onnx")
    model.graph.output.append(onnx.helper.make_tensor_value_info("l", onnx.TensorProto.FLOAT, None))
    inner = np.stack([found[0] for found in outputs(model.SerializeToString(), ["l"])])
    # AIMET observes with rounded weights, hence the tolerance of what is behind them: half a step of 8 bits and more.
    for name, values, tolerance in (("x", np.stack(pictures()), 1e-6), ("l", inner, 1e-2)):
        low, high = float(values.min()), float(values.max())
        held = made.record["tensors"][name]
        assert held["scale"] == pytest.approx((high - low) / 255, rel=tolerance)
        assert held["zero_point"] == round(-low / held["scale"])


def test_every_activation_is_covered_and_what_the_compiler_does_not_fuse_has_a_quantiser(made: Quantised) -> None:
    coverage = made.record["coverage"]
    assert coverage["quantized"] + len(coverage["float"]) == coverage["activations"]
    assert all("supergroup" in entry["why"] for entry in coverage["float"])
    assert "c" in made.record["tensors"]  # before the LeakyRelu


def test_the_same_bytes_whatever_the_threads_and_the_environment(
    source: Path, made: Quantised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "OMP_NUM_THREADS": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    assert run(source, tmp_path / "again", threads=2).files == made.files


@needs_qnn
@pytest.mark.parametrize("lane", LANES)
def test_every_lane_compiles_without_float_and_the_emulator_agrees(source: Path, tmp_path: Path, lane: str) -> None:
    quantised = run(source, tmp_path / "quantised", lane)
    ports = {port: tmp_path / port for port in ("model", "compilable", "record")}
    inputs = {"model": source / "model.onnx", "graph": source / "graph.json"}
    inputs |= {"quantised": quantised.folder / "model", "quantised_record": quantised.folder / "record"}
    given = {port: (path,) for port, path in inputs.items()}
    adapt.run(Job(params={"lane": lane, "io": "quantized"}, inputs=given, outputs=ports))
    record = json.loads(ports["record"].read_text(encoding="utf-8"))
    wanted = np.stack([found[0] for found in outputs((source / "model.onnx").read_bytes(), ["y"])])
    rounded = np.stack([found[0] for found in outputs(ports["model"].read_bytes(), ["y"])])
    found = emulated(ports["compilable"].read_bytes(), record)
    assert decibels(wanted, rounded) > LANES[lane]
    assert decibels(wanted, found) > LANES[lane]
    if lane in WITHOUT_FLOAT:
        compiled(ports["compilable"].read_bytes(), "93")


def test_a_damaged_model_is_a_fault_of_the_stage(source: Path, tmp_path: Path) -> None:
    """What AIMET raises comes back as a StageError with the end of what it printed."""
    folder = tmp_path / "other"
    folder.mkdir()
    for name in ("graph.json", "samples.npz"):
        (folder / name).write_bytes((source / name).read_bytes())
    model = load_model(source / "model.onnx")
    model.graph.node.append(onnx.helper.make_node("QuantizeLinear", ["x"], ["z"], name="z"))
    save_model(model, folder / "model.onnx")
    with pytest.raises(StageError) as caught:
        run(folder, tmp_path / "out")
    assert "QuantizeLinear" in caught.value.faults[0].hint
