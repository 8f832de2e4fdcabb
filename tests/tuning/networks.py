"""tuning tests: a small network with its sample set and statistics, as the stages before tune make them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.calibration.observing import observe
from npubake.calibration.samples import Example, InputForm, SampleSet, SampleWriter, Source
from npubake.graph.importing import import_model
from npubake.graph.model_file import save_model
from npubake.graph.optimizing import optimize_model
from npubake.graph.resolve import resolve_overrides
from npubake.graph.summary import GraphSummary
from npubake.quant.assign import Subject
from npubake.quant.model_facts import model_facts
from npubake.quant.parameters import digest_of_graph
from npubake.quant.request import parse_request
from npubake.tuning.candidate import Start

# A depthwise layer, a sum that goes on, a fused function, a Softmax at the end: each kind of place that tuning touches.
NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
t (float[1,3,12,12] x) => (float[1,6] y) {
  c1 = Conv<pads = [1,1,1,1]>(x, w1, b1)
  r1 = Relu(c1)
  c2 = Conv<group = 8, pads = [1,1,1,1]>(r1, w2, b2)
  s2 = Sigmoid(c2)
  c3 = Conv(s2, w3, b3)
  a = Add(c3, r1)
  c4 = Conv<strides = [2,2]>(a, w4, b4)
  a4 = Relu(c4)
  g = GlobalAveragePool(a4)
  f = Flatten(g)
  l = Gemm(f, w5, b5)
  y = Softmax(l)
}
"""
_SHAPES = {"w1": (8, 3, 3, 3), "w2": (8, 1, 3, 3), "w3": (8, 8, 1, 1), "w4": (16, 8, 1, 1), "w5": (16, 6)}


def network(seed: int = 0) -> onnx.ModelProto:
    """Weights with unlike channels, so that 8 bits cost something."""
    generator = np.random.default_rng(seed)
    model = onnx.parser.parse_model(NETWORK)
    for name, shape in _SHAPES.items():
        spread = np.exp(generator.normal(size=(shape[0],) + (1,) * (len(shape) - 1)))
        size = np.sqrt(np.prod(shape[1:])) * (8.0 if name == "w5" else 1.0)  # probabilities that are not saturated
        value = (generator.normal(size=shape) * spread / size).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(value, name))
        if name != "w5":
            bias = generator.normal(size=shape[0]).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(bias, name.replace("w", "b")))
    model.graph.initializer.append(numpy_helper.from_array(0.3 * generator.normal(size=6).astype(np.float32), "b5"))
    return model


def pictures(count: int, seed: int = 1) -> list[NDArray[np.float32]]:
    """Smooth random pictures [1, 3, 12, 12] with a few large values."""
    generator = np.random.default_rng(seed)
    coarse = generator.normal(size=(count, 3, 4, 4)).repeat(3, axis=2).repeat(3, axis=3)
    fine = coarse + 0.3 * generator.standard_t(3, size=(count, 3, 12, 12))
    return [picture[None] for picture in fine.astype(np.float32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Files as the stages before tune leave them, and what they hold."""

    folder: Path
    model: onnx.ModelProto
    summary: GraphSummary

    def start(self, name: str = "optimised", **params: Any) -> Start:
        statistics = self.statistics()
        request = parse_request({"lane": "a8w8", **params})
        return Start(
            name=name,
            model=self.model,
            subject=Subject(
                summary=self.summary,
                graph_digest=digest_of_graph(self.folder / "graph.json"),
                facts=model_facts(self.model),
                statistics=statistics,
            ),
            request=request,
            matched=[entry.groups for entry in resolve_overrides(self.summary, request.overrides)],
        )

    def statistics(self) -> Any:
        with SampleSet.open(self.folder / "samples.npz") as samples:
            found = observe(self.folder / "model.onnx", self.summary, samples, 1, lambda _done, _total: None)
        found.save(self.folder / "statistics.npz")
        return found.tensors


def two_readers() -> onnx.ModelProto:
    """``r`` leaves the model; a Conv reads it along axis 1 (12 channels), a MatMul along axis 3 (12 columns)."""
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 17]>
t (float[1,3,12,12] x) => (float[1,12,12,12] r, float[1,4,12,12] c, float[1,12,12,5] l) {
  r1 = Conv<pads = [1,1,1,1]>(x, w1, b1)
  r = Relu(r1)
  c2 = Conv(r, w2, b2)
  c = Relu(c2)
  m = MatMul(r, w3)
  l = Add(m, b3)
}
""")
    generator = np.random.default_rng(4)
    for name, shape in {"w1": (12, 3, 3, 3), "b1": (12,), "w2": (4, 12, 1, 1), "b2": (4,), "w3": (12, 5)}.items():
        model.graph.initializer.append(numpy_helper.from_array(generator.normal(size=shape).astype(np.float32), name))
    model.graph.initializer.append(numpy_helper.from_array(generator.normal(size=5).astype(np.float32), "b3"))
    return model


def prepare(folder: Path, count: int = 12, seed: int = 0, source: onnx.ModelProto | None = None) -> Prepared:
    """The network (or another of the same input), optimised, and ``count`` pictures as its sample set."""
    made = optimize_model(import_model((source or network(seed)).SerializeToString(), {}))
    save_model(made.model, folder / "model.onnx")
    made.summary.save(folder / "graph.json")
    write_samples(folder / "samples.npz", pictures(count))
    return Prepared(folder=folder, model=made.model, summary=made.summary)


def write_samples(path: Path, values: list[NDArray[np.float32]]) -> None:
    """A sample set of prepared tensors for input ``x``."""
    form = InputForm(shape=values[0].shape, dtype="float32", linear=None)
    with SampleWriter(path, {"x": form}) as writer:
        for index, value in enumerate(values):
            source = Source(name=f"{index}.npy", digest="0" * 64)
            writer.add(Example(stored={"x": value}, geometry={}, sources={"x": source}))
        writer.finish({"random": False})
