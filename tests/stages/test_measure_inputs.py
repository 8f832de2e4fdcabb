"""Stage ``measure_inputs``: the labelled stack of the classifier, row by row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from npubake.calibration.samples import SampleSet
from npubake.stages import measure_inputs
from tests.calibration.sets import PREPARED, inputs_only, job, listing

ROOT = Path(__file__).resolve().parents[2]


def test_rows_of_the_validation_stack_are_examples(tmp_path: Path) -> None:
    path = ROOT / "data" / "digits_cls" / "validation.npz"
    data, files = listing([{"": path}], kind="npz")
    (tmp_path / "listing.json").write_text(json.dumps(data))
    inputs_only(image=((1, 1, 28, 28), "float32")).save(tmp_path / "graph.json")
    inputs = {"listing": tmp_path / "listing.json", "files": files, "graph": tmp_path / "graph.json"}
    measure_inputs.run(job(tmp_path, {"preset": PREPARED.expanded()}, ("samples",), **inputs))
    with np.load(path) as stack, SampleSet.open(tmp_path / "samples") as samples:
        assert samples.count == len(stack["images"])
        assert np.array_equal(samples.read(17)["image"], stack["images"][17:18])
