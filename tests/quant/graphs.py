"""quant tests: small hand-made summaries and models, and statistics counted by the format's own definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

from npubake.calibration.statistics import BUCKETS, TensorStatistics
from npubake.graph.summarising import summarise
from npubake.graph.summary import FusionGroup, GraphSummary, NodeFact, TensorFact

Arrays = Mapping[str, NDArray[Any]]

NETWORK = """
t (float[1,3,8,8] x) => (float[1,5] y, float[1,4,4,4] z) {
  c1 = Conv<pads = [1,1,1,1]>(x, w1, b1)
  r1 = Clip(c1, zero, six)
  p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(r1)
  c2 = Conv(p, w2, b2)
  s = Sigmoid(c2)
  j = Concat<axis = 1>(s, p)
  c3 = Conv(j, w3)
  th = Tanh(c3)
  g = GlobalAveragePool(th)
  f = Flatten(g)
  y = Gemm(f, w4, b4)
  z = Relu(c3)
}
"""


def constants(seed: int = 0) -> dict[str, NDArray[Any]]:
    generator = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[np.float32]:
        return generator.normal(size=shape).astype(np.float32)

    return {
        "w1": normal(4, 3, 3, 3), "b1": normal(4), "zero": np.array(0, np.float32), "six": np.array(6, np.float32),
        "w2": normal(4, 4, 1, 1), "b2": normal(4), "w3": normal(4, 8, 1, 1), "w4": normal(4, 5), "b4": normal(5),
    }  # fmt: skip


def counted(values: NDArray[np.float32]) -> TensorStatistics:
    """Statistics of ``values``: bit patterns shifted right by 18, counted."""
    flat = (values.reshape(-1) + np.float32(0)).astype(np.float32)
    return TensorStatistics(
        minimum=float(flat.min()),
        maximum=float(flat.max()),
        count=flat.size,
        buckets=np.bincount(flat.view(np.uint32) >> 18, minlength=BUCKETS).astype(np.int64),
    )


def chain(*groups: tuple[str, str, Sequence[str], Sequence[str], str], outputs: Sequence[str]) -> GraphSummary:
    """A summary of one-node groups (name, kind, inputs, outputs, operator type); what nobody makes is a graph input."""
    made = {tensor for _, _, _, makes, _ in groups for tensor in makes}
    read = [tensor for _, _, reads, _, _ in groups for tensor in reads]
    return GraphSummary(
        inputs=tuple(dict.fromkeys(tensor for tensor in read if tensor not in made)),
        outputs=tuple(outputs),
        tensors={tensor: TensorFact(shape=(1, 4), dtype="float32") for tensor in [*read, *made]},
        nodes=tuple(
            NodeFact(name=name, op_type=op_type, inputs=tuple(reads), outputs=tuple(makes))
            for name, _, reads, makes, op_type in groups
        ),
        groups=tuple(
            FusionGroup(name=name, kind=kind, nodes=(name,), inputs=tuple(reads), outputs=tuple(makes))  # type: ignore[arg-type]
            for name, kind, reads, makes, _ in groups
        ),
        provenance=(),
    )


def parsed(text: str, constants: Arrays) -> tuple[onnx.ModelProto, GraphSummary]:
    """A model in ONNX text (operator set 21) with ``constants`` as initialisers, checked, and its real summary.

    Nodes take the name of their first output.
    """
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    for node in model.graph.node:
        node.name = f"node_{node.output[0]}"
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    onnx.checker.check_model(inferred, full_check=True)
    return inferred, summarise(inferred, ())


def session(model: onnx.ModelProto, level: str = "ORT_DISABLE_ALL") -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def all_values(model: onnx.ModelProto, feeds: Arrays, level: str = "ORT_DISABLE_ALL") -> dict[str, NDArray[Any]]:
    """Every tensor that ``model`` computes, its inputs too."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    known = {value.name for value in tapped.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                tapped.graph.output.append(helper.make_empty_tensor_value_info(name))
    made = session(tapped, level)
    names = [value.name for value in made.get_outputs()]
    return {**feeds, **dict(zip(names, made.run(None, dict(feeds)), strict=True))}


def observed(model: onnx.ModelProto, summary: GraphSummary, examples: Sequence[Arrays]) -> dict[str, TensorStatistics]:
    """Statistics of every quantisable tensor over ``examples``."""
    values = [all_values(model, feeds) for feeds in examples]
    return {
        name: counted(np.concatenate([entry[name].reshape(-1) for entry in values])) for name in summary.quantisable()
    }


def sqnr(reference: NDArray[Any], other: NDArray[Any]) -> float:
    """Signal to noise in dB; infinite where both are equal."""
    wide = reference.astype(np.float64)
    noise = ((wide - other) ** 2).sum()
    return float(10 * np.log10((wide**2).sum() / noise)) if noise else float("inf")
