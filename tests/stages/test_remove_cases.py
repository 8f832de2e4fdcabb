"""``remove`` by table: ``check`` (graph.json alone) and ``quantize`` (the lowered model) answer alike at every edge."""

from __future__ import annotations

import json
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from npubake.errors import RecipeError
from npubake.fixedpoint import quantising
from npubake.fixedpoint.lower import lower_model
from npubake.fixedpoint.lowered import Tail
from npubake.fixedpoint.quantising import EdgeRequest, Quantised, quantise
from npubake.graph.edge_checks import REMOVABLE
from npubake.layout.edges import from_edge, to_edge
from npubake.pipeline.stage import Job
from npubake.stages import check
from tests.fixedpoint.builds import Case, calibrated, float_model, node, session

Array = NDArray[Any]
SHAPES = {"flat": np.array([1, 24], np.int64), "back": np.array([1, 6, 4], np.int64)}
CONV = node("Conv", "x w", "c")
RELU = node("Relu", "c", "r")
# name -> nodes behind x [1, 3, 2, 2] (in front of output y)
BEHIND = [node("Conv", "t w", "c"), node("Relu", "c", "y")]
TURNED = [0, 2, 3, 1]
GRAPHS: dict[str, list[onnx.NodeProto]] = {
    "conv": [node("Conv", "x w", "y")],
    "table": [CONV, node("Sigmoid", "c", "y")],
    "softmax": [CONV, RELU, node("Softmax", "r", "y", axis=1)],
    "softmax_of_conv": [CONV, node("Softmax", "c", "y", axis=1)],
    "reshape": [CONV, RELU, node("Reshape", "r flat", "y")],
    "reshape_of_conv": [CONV, node("Reshape", "c flat", "y")],
    "transpose": [CONV, RELU, node("Transpose", "r", "y", perm=TURNED)],
    "softmax_reshape": [CONV, RELU, node("Softmax", "r", "s", axis=1), node("Reshape", "s flat", "y")],
    "softmax_transpose": [CONV, RELU, node("Softmax", "r", "s", axis=1), node("Transpose", "s", "y", perm=TURNED)],
    "transpose_softmax": [CONV, RELU, node("Transpose", "r", "t", perm=TURNED), node("Softmax", "t", "y", axis=3)],
    "softmax_both": [
        CONV, RELU, node("Softmax", "r", "s", axis=1), node("Transpose", "s", "t", perm=TURNED),
        node("Reshape", "t flat", "y"),
    ],
    "input_transpose": [node("Transpose", "x", "t", perm=[0, 1, 3, 2]), *BEHIND],
    "input_reshape": [node("Reshape", "x square", "t"), *BEHIND],
    "input_softmax": [node("Softmax", "x", "t", axis=1), *BEHIND],
    "input_to_output": [node("Softmax", "x", "y", axis=1)],
    "cast": [CONV, RELU, node("Cast", "r", "i", to=6), node("Cast", "i", "y", to=1)],
}  # fmt: skip
TAILS: tuple[Tail, ...] = ("int32", "float32")
LANES = ("a8w8", "a16w8", "fp16", "fp16_a8w8")
REQUESTS = [names for size in (1, 2, 3) for names in combinations(REMOVABLE, size)]


@cache
def made(graph: str, lane: str) -> tuple[Case, dict[str, Array]]:
    rng = np.random.default_rng(11)
    nodes = GRAPHS[graph]
    constants: dict[str, Array] = {"w": rng.normal(0, 1, (6, 3, 1, 1)).astype(np.float32), **SHAPES}
    constants["square"] = np.array([1, 3, 2, 2], np.int64)
    read = {name for entry in nodes for name in entry.input}
    shape = [1, 3, 4] if graph == "input_reshape" else [1, 3, 2, 2]
    kept = {name: value for name, value in constants.items() if name in read}
    model = float_model(nodes, {"x": shape}, kept, ["y"])
    feeds = {"x": rng.normal(0, 1, shape).astype(np.float32)}
    return calibrated(model, [feeds], lane), feeds


def checked(graph: Path, lane: str, tail: str, remove: dict[str, list[str]]) -> bool:
    """Whether ``check`` accepts; a refusal says what stands at the edge."""
    params = {"lane": lane, "remove": remove, "platform": {"name": "any", "tail": tail}}
    job = Job(params=params, inputs={"graph": (graph,)}, outputs={"report": graph.with_name("report")})
    try:
        check.run(job)
    except RecipeError as error:
        hints = [fault.hint or "" for fault in error.faults]
    else:
        return True
    assert all("edge" in hint for hint in hints)
    return False


def removed(case: Case, tail: str, remove: dict[str, list[str]]) -> Quantised | None:
    request = EdgeRequest.from_params({"tail": tail, "remove": remove})
    try:
        return quantise(case.model, case.summary, case.parameters, request)
    except RecipeError:
        return None


