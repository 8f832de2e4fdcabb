"""Kinds of numbers: models in double precision, whole or in part, are float32 models, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from scipy.signal import correlate2d

from npubake.errors import RecipeError
from npubake.graph.importing import import_model
from tests.kinds.graphs import Array, around, model, node, pictures, two_convolutions, value
from tests.kinds.road import assert_faithful, bake, sqnr


def test_models_in_double_precision_are_rounded_once_and_it_is_said(tmp_path: Path) -> None:
    """The runtime has no Conv of doubles; the expected values are those of scipy's correlation in float64."""
    source = two_convolutions(17, np.float64)
    baked = bake(source, pictures(), tmp_path)
    assert any("double precision" in warning for warning in baked.warnings)
    assert baked.float_nodes == set()
    assert {fact.dtype for fact in baked.summary.tensors.values()} == {"float32"}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in source.graph.initializer}
    for feeds in pictures():
        inner = np.maximum(_correlated(feeds["x"], constants["w"], constants["b"]), 0)
        expected = _correlated(inner, constants["v"], constants["c"])
        np.testing.assert_allclose(baked.run("import", feeds)[0], expected, atol=1e-5)
        assert sqnr(expected, baked.run("quantize", feeds)[0]) > 30


def _correlated(picture: Array, weight: Array, bias: Array) -> Array:
    """3 x 3, padded with zeros, one example: float64."""
    planes = [
        sum(correlate2d(plane, kernel, mode="same") for plane, kernel in zip(picture[0], kernels, strict=True)) + offset
        for kernels, offset in zip(weight, bias, strict=True)
    ]
    return np.asarray(planes)[None]


def test_a_piece_in_double_precision_is_quantised_like_the_rest(tmp_path: Path) -> None:
    middle = [
        node("Cast", "t", "d", to=TensorProto.DOUBLE),
        node("Mul", "d k", "e"),
        node("Cast", "e", "u", to=TensorProto.FLOAT),
    ]
    source = around(middle, {"k": np.array([[[0.1]], [[0.2]], [[0.3]], [[0.4]]])})
    baked = bake(source, pictures(), tmp_path)
    assert baked.float_nodes == set()
    assert_faithful(baked, source, pictures(), 30)


def test_doubles_that_float32_does_not_hold_are_refused_by_name() -> None:
    source = two_convolutions(17, np.float64)
    large = numpy_helper.to_array(source.graph.initializer[0]).copy()
    large[0, 0, 0, 0] = 1e200
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(large, "w"))
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert "'w'" in fault.what
    assert "1e+200" in fault.what
    assert fault.hint


def test_what_needs_double_precision_is_refused_by_its_output() -> None:
    """1 + x / 2**30 is 1 in float32, so that what is left of it is nothing."""
    source = model(
        [
            node("Mul", "x small", "a"),
            node("Add", "a one", "b"),
            node("Sub", "b one", "c"),
            node("Div", "c small", "y"),
        ],
        {"small": np.array(2.0**-30), "one": np.array(1.0)},
        [value("x", (2, 3), TensorProto.DOUBLE)],
        [value("y", (2, 3), TensorProto.DOUBLE)],
    )
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    assert [fault.where for fault in caught.value.faults] == ["y"]
    assert "float64" in caught.value.faults[0].what
