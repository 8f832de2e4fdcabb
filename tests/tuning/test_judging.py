"""tuning: figures of the judge against sums written out, and which tensors are judged for an output."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from npubake.calibration.inference import open_session
from npubake.calibration.samples import SampleSet
from npubake.graph.summarising import summarise
from npubake.tuning.candidate import candidate
from npubake.tuning.judging import Judge, Score, decibels, noise_of
from npubake.tuning.simulation import Simulator
from tests.tuning.networks import Prepared, pictures, prepare


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("judging"))


def judge(prepared: Prepared, *indices: int) -> Judge:
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        return Judge.of(prepared.model, prepared.summary, samples, indices, 1)


def test_score_is_pooled_over_the_examples(prepared: Prepared) -> None:
    made = candidate(prepared.start())
    bench = judge(prepared, 2, 7, 9)
    simulator = Simulator(made.simulated, bench.tensors, 1)
    score = bench.score(simulator, made.forms())
    real = open_session(prepared.model, "float", 1)
    signal, noise = 0.0, 0.0
    for index in (2, 7, 9):
        feeds = {"x": pictures(12)[index]}
        wanted = real.run(["y"], feeds)[0].astype(np.float64)
        answer = simulator.run(feeds, made.forms())
        signal += float((wanted**2).sum())
        noise += float(((wanted - answer["y"]) ** 2).sum())
    features = next(tensor for tensor in bench.watched["y"] if tensor != "y")
    alone = Judge(feeds=bench.feeds, watched={"y": ("y",)}, references=bench.references)
    assert alone.score(simulator, made.forms()).decibels["y"] == pytest.approx(
        10 * math.log10(signal / noise), abs=0.006
    )
    beside = Judge(feeds=bench.feeds, watched={"y": (features,)}, references=bench.references)
    halves = [entry.score(simulator, made.forms()).decibels["y"] for entry in (alone, beside)]
    assert score.decibels["y"] == pytest.approx(sum(halves) / 2, abs=0.006)


def test_figures_of_some_examples_are_those_of_judging_them_alone(prepared: Prepared) -> None:
    made = candidate(prepared.start())
    bench = judge(prepared, 2, 7, 9)
    simulator = Simulator(made.simulated, bench.tensors, 1)
    whole = bench.score(simulator, made.forms())
    assert bench.pooled([whole.examples[2], whole.examples[0]]) == judge(prepared, 2, 9).score(simulator, made.forms())
    assert bench.score(simulator, made.forms(), [1]) == judge(prepared, 7).score(simulator, made.forms())


def test_the_example_with_most_of_the_noise_comes_first() -> None:
    """Relative to the signal of all: half of a tensor's energy lost weighs more than all of a small example's."""
    bench = Judge(feeds=(), watched={"a": ("a", "b")}, references=())
    examples = (
        {"a": (1.0, 1.0), "b": (1.0, 1.0)},
        {"a": (98.0, 49.0), "b": (8.0, 0.5)},
        {"a": (1.0, 0.0), "b": (1.0, 4.0)},
    )
    shares = [1 / 100 + 1 / 10, 49 / 100 + 0.5 / 10, 4 / 10]
    order = bench.worst_first(Score(decibels={"a": 0.0}, examples=examples))
    assert order == [1, 2, 0]
    assert sorted(shares, reverse=True) == [shares[place] for place in order]


def test_what_the_last_layer_reads_is_judged_beside_few_outputs(prepared: Prepared) -> None:
    last = next(group for group in reversed(prepared.summary.groups) if group.kind == "linear")
    assert judge(prepared, 0, 1).watched == {"y": ("y", last.inputs[0])}


def saturated(prepared: Prepared, factor: float) -> onnx.ModelProto:
    """The network with larger logits."""
    model = onnx.ModelProto()
    model.CopyFrom(prepared.model)
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
    for tensor in model.graph.initializer:
        if tensor.name in gemm.input:
            values = onnx.numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return model


def test_saturated_probabilities_are_judged_by_their_logits(prepared: Prepared) -> None:
    gemm = next(node for node in prepared.model.graph.node if node.op_type == "Gemm")
    model = saturated(prepared, 100.0)
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        bench = Judge.of(model, summarise(model, ()), samples, (0, 1, 2), 1)
    assert bench.watched["y"][0] == gemm.output[0]


@pytest.mark.parametrize(
    ("signal", "noise", "wanted"),
    [(100.0, 1.0, 20.0), (2.0, 1.0, 3.01), (1.0, 0.0, 120.0), (0.0, 1.0, -120.0), (1.0, 1e30, -120.0)],
)
def test_decibels(signal: float, noise: float, wanted: float) -> None:
    assert decibels(signal, noise) == wanted


def test_gain_is_the_mean_and_loss_the_worst() -> None:
    before, after = Score(decibels={"a": 20.0, "b": 30.0}), Score(decibels={"a": 26.0, "b": 29.0})
    assert after.gain(before) == pytest.approx(2.5)
    assert after.worst_loss(before) == pytest.approx(1.0)


def test_what_a_far_better_output_loses_does_not_count() -> None:
    """Boxes at 47 dB beside scores at 25: who looks at the boxes' 2 dB."""
    before, after = Score(decibels={"scores": 20.3, "boxes": 49.5}), Score(decibels={"scores": 25.4, "boxes": 47.4})
    assert after.worst_loss(before) == pytest.approx(-5.1)
    near = Score(decibels={"scores": 25.4, "boxes": 35.0})
    assert near.worst_loss(before) == pytest.approx(14.5)


