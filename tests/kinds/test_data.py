"""Kinds of calibration data: what is wrong with an example is told by its file and tensor, before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from npubake.errors import BuildError, RecipeError, StageError
from tests.kinds.graphs import Array, around, node, pictures, two_convolutions, weights
from tests.kinds.road import Feeds, assert_faithful, bake, run, sqnr


@pytest.mark.parametrize(("number", "word"), [(np.nan, "NaN"), (np.inf, "Inf"), (-np.inf, "Inf")])
def test_a_number_that_is_none_is_told_by_file_and_tensor(tmp_path: Path, number: float, word: str) -> None:
    examples = pictures()
    examples[3]["x"][0, 1, 2, 2] = number
    with pytest.raises(RecipeError) as caught:
        bake(two_convolutions(), examples, tmp_path)
    (fault,) = caught.value.faults
    assert fault.where.startswith("00003.npz")
    assert "'x'" in fault.what
    assert word in fault.what


def test_a_number_that_the_model_makes_of_one_example_is_told_too(tmp_path: Path) -> None:
    model = around([node("Add", "t k", "r"), node("Sqrt", "r", "u")], {"k": np.array(40, np.float32)})
    examples = pictures()
    examples[4]["x"] *= 400  # below -40 behind the first Conv
    with pytest.raises(StageError) as caught:
        bake(model, examples, tmp_path)
    (fault,) = caught.value.faults
    assert "00004.npz" in fault.where
    assert "'u'" in fault.what
    assert "NaN" in fault.what


def test_an_empty_set_is_told_before_anything_is_observed(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        bake(two_convolutions(), [], tmp_path)
    assert "no example" in caught.value.faults[0].what
    assert not (tmp_path / "observe.statistics").exists()


def test_a_type_that_loses_values_is_refused_for_every_example(tmp_path: Path) -> None:
    examples = [{"x": feeds["x"].astype(np.float64)} for feeds in pictures(3)]
    with pytest.raises(RecipeError) as caught:
        bake(two_convolutions(), examples, tmp_path)
    assert [fault.where.partition("[")[0] for fault in caught.value.faults] == ["00000.npz", "00001.npz", "00002.npz"]
    assert all("float64" in fault.what and "float32" in fault.hint for fault in caught.value.faults)


def test_float16_examples_are_float32_examples(tmp_path: Path) -> None:
    narrow = [{"x": feeds["x"].astype(np.float16)} for feeds in pictures()]
    wide = [{"x": feeds["x"].astype(np.float32)} for feeds in narrow]
    (tmp_path / "narrow").mkdir()
    (tmp_path / "wide").mkdir()
    model = two_convolutions()
    found = [bake(model, examples, tmp_path / name) for name, examples in (("narrow", narrow), ("wide", wide))]
    statistics = [baked.files["observe.statistics"].read_bytes() for baked in found]
    assert statistics[0] == statistics[1]


def _faulty(count: int, **arrays: Array) -> Sequence[Feeds]:
    return [*pictures(count), arrays]


@pytest.mark.parametrize(
    ("examples", "word"),
    [
        (_faulty(2, y=weights(1, 3, 8, 8), z=weights(1, 3, 8, 8)), "'x'"),  # other names
        (_faulty(2, x=weights(1, 3, 8, 9)), "(3, 8, 9)"),  # another size
        (_faulty(2, x=np.zeros((0, 3, 8, 8), np.float32)), "no example"),
    ],
)
def test_an_example_that_does_not_fit_is_told_by_its_file(tmp_path: Path, examples: Sequence[Feeds], word: str) -> None:
    with pytest.raises(BuildError) as caught:
        bake(two_convolutions(), examples, tmp_path)
    assert any(word in fault.what for fault in caught.value.faults)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_models_in_half_precision_are_quantised_from_float32_and_it_is_said(tmp_path: Path, dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    model = two_convolutions(22, np.float16 if dtype == "float16" else ml_dtypes.bfloat16)
    examples = [{"x": feeds["x"].astype(np.float16)} for feeds in pictures()]
    baked = bake(model, examples, tmp_path)
    assert baked.summary.tensors["x"].dtype == "float32"
    assert any("half precision" in warning for warning in baked.warnings)
    assert baked.float_nodes == set()
    for feeds in examples:
        (exact,), (integer,) = baked.run("import", feeds), baked.run("quantize", feeds)
        assert sqnr(exact, integer) > 30
    if dtype == "float16":  # the runtime has no bfloat16 Conv
        (half,) = run(model.SerializeToString(), examples[0])
        np.testing.assert_allclose(baked.run("import", examples[0])[0], half, atol=0.02)


def test_examples_of_varying_sizes_need_one_stated_size(tmp_path: Path) -> None:
    model = two_convolutions()
    for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim[2:], ("height", "width"), strict=True):
        dim.dim_param = name
    for axis, name in ((2, "height"), (3, "width")):
        model.graph.output[0].type.tensor_type.shape.dim[axis].dim_param = name
    with pytest.raises(RecipeError) as caught:
        bake(model, pictures(), tmp_path)
    assert [fault.path for fault in caught.value.faults] == ["$.model.inputs.x.shape"] * 2
    assert "height" in caught.value.faults[0].what
    assert "width" in caught.value.faults[1].what
    examples = pictures(4, (1, 3, 12, 10))
    baked = bake(model, examples, tmp_path, shapes={"x": (1, 3, 12, 10)})
    assert_faithful(baked, model, examples, 30)


def test_a_batch_without_size_is_one(tmp_path: Path) -> None:
    model = two_convolutions()
    for tensor in (model.graph.input[0], model.graph.output[0]):
        tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    baked = bake(model, pictures(), tmp_path)
    assert baked.summary.tensors["x"].shape == (1, 3, 8, 8)
    assert_faithful(baked, model, pictures(), 30)
