"""Small models for the tests of this room, with parameters made by hand or by ``quant``; sessions at every setting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.calibration.statistics import BUCKETS, SHIFT, TensorStatistics
from npubake.fixedpoint.lower import lower_model
from npubake.fixedpoint.lowered import Lowered, Tail
from npubake.graph.summarising import summarise
from npubake.graph.summary import GraphSummary
from npubake.quant.assign import Subject, assign
from npubake.quant.model_facts import model_facts
from npubake.quant.parameters import (
    GroupParameters,
    IntegerType,
    Precision,
    QuantizationParameters,
    TensorParameters,
    WeightParameters,
)
from npubake.quant.request import parse_request
from tests.fixedpoint.evaluator import Evaluator, Tensor

Array = NDArray[Any]
Level = onnxruntime.GraphOptimizationLevel
SETTINGS = tuple((level, threads) for level in (Level.ORT_DISABLE_ALL, Level.ORT_ENABLE_ALL) for threads in (1, 2))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A float model with its summary and parameters."""

    model: onnx.ModelProto
    summary: GraphSummary
    parameters: QuantizationParameters

    def lower(self, tail: Tail = "int32") -> Lowered:
        return lower_model(self.model, self.summary, self.parameters, tail)

    @cached_property
    def evaluator(self) -> Evaluator:
        """The independent evaluator, which remembers entries of tables from one example to the next."""
        graph = json.loads(self.summary.to_json())
        return Evaluator(self.model, graph, json.loads(json.dumps(asdict(self.parameters))))

    def evaluate(self, feeds: Mapping[str, Array]) -> dict[str, Tensor]:
        """Every tensor by the independent evaluator."""
        return self.evaluator.run(feeds)

    def expected(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Model outputs by the evaluator: float32, as scale * integer or as they are."""
        values = self.evaluate(feeds)
        found = {}
        for name in self.summary.outputs:
            data = values[name].data
            if values[name].integer:
                data = data.astype(np.float32) * np.float32(self.parameters.tensors[name].scale)
            found[name] = data
        return found


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node called after its first output; names separated by spaces, ``-`` for an absent input."""
    names = ["" if name == "-" else name for name in inputs.split()]
    made = outputs.split()
    return helper.make_node(op_type, names, made, name=f"{made[0]}/{op_type}", **attributes)


def float_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    constants: Mapping[str, Array],
    outputs: Sequence[str],
) -> onnx.ModelProto:
    """A checked float32 model of opset 21 with inferred shapes."""
    graph = helper.make_graph(
        list(nodes),
        "case",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    onnx.checker.check_model(inferred, full_check=True)
    return inferred


def session(model: onnx.ModelProto, level: Any = Level.ORT_ENABLE_ALL, threads: int = 2) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads = level, threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def all_runs(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Outputs at two optimisation levels times 1 and 2 threads."""
    names = [value.name for value in model.graph.output]
    return [
        dict(zip(names, session(model, level, threads).run(None, dict(feeds)), strict=True))
        for level, threads in SETTINGS
    ]


def exposing(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy with more outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    have = {value.name for value in copy.graph.output}
    facts = {value.name: value for value in copy.graph.value_info}
    copy.graph.output.extend(facts.get(name, onnx.ValueInfoProto(name=name)) for name in names if name not in have)
    return copy


def statistics(model: onnx.ModelProto, summary: GraphSummary, samples: Sequence[Mapping[str, Array]]) -> Any:
    """Statistics of every quantisable tensor over ``samples``."""
    names = summary.quantisable()
    made = [name for name in names if name not in summary.inputs]
    runner = session(exposing(model, made))
    found: dict[str, TensorStatistics] = {}
    for sample in samples:
        values = {**sample, **dict(zip(made, runner.run(made, dict(sample)), strict=True))}
        for name in names:
            data = np.ascontiguousarray(values[name], np.float32) + np.float32(0)
            buckets = np.bincount((data.view(np.uint32) >> SHIFT).ravel(), minlength=BUCKETS).astype(np.int64)
            entry = TensorStatistics(
                minimum=float(data.min()), maximum=float(data.max()), count=data.size, buckets=buckets
            )
            found[name] = found[name].merged(entry) if name in found else entry
    return found


def calibrated(
    model: onnx.ModelProto,
    samples: Sequence[Mapping[str, Array]],
    lane: str = "a8w8",
    int16: Sequence[str] = (),
    weights_of_all: str = "",
    **params: Any,
) -> Case:
    """Parameters by ``quant``, from ranges seen on ``samples``; ``int16``: groups that an override sets to 16 bits;
    ``weights_of_all``: the type that another one sets for the weights of every group.
    """
    summary = summarise(model, ())
    overrides: list[dict[str, Any]] = []
    if int16:
        overrides.append({"match": {"names": list(int16)}, "set": {"activation": "int16"}})
    matched = [tuple(int16)] * len(overrides)
    if weights_of_all:
        overrides.append({"match": {"names": ["*"]}, "set": {"weights": weights_of_all}})
        matched.append(tuple(group.name for group in summary.groups))
    request = parse_request({"lane": lane, "calibration": {"method": "minmax"}, "layer_overrides": overrides, **params})
    subject = Subject(
        summary=summary,
        graph_digest="0" * 64,
        facts=model_facts(model),
        statistics=statistics(model, summary, samples),
    )
    return Case(model=model, summary=summary, parameters=assign(subject, request, matched).parameters)


def by_hand(
    model: onnx.ModelProto,
    tensors: Mapping[str, TensorParameters],
    precisions: Mapping[str, Precision] | None = None,
    weights: Mapping[str, WeightParameters] | None = None,
) -> Case:
    """Parameters as given: every group int8 unless ``precisions`` says otherwise; nothing leaves unrounded."""
    summary = summarise(model, ())
    chosen = precisions or {}
    groups = {
        group.name: GroupParameters(precision=chosen.get(group.name, "int8"), accumulator_output=False, why="by hand")
        for group in summary.groups
    }
    parameters = QuantizationParameters(
        graph_digest="0" * 64, lane="by hand", tensors=dict(tensors), groups=groups, weights=weights or {}
    )
    return Case(model=model, summary=summary, parameters=parameters)


def held(dtype: IntegerType = "uint8", scale: float = 1.0, zero_point: int = 0) -> TensorParameters:
    """An integer form; its range does not matter to a lowering."""
    return TensorParameters(dtype=dtype, scale=scale, zero_point=zero_point, low=0.0, high=1.0)
