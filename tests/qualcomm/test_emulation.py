"""The compiled classifier in the emulator: figures against an own computation, equal bytes however it is split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from npubake.calibration.samples import SampleSet
from npubake.errors import StageError
from npubake.pipeline.stage import Job
from npubake.stages import emulate as stage
from npubake.toolchains.qualcomm.htp.emulation import Artifact, How, emulate
from npubake.toolchains.recorded import read_recorded
from npubake.verify.gates import Gate, judge
from tests.qualcomm import needs_qnn
from tests.qualcomm.released import compiled, released
from tests.toolchains.digits import Road

pytestmark = needs_qnn


def artifact(road: Road) -> Artifact:
    return Artifact(
        wrapper=road.files["compile_htp.wrapper"].read_bytes(),
        binary=road.files["compile_htp.binary"].read_bytes(),
        contract=road.record("compile_htp.contract"),
    )


def job(road: Road, folder: Path, threads: int, told: list[tuple[int, int]]) -> Job:
    folder.mkdir()
    ports = {port: f"compile_htp.{port}" for port in ("wrapper", "binary", "contract")}
    ports |= {"record": "adapt.record", "reference": "optimize.model", "quantised": "adapt.model", "samples": "samples"}
    return Job(
        params={"boundary": "compiled", "count": 5},
        inputs={port: (road.files[name],) for port, name in ports.items()},
        outputs={"figures": folder / "figures", "outputs": folder / "outputs"},
        threads=threads,
        progress=lambda done, total: told.append((done, total)),
    )


@pytest.fixture(scope="module")
def figures() -> Any:
    return released().record("emulate.figures")


def test_any_number_of_processes_gives_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for threads in (1, 2, 3):
        told: list[tuple[int, int]] = []
        given = job(compiled(), tmp_path / str(threads), threads, told)
        stage.run(given)
        made.append({port: path.read_bytes() for port, path in given.outputs.items()})
        assert told[-1] == (5, 5)
        assert told == sorted(told)
    assert made[0] == made[1] == made[2]


def test_figures_are_those_of_an_own_computation(figures: Any) -> None:
    road = released()
    entry = road.record("compile_htp.contract")["outputs"][0]
    recorded = read_recorded(road.files["emulate.outputs"].read_bytes(), "outputs")
    sessions = [
        onnxruntime.InferenceSession(road.files[name].read_bytes(), providers=["CPUExecutionProvider"])
        for name in ("optimize.model", "adapt.model")
    ]
    with SampleSet.open(road.files["samples"]) as samples:
        wanted = [samples.read(index * samples.count // 5) for index in range(5)]
    for model, told in zip(sessions, (figures["outputs"], figures["agreement"]["outputs"]), strict=True):
        left = np.concatenate([model.run(["logits"], feeds)[0].ravel() for feeds in wanted]).astype(np.float64)
        codes = np.concatenate([example.outputs["logits"].ravel() for example in recorded]).astype(np.float64)
        right = (codes - entry["zero_point"]) * np.float64(entry["scale"][0])
        noise = np.sum((left - right) ** 2)
        assert told["logits"]["sqnr_db"] == pytest.approx(10 * np.log10(np.sum(left**2) / noise), rel=1e-4)
        assert told["logits"]["max_abs"] == pytest.approx(np.abs(left - right).max(), rel=1e-4)
        assert told["logits"]["cosine"] == pytest.approx(
            left @ right / np.sqrt((left @ left) * (right @ right)), abs=1e-7
        )
    steps = figures["agreement"]["outputs"]["logits"]["largest_steps"]
    assert steps == round(figures["agreement"]["outputs"]["logits"]["max_abs"] / entry["scale"][0])


def test_the_artifact_is_near_the_float_and_the_qdq_model(figures: Any) -> None:
    assert figures["examples"] == 5
    assert all(check.passed for check in judge(Gate.from_params({"boundary": "compiled"}), [figures]))
    assert figures["agreement"]["outputs"]["logits"]["sqnr_db"] > 30
    assert "boxes" not in figures  # a classifier


def test_it_is_fed_the_pixels_of_the_samples() -> None:
    road = released()
    recorded = read_recorded(road.files["emulate.outputs"].read_bytes(), "outputs")
    with SampleSet.open(road.files["samples"]) as samples:
        for place, example in enumerate(recorded):
            index = place * samples.count // 5
            assert example.example == samples.describe(index)
            pixels = samples.read_stored(index)["image"]
            assert example.inputs["image"].dtype == np.uint8
            np.testing.assert_array_equal(example.inputs["image"].ravel(), pixels.ravel())


def test_feeds_that_do_not_fit_are_refused_before_anything_runs() -> None:
    with pytest.raises(StageError) as caught:
        emulate(artifact(compiled()), [{"picture": np.zeros((2, 2), np.uint8)}], How())
    assert [fault.where for fault in caught.value.faults] == ["picture", "image"]


def test_a_damaged_header_is_told_by_the_emulator() -> None:
    good = artifact(compiled())
    damaged = Artifact(wrapper=good.wrapper, binary=bytes(4096) + good.binary[4096:], contract=good.contract)
    feeds = {"image": np.zeros(good.contract["inputs"][0]["valid_shape"], np.uint8)}
    with pytest.raises(StageError) as caught:
        emulate(damaged, [feeds, feeds], How(processes=2))
    assert "refuses the artifact" in caught.value.faults[0].what
    assert json.dumps(caught.value.faults[0].what)  # plain text
