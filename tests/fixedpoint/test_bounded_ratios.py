"""Long sums and large ratios: fewer bits of the ratio of scales, then float; every element equals the evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from npubake.fixedpoint.kernels.bounds import bounded_ratio
from npubake.fixedpoint.lowering import NoIntegerKernelError
from tests.fixedpoint.builds import Case, all_runs, by_hand, float_model, held, node
from tests.fixedpoint.evaluator import ratio
from tests.fixedpoint.test_certificates import integer_case

Array = NDArray[Any]
ENDS = (-32768.0, 32767.0)
NONE = np.array([], np.float32)


def one(op_type: str, shape: Sequence[int], constants: Mapping[str, Array], **attributes: Any) -> onnx.ModelProto:
    inputs = " ".join(["x", *constants])
    return float_model([node(op_type, inputs, "y", **attributes)], {"x": shape}, constants, ["y"])


def two(op_type: str, *shapes: Sequence[int]) -> onnx.ModelProto:
    return float_model([node(op_type, "x z", "y")], dict(zip(("x", "z"), shapes, strict=True)), {}, ["y"])


def wide(model: onnx.ModelProto, scale: float) -> Case:
    """int16 everywhere: inputs with scale 1, the output with ``scale``."""
    names = [value.name for value in model.graph.input]
    return by_hand(model, {**{name: held("int16") for name in names}, "y": held("int16", scale)})


def extremes(model: onnx.ModelProto) -> list[dict[str, Array]]:
    """Every input at either end, and values drawn from the ends, from all integers and from small ones."""
    rng = np.random.default_rng(5)
    shapes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in model.graph.input}
    draws: list[Any] = [lambda shape, end=end: np.full(shape, end) for end in ENDS]
    draws += [lambda shape: rng.choice(ENDS, shape), lambda shape: rng.integers(-32768, 32768, shape)]
    draws += [lambda shape: rng.integers(-2, 3, shape)]
    return [{name: draw(shape).astype(np.float32) for name, shape in shapes.items()} for draw in draws]


def agrees(case: Case) -> None:
    lowered = case.lower()
    assert not lowered.float_nodes
    (certificate,) = lowered.certificates
    assert "< 2^5" in certificate.exact
    for feeds in extremes(case.model):
        expected = case.expected(feeds)["y"]
        for found in all_runs(lowered.model, feeds):
            np.testing.assert_array_equal(found["y"], expected)


@pytest.mark.parametrize("scale", [0.37, 0.99999, 1.0, 1.7, 2.0**-8])
def test_global_average_of_a_large_map(scale: float) -> None:
    """120 x 120 values of 16 bits: 2^53.8 with 24 bits of the ratio, which no float64 sum holds."""
    agrees(wide(one("GlobalAveragePool", [1, 3, 120, 120], {}), scale))


FAR: Mapping[str, tuple[onnx.ModelProto, float]] = {
    "reduce_mean": (one("ReduceMean", [2, 40000], {"a": np.array([1])}), 0.9),
    "reduce_sum": (one("ReduceSum", [2, 40000], {"a": np.array([1])}), 0.9),
    "reduce_max": (one("ReduceMax", [2, 40], {"a": np.array([1])}), 2.0**-30),
    "average_pool": (
        one("AveragePool", [1, 2, 20, 20], {}, kernel_shape=[19, 19], pads=[1] * 4, count_include_pad=1),
        2.0**-26,
    ),
    "average_pool_beyond_float32": (one("AveragePool", [1, 2, 25, 26], {}, kernel_shape=[24, 23], strides=[1, 2]), 0.9),
    "linear_resize_beyond_float32": (
        one("Resize", [1, 2, 3, 3], {"r": NONE, "s": np.array([1, 1, 32, 32], np.float32)}, mode="linear"),
        0.9,
    ),
    "linear_resize_aligned": (
        one(
            "Resize",
            [1, 2, 5, 7],
            {"r": NONE, "e": NONE, "s": np.array([1, 2, 38, 41])},
            mode="linear",
            coordinate_transformation_mode="align_corners",
        ),
        0.9,
    ),
    "matmul": (two("MatMul", [3, 600], [600, 2]), 0.9),
    "multiply": (two("Mul", [2, 50], [2, 50]), 0.9),
    "divide": (two("Div", [2, 50], [2, 50]), 2.0**-30),
    "add": (two("Add", [2, 50], [2, 50]), 2.0**-15),
    "sub": (two("Sub", [2, 50], [2, 50]), 2.0**-20),
    "add_constant": (one("Add", [2, 3], {"c": np.array([1e6, -3.7e4, 0.1], np.float32)}), 2.0**-10),
    "multiply_constant": (one("Mul", [2, 3], {"c": np.array([1e5, 3.0, 0.001], np.float32)}), 2.0**-3),
    "linear_resize": (
        one(
            "Resize",
            [1, 2, 4, 4],
            {"r": np.array([], np.float32), "s": np.array([1, 1, 8, 8], np.float32)},
            mode="linear",
        ),
        2.0**-14,
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_long_sums_and_large_ratios_stay_exact(name: str) -> None:
    model, scale = FAR[name]
    agrees(wide(model, scale))


def test_softmax_over_a_long_axis() -> None:
    """500,000 classes from 16 bits to 8: with 24 bits of the ratio n * sum E would pass 2^52."""
    model = one("Softmax", [1, 500_000], {}, axis=1)
    case = by_hand(model, {"x": held("int16", 2.0**-12), "y": held("uint8", 2.0**-7)})
    lowered = case.lower()
    assert not lowered.float_nodes
    values = np.full((1, 500_000), -1e9, np.float32)
    values[0, [3, 77]], values[0, 4] = 8.0, 7.5
    expected = case.expected({"x": values})["y"]
    assert len(np.unique(expected)) == 3
    for found in all_runs(lowered.model, {"x": values}):
        np.testing.assert_array_equal(found["y"], expected)


@given(
    value=st.fractions(Fraction(1, 2**40), 2**30),
    most=st.sampled_from([12, 24]),
    above=st.integers(1, 2**41),
    below=st.integers(0, 2**41),
)
def test_a_bounded_ratio_has_the_most_bits_that_fit(value: Fraction, most: int, above: int, below: int) -> None:
    def fits(precision: int) -> bool:
        m, n = ratio(value, precision)
        return max(above * m, below * n) < 2**52

    fitting = [precision for precision in range(12, most + 1) if fits(precision)]
    if not fitting:
        with pytest.raises(NoIntegerKernelError):
            bounded_ratio(value, most, above, below)
        return
    m, n = bounded_ratio(value, most, above, below)
    assert (m, n) == ratio(value, fitting[-1])
    assert abs(Fraction(m, n) / value - 1) <= Fraction(1, 2 ** fitting[-1])


UNSUITABLE: Mapping[str, tuple[onnx.ModelProto, float]] = {
    "reduce_mean": (one("ReduceMean", [2, 40], {"a": np.array([1])}), 2.0**-40),
    "matmul": (two("MatMul", [3, 6], [6, 2]), 2.0**-30),
    "multiply": (two("Mul", [2, 5], [2, 5]), 2.0**-30),
    "divide": (two("Div", [2, 5], [2, 5]), 2.0**-40),
    "add": (two("Add", [2, 5], [2, 5]), 2.0**-40),
    "infinite_constant": (one("Add", [2, 3], {"c": np.array([0, -np.inf, 1], np.float32)}), 1.0),
    "divided_by_zero": (one("Div", [2, 3], {"c": np.array([1, 0, 2], np.float32)}), 1.0),
}


@pytest.mark.parametrize("name", UNSUITABLE)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_what_twelve_bits_cannot_hold_is_listed_and_computed_in_float(name: str) -> None:
    model, scale = UNSUITABLE[name]
    case = wide(model, scale)
    lowered = case.lower()
    (listed,) = lowered.float_nodes
    assert listed.group == case.summary.groups[0].name
    assert listed.why.startswith("no integer kernel: ")
    assert not lowered.certificates
    feeds = {name: np.full_like(value, 3) for name, value in extremes(model)[0].items()}
    runs = all_runs(lowered.model, feeds)
    assert all(np.array_equal(run["y"], runs[0]["y"], equal_nan=True) for run in runs)
    assert all(value.shape == tuple(case.summary.tensors["y"].shape) for value in runs[0].values())


def test_weighted_sums_beyond_every_kernel_are_listed() -> None:
    """70,000 products of 127 * 255 pass int32; 30 x 30 taps of one input channel are more than ConvTranspose adds."""
    many = integer_case("Conv", [1, 70_000, 1, 1], np.full((1, 70_000, 1, 1), 127), held(), ())
    taps = integer_case("ConvTranspose", [1, 1, 2, 2], np.full((1, 1, 30, 30), 127), held(), ())
    for case, shape, total in ((many, (1, 70_000, 1, 1), 70_000 * 127.0), (taps, (1, 1, 2, 2), 4 * 127.0)):
        lowered = case.lower()
        (listed,) = lowered.float_nodes
        assert "beyond" in listed.why
        for found in all_runs(lowered.model, {"x": np.ones(shape, np.float32)}):
            assert abs(found["y"].max() - total) <= 1e-5 * total
