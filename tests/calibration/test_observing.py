"""One pass over the samples, against a model that is computed by hand, for any thread count, in flat memory."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from npubake.calibration.observing import observe
from npubake.calibration.samples import SampleSet
from npubake.calibration.statistics import Statistics, merge
from npubake.errors import StageError
from npubake.graph.summary import GraphSummary
from tests.calibration.sets import PREPARED, build, request, save_arrays, summary

ROOT = Path(__file__).resolve().parents[2]
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4] x) => (float[1,4] y, float[1,4] z) {
    [double] two = Add(x, x)
    [cut] y = Relu(two)
    [root] z = Sqrt(two)
}
"""


def small(folder: Path) -> tuple[Path, GraphSummary]:
    model = parser.parse_model(TEXT)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx", summary(model)


def statistics(folder: Path, arrays: list[Any], threads: int = 1) -> Statistics:
    folder.mkdir(exist_ok=True)
    model, graph = small(folder)
    build(save_arrays(folder, arrays), graph, request(PREPARED), folder / "s.npz")
    with SampleSet.open(folder / "s.npz") as samples:
        return observe(model, graph, samples, threads, lambda _done, _total: None)


def vector(*values: float) -> Any:
    return np.array([values], np.float32)


def test_every_quantisable_tensor_is_counted_inputs_and_outputs_too(tmp_path: Path) -> None:
    found = statistics(tmp_path, [vector(0, 1, 2, 3), vector(0, 0, 0, 50)])
    assert list(found.tensors) == ["x", "two", "y", "z"]
    assert found.samples == 2
    assert {name: (entry.minimum, entry.maximum, entry.count) for name, entry in found.tensors.items()} == {
        "x": (0.0, 50.0, 8),
        "two": (0.0, 100.0, 8),
        "y": (0.0, 100.0, 8),
        "z": (0.0, 10.0, 8),
    }
    assert all(entry.buckets.sum() == 8 for entry in found.tensors.values())
    assert found.tensors["two"].buckets[0] == 4  # the four zeros


def test_two_passes_merge_to_the_one_over_both(tmp_path: Path) -> None:
    one, two = [vector(0, 1, 2, 3)], [vector(4, 5, 6, 7), vector(0, 0, 9, 9)]
    merged = merge(statistics(tmp_path / "a", one), statistics(tmp_path / "b", two))
    merged.save(tmp_path / "merged.npz")
    statistics(tmp_path / "c", one + two).save(tmp_path / "whole.npz")
    assert (tmp_path / "merged.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


@pytest.mark.parametrize(("value", "word"), [(-1.0, "NaN"), (3e38, "Inf")])
def test_a_value_that_is_not_finite_names_example_and_tensor(tmp_path: Path, value: float, word: str) -> None:
    with pytest.raises(StageError) as caught:
        statistics(tmp_path, [vector(0, 1, 2, 3), vector(0, value, 0, 0)])
    (fault,) = caught.value.faults
    assert word in fault.what
    assert ("'z'" if word == "NaN" else "'two'") in fault.what
    assert fault.where == "example 1 (001.npy)"


def test_the_classifier_gives_the_same_bytes_for_any_thread_count(tmp_path: Path) -> None:
    path = ROOT / "models" / "digits_mobilenet.onnx"
    graph = summary(onnx.load(path))
    files = sorted((ROOT / "data" / "digits_cls" / "calibration").glob("*.npy"))[:8]
    build([{"": file} for file in files], graph, request(PREPARED), tmp_path / "s.npz")
    for threads in (1, 2, 3):
        with SampleSet.open(tmp_path / "s.npz") as samples:
            found = observe(path, graph, samples, threads, lambda _done, _total: None)
        found.save(tmp_path / f"{threads}.npz")
    digests = {hashlib.sha256((tmp_path / f"{threads}.npz").read_bytes()).hexdigest() for threads in (1, 2, 3)}
    assert len(digests) == 1
    pixels = np.stack([np.load(file) for file in files])
    assert found.tensors["image"].count == pixels.size
    assert (found.tensors["image"].minimum, found.tensors["image"].maximum) == (pixels.min(), pixels.max())


MEMORY = """
import json, re, sys
from pathlib import Path
import numpy as np, onnx
from onnx import parser
from npubake.calibration.observing import observe
from npubake.calibration.samples import Example, InputForm, SampleSet, SampleWriter
from tests.calibration.sets import summary
folder, count = Path(sys.argv[1]), int(sys.argv[2])
model = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,200,200] x) => (float[1,3,200,200] y)'
                           '{ [a] t = Relu(x)  [b] y = Add(t, x) }')
onnx.save(model, folder / "m.onnx")
forms = {"x": InputForm(shape=(1, 3, 200, 200), dtype="float32", linear=None)}
with SampleWriter(folder / "s.npz", forms) as writer:
    for index in range(count):
        value = np.full((1, 3, 200, 200), index, np.float32)
        writer.add(Example(stored={"x": value}, geometry={}, sources={}))
    writer.finish({"random": False})
with SampleSet.open(folder / "s.npz") as samples:
    observe(folder / "m.onnx", summary(model), samples, 1, lambda done, total: None)
# not ru_maxrss, which holds the parent's peak over exec: the comparison could then not fail
print(json.dumps(int(re.search("VmHWM: *([0-9]+) kB", Path("/proc/self/status").read_text().replace(chr(9), " "))[1])))
"""


def test_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    """0.5 MB a tensor: kept ones would show as 170 MB more at 128 than at 8."""
    peaks = []
    for count in (8, 128):
        answer = subprocess.run(
            [sys.executable, "-c", MEMORY, str(tmp_path), str(count)],
            capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )  # fmt: skip
        peaks.append(json.loads(answer.stdout))
    assert peaks[1] <= peaks[0] * 1.05