def identity(quantised: Quantised) -> bytes:
    """Both models and the record: what ``agrees`` looks at."""
    parts = [entry.SerializeToString(deterministic=True) for entry in (quantised.model, quantised.removed)]
    return b"".join([*parts, json.dumps(quantised.record, sort_keys=True).encode()])


def agrees(quantised: Quantised, feeds: dict[str, Array], lane: str) -> None:
    """The application's part around the bare model gives what the whole model gives."""
    onnx.checker.check_model(quantised.removed, full_check=True)
    entries = quantised.record["removed"]
    sides = {side: [entry for entry in entries if entry["side"] == side] for side in ("inputs", "outputs")}
    fed = {"x": to_edge(feeds["x"], sides["inputs"])}
    bare = session(quantised.removed).run(["y"], fed)[0]
    (kind,) = [value.type.tensor_type for value in quantised.removed.graph.output]
    assert bare.shape == tuple(dim.dim_value for dim in kind.shape.dim)
    want, got = session(quantised.model).run(["y"], feeds)[0], from_edge(bare, sides["outputs"])
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, atol=0.003 if lane != "a16w8" else 1e-4, rtol=1e-3)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_check_and_quantize_answer_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: str, lane: str
) -> None:
    case, feeds = made(graph, lane)
    lowered = {tail: lower_model(case.model, case.summary, case.parameters, tail) for tail in TAILS}
    monkeypatch.setattr(quantising, "lower_model", lambda *given: lowered[given[-1]])
    before = {tail: entry.model.SerializeToString(deterministic=True) for tail, entry in lowered.items()}
    place = tmp_path / "graph.json"
    case.summary.save(place)
    seen: set[bytes] = set()
    worked = 0
    for tail in TAILS:
        for side in ("inputs", "outputs"):
            for names in REQUESTS if side == "outputs" else REQUESTS[:21]:
                remove = {side: list(names)}
                quantised = removed(case, tail, remove)
                accepted = checked(place, lane, tail, remove)
                assert accepted == (quantised is not None), (tail, remove)
                if quantised is not None:
                    worked += 1
                    if (everything := identity(quantised)) not in seen:  # several requests come to one model
                        seen.add(everything)
                        agrees(quantised, feeds, lane)
    assert worked or lane in ("fp16", "fp16_a8w8") or graph == "input_to_output"
    assert {tail: entry.model.SerializeToString(deterministic=True) for tail, entry in lowered.items()} == before


def squeezenet() -> tuple[Case, dict[str, Array]]:
    """``light_squeezenet`` of the onnx wheel, its end: 1 x 1 convolution, average, Softmax, Reshape to the output."""
    rng = np.random.default_rng(2)
    nodes = [
        CONV, RELU, node("GlobalAveragePool", "r", "p"), node("Softmax", "p", "s", axis=1),
        node("Reshape", "s shape", "y"),
    ]  # fmt: skip
    constants: dict[str, Array] = {
        "w": rng.normal(0, 1, (40, 3, 1, 1)).astype(np.float32),
        "shape": np.array([1, 40], np.int64),
    }
    model = float_model(nodes, {"x": [1, 3, 4, 4]}, constants, ["y"])
    feeds = {"x": rng.normal(0, 1, (1, 3, 4, 4)).astype(np.float32)}
    return calibrated(model, [feeds]), feeds


@pytest.mark.parametrize(
    ("names", "dtype", "shape", "gone"),
    [
        (["Softmax", "Reshape"], "float32", [1, 40, 1, 1], ["Reshape", "Softmax"]),
        (["Softmax"], "float32", [1, 40], ["Softmax"]),
        (["Reshape"], "float32", [1, 40, 1, 1], ["Reshape"]),
        (["Softmax", "Dequantize"], "uint8", [1, 40], ["Softmax", "DequantizeLinear"]),
        (["Dequantize", "Softmax", "Reshape"], "uint8", [1, 40, 1, 1], ["Reshape", "Softmax", "DequantizeLinear"]),
    ],
)
def test_a_softmax_with_a_reshape_behind_it(
    tmp_path: Path, names: list[str], dtype: str, shape: list[int], gone: list[str]
) -> None:
    case, feeds = squeezenet()
    case.summary.save(tmp_path / "graph.json")
    assert checked(tmp_path / "graph.json", "a8w8", "float32", {"outputs": names})
    quantised = removed(case, "float32", {"outputs": names})
    assert quantised is not None
    agrees(quantised, feeds, "a8w8")
    assert [entry["op_type"] for entry in quantised.record["removed"]] == gone
    (value,) = quantised.removed.graph.output
    assert onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) == dtype
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == shape


def test_a_movement_that_loses_the_axis_goes_with_the_softmax() -> None:
    case, _ = made("softmax_both", "a8w8")
    quantised = removed(case, "float32", {"outputs": ["Softmax"]})
    assert quantised is not None
    said = [(entry["op_type"], entry["why"]) for entry in quantised.record["removed"]]
    behind = "stands behind a removed Softmax"
    assert said == [("Reshape", behind), ("Transpose", behind), ("Softmax", "remove")]