def test_nothing_is_judged_without_examples_or_float_outputs(prepared: Prepared, tmp_path: Path) -> None:
    assert not judge(prepared).able
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 21]> t (float[1,3,12,12] x) => (int64[1,1,12,12] i) {'
        " i = ArgMax<axis = 1>(x) }"
    )
    onnx.save(model, tmp_path / "model.onnx")
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        assert not Judge.of(model, summarise(model, ()), samples, (0, 1), 1).able


def test_outputs_that_are_inputs_or_constants_are_not_judged(prepared: Prepared, tmp_path: Path) -> None:
    """An input given out as it is, or a constant, loses nothing; and no node of a trial makes it."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 21]> t (float[1,3,12,12] x) => (float[1,3,12,12] y, float[2] c, '
        "float[1,3,12,12] x) <float[2] c = {1.0, 2.0}> { y = Relu(x) }"
    )
    onnx.save(model, tmp_path / "model.onnx")
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        judge = Judge.of(model, summarise(model, ()), samples, (0, 1), 1)
    assert judge.tensors == ("y",)


def test_a_tensor_that_the_transformed_graph_has_not_judges_nothing(prepared: Prepared) -> None:
    last = next(group for group in reversed(prepared.summary.groups) if group.kind == "linear")
    without = {name: fact for name, fact in prepared.summary.tensors.items() if name != last.inputs[0]}
    other = replace(prepared.summary, tensors=without)
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        judge = Judge.of(prepared.model, prepared.summary, samples, (0, 1), 1, [other])
    assert judge.tensors == ("y",)


def test_the_judge_of_other_examples_watches_the_same_tensors(prepared: Prepared) -> None:
    """Else it asks for what no trial computes: whether a Softmax is saturated depends on the examples."""
    sharp, soft = saturated(prepared, 1000.0), saturated(prepared, 0.001)
    with SampleSet.open(prepared.folder / "samples.npz") as samples:
        first = Judge.of(sharp, summarise(sharp, ()), samples, (0, 1), 1)
        other = first.on(soft, samples, (2, 3, 4), 1)
        assert other.watched == first.watched != Judge.of(soft, summarise(soft, ()), samples, (0, 1), 1).watched
        assert len(other.feeds) == len(other.references) == 3
        assert set(first.tensors) <= set(other.references[0])
        assert not first.on(soft, samples, (), 1).able


def test_what_is_no_number_is_the_worst_there_is() -> None:
    wanted = np.array([1.0, 2.0], np.float32)
    assert noise_of(wanted, np.array([1.5, 2.0])) == 0.25
    for value in (np.nan, np.inf):
        assert decibels(5.0, noise_of(wanted, np.array([value, 2.0]))) == -120.0
