"""graph.baseline: the boundary between the training framework and ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npubake.errors import RecipeError, StageError
from npubake.graph.baseline import compare_baseline
from tests.graph.writing import Array, build, normal

WEIGHT = normal(5, 4)


def _model() -> onnx.ModelProto:
    return build("float[2,5] x => float[2,4] y, float[2,4] z", "y = MatMul(x, w) z = Relu(y)", w=WEIGHT)


def _golden(tmp_path: Path, **arrays: Array) -> Path:
    path = tmp_path / "golden.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type] # numpy types keyword arrays as its own flag
    return path


FEED = normal(2, 5, scale=1.0)
ANSWER = FEED.astype(np.float64) @ WEIGHT.astype(np.float64)


def test_equal_outputs_pass(tmp_path: Path) -> None:
    cosines = compare_baseline(_model(), _golden(tmp_path, x=FEED, y=ANSWER, z=np.maximum(ANSWER, 0)))
    assert cosines.keys() == {"y", "z"}
    assert min(cosines.values()) > 0.99999999


def test_prefixed_names_and_double_precision_are_read(tmp_path: Path) -> None:
    arrays = {"input/x": FEED.astype(np.float64), "output/y": ANSWER}
    assert compare_baseline(_model(), _golden(tmp_path, **arrays)).keys() == {"y"}


def test_another_layout_is_caught_at_the_first_boundary(tmp_path: Path) -> None:
    wrong = np.ascontiguousarray(ANSWER[:, ::-1])
    with pytest.raises(StageError) as caught:
        compare_baseline(_model(), _golden(tmp_path, x=FEED, y=wrong, z=wrong))
    assert {fault.where for fault in caught.value.faults} == {"y", "z"}
    for fault in caught.value.faults:
        assert "training framework -> ONNX" in fault.what
        assert "export, layout, preprocessing, or unsupported graph rewrite" in fault.hint


def test_the_threshold_is_the_recipe_s(tmp_path: Path) -> None:
    close = ANSWER + 0.01 * np.abs(ANSWER).max() * np.sign(normal(2, 4))
    path = _golden(tmp_path, x=FEED, y=close)
    with pytest.raises(StageError):
        compare_baseline(_model(), path, threshold=0.9999999)
    assert compare_baseline(_model(), path, threshold=0.99)["y"] < 0.9999999


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers_never_pass(tmp_path: Path, bad: float) -> None:
    broken = ANSWER.copy()
    broken[0, 0] = bad
    with pytest.raises(StageError):
        compare_baseline(_model(), _golden(tmp_path, x=FEED, y=broken), threshold=-1.0)


@pytest.mark.parametrize(
    "arrays",
    [
        {"y": ANSWER},
        {"x": FEED},
        {"x": FEED[:1], "y": ANSWER},
        {"x": FEED.astype(np.int64), "y": ANSWER},
        {"x": FEED, "y": ANSWER, "yy": ANSWER},
    ],
)
def test_archives_that_do_not_fit_are_the_recipe_s_fault(tmp_path: Path, arrays: dict[str, Array]) -> None:
    with pytest.raises(RecipeError):
        compare_baseline(_model(), _golden(tmp_path, **arrays))


def test_a_shape_that_differs_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught:
        compare_baseline(_model(), _golden(tmp_path, x=FEED, y=ANSWER.T.copy()))
    assert "shape" in caught.value.faults[0].what


def test_files_that_are_no_archive_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "golden.npz"
    for data in (b"", b"PK\x03\x04 broken", b"text"):
        path.write_bytes(data)
        with pytest.raises(RecipeError):
            compare_baseline(_model(), path)
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(RecipeError):
        compare_baseline(_model(), path)
