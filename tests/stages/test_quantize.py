"""quantize on the digits classifier: records, edges, runtime inputs, refusals, values against the float model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npubake.calibration.samples import SampleSet
from npubake.errors import RecipeError, StageError
from npubake.graph.execution import run_model
from npubake.graph.model_file import load_model
from tests.toolchains.digits import GRAY, calibrated, quantised


def test_nothing_removed_gives_the_same_bytes(tmp_path: Path) -> None:
    road = quantised(calibrated().branch(tmp_path), {})
    assert road.files["quantize.model"].read_bytes() == road.files["quantize.removed"].read_bytes()
    record = road.record("quantize.record")
    assert (record["removed"], record["runtime_inputs"], record["float_nodes"]) == ([], {}, [])
    assert record["outputs"]["logits"]["dtype"] == "float32"  # the accumulator leaves as float32
    groups = {entry["name"] for entry in road.record("optimize.graph")["groups"]}
    assert {entry["group"] for entry in record["certificates"]} == groups


def test_runtime_input_gives_the_integers_of_the_float_input(tmp_path: Path) -> None:
    plain = quantised(calibrated().branch(tmp_path / "plain"), {})
    baked = quantised(calibrated().branch(tmp_path / "baked"), {"runtime_input": GRAY})
    floats, bytes_ = load_model(plain.files["quantize.model"]), load_model(baked.files["quantize.model"])
    names = baked.record("quantize.record")["runtime_inputs"]["image"]["tensors"]
    assert [value.name for value in bytes_.graph.input] == names
    with SampleSet.open(plain.files["samples"]) as samples:
        for index in range(4):
            pixels = samples.read_stored(index)["image"].reshape(1, 1, 28, 28)
            want = run_model(floats, samples.read(index))["logits"]
            np.testing.assert_array_equal(run_model(bytes_, {"image": pixels})["logits"], want)


def test_provenance_names_tensors_that_hold_the_stated_values(tmp_path: Path) -> None:
    """Every ``scaled`` and ``same`` entry is checked by value: old = factor * (new - zero point), within the steps that
    quantisation costs, on a real digit."""
    road = quantised(calibrated().branch(tmp_path), {"runtime_input": GRAY})
    old, new = load_model(road.files["optimize.model"]), load_model(road.files["quantize.model"])
    with SampleSet.open(road.files["samples"]) as samples:
        pixels, value = samples.read_stored(0)["image"], samples.read(0)["image"]
    made = {name for node in old.graph.node for name in node.output}
    entries = [entry for entry in road.record("quantize.record")["provenance"] if entry["new"]]
    entries = [entry for entry in entries if entry["old"] in made | {"image"}]
    olds = run_model(old, {"image": value}, sorted({entry["old"] for entry in entries if entry["old"] in made}))
    olds["image"] = value
    news = run_model(new, {"image": pixels.reshape(1, 1, 28, 28)}, sorted({entry["new"] for entry in entries}))
    assert len(entries) > 5
    for entry in entries:
        got = entry["factor"] * (news[entry["new"]].astype(np.float64) - entry["zero_point"])
        spread = np.abs(olds[entry["old"]]).max()
        assert np.abs(got - olds[entry["old"]]).max() <= 0.12 * spread, entry


def test_tail_int32_and_removals(tmp_path: Path) -> None:
    road = quantised(calibrated().branch(tmp_path / "a"), {"tail": "int32"})
    (removed,) = road.record("quantize.record")["removed"]
    assert (removed["tensor"], removed["why"], removed["dtype"]) == ("logits", "tail int32", "int32")
    assert load_model(road.files["quantize.removed"]).graph.output[0].type.tensor_type.elem_type == 6
    assert load_model(road.files["quantize.model"]).graph.output[0].type.tensor_type.elem_type == 1
    asked = {"tail": "int32", "remove": {"inputs": ["Quantize"], "outputs": ["Dequantize"]}}
    road = quantised(calibrated().branch(tmp_path / "b"), asked)
    entries = road.record("quantize.record")["removed"]
    assert [(entry["side"], entry["why"]) for entry in entries] == [("inputs", "remove"), ("outputs", "remove")]
    assert load_model(road.files["quantize.removed"]).graph.input[0].type.tensor_type.elem_type == 2


@pytest.mark.parametrize(
    "params",
    [
        {"remove": {"outputs": ["Softmax"]}},
        {"remove": {"inputs": ["Quantize"]}, "runtime_input": GRAY},  # the runtime's bytes are integers already
        {"runtime_input": {"image": {"type": "nv12"}}},
        {"runtime_input": {"pixels": {"type": "gray", "channels": "gray"}}},
        {"runtime_input": {"image": {"type": "yuv420"}}},
    ],
)
def test_refusals(tmp_path: Path, params: Any) -> None:
    with pytest.raises(RecipeError):
        quantised(calibrated().branch(tmp_path), params)


def test_parameters_of_another_graph_are_refused(tmp_path: Path) -> None:
    road = calibrated().branch(tmp_path)
    other = tmp_path / "parameters"
    data = json.loads(road.files["calibrate.parameters"].read_text(encoding="utf-8"))
    other.write_text(json.dumps({**data, "graph_digest": "0" * 64}), encoding="utf-8")
    road.files["calibrate.parameters"] = other
    with pytest.raises(StageError) as caught:
        quantised(road, {})
    assert caught.value.faults[0].where == "parameters"


def test_bytes_repeat(tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        road = quantised(calibrated().branch(tmp_path / name), {"tail": "int32", "runtime_input": GRAY})
        ports = ("quantize.model", "quantize.removed", "quantize.record")
        digests.append([hashlib.sha256(road.files[port].read_bytes()).hexdigest() for port in ports])
    assert digests[0] == digests[1]
