"""quant: forecasts against what quantising the very values loses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.calibration.counting import Tables, Tally
from npubake.calibration.statistics import TensorStatistics
from npubake.quant.affine import tensor_parameters
from npubake.quant.ranges import Range, snapped, widened
from npubake.quant.thresholds import MEASURED_METHODS
from npubake.quant.what_if import EIGHT_BITS, forecasts
from tests.quant.graphs import chain
from tests.quant.quantize_linear import fake_quantize


def statistics(values: NDArray[np.float32]) -> TensorStatistics:
    tally = Tally(0)
    assert tally.add(values, Tables())
    return tally.result()


GRAPH = chain(
    ("conv", "conv", ["x"], ["c"], "Conv"),
    ("soft", "softmax", ["c"], ["s"], "Softmax"),
    ("end", "conv", ["s"], ["y"], "Conv"),
    outputs=["y"],
)
GENERATOR = np.random.default_rng(31)
VALUES = {
    "x": GENERATOR.uniform(0, 1, size=20_000).astype(np.float32),
    "c": GENERATOR.standard_t(3, size=20_000).astype(np.float32),
    "s": GENERATOR.uniform(0, 1, size=20_000).astype(np.float32) ** 4,
    "y": np.zeros(100, np.float32),
}
DECLARED = {"x": Range(low=0.0, high=2.0)}
FOUND = {
    entry.tensor: entry
    for entry in forecasts(GRAPH, {name: statistics(values) for name, values in VALUES.items()}, DECLARED)
}


def sqnr(values: NDArray[np.float32], span: Range, dtype: str, *, asymmetric: bool) -> float:
    parameters = tensor_parameters(span, dtype, asymmetric=asymmetric)  # type: ignore[arg-type]
    error = values.astype(np.float64) - fake_quantize(values, parameters)
    return float(10 * np.log10(np.mean(values.astype(np.float64) ** 2) / np.mean(error**2)))


def test_every_tensor_every_method_and_every_format_has_a_figure() -> None:
    assert list(FOUND) == ["x", "c", "s", "y"]
    for entry in FOUND.values():
        assert {form: tuple(methods) for form, methods in entry.eight_bits.items()} == dict.fromkeys(
            EIGHT_BITS, MEASURED_METHODS
        )
    assert (FOUND["c"].layer, FOUND["c"].kind, FOUND["x"].layer, FOUND["x"].kind) == ("conv", "conv", "", "input")


def test_the_percentile_is_the_one_that_is_asked_for() -> None:
    seen = {"c": statistics(VALUES["c"])}
    figures = [forecasts(GRAPH, seen, {}, share)[0].eight_bits["uint8"] for share in (0.99, 0.9999)]
    assert figures[0]["percentile"] < figures[1]["percentile"] - 3
    assert figures[0]["mse"] == figures[1]["mse"]


def test_minmax_and_the_wide_formats_agree_with_the_values() -> None:
    values = VALUES["c"]
    seen = Range(low=float(values.min()), high=float(values.max()))
    for form in EIGHT_BITS:
        expected = sqnr(values, snapped(seen), "uint8", asymmetric=form == "uint8")
        assert FOUND["c"].eight_bits[form]["minmax"] == pytest.approx(expected, abs=0.3)
    assert FOUND["c"].int16 == pytest.approx(sqnr(values, widened(seen, 2.0), "int16", asymmetric=False), abs=0.3)
    error = values.astype(np.float64) - values.astype(np.float16).astype(np.float64)
    assert FOUND["c"].float16 == pytest.approx(
        10 * np.log10(np.mean(values.astype(np.float64) ** 2) / np.mean(error**2)),
        abs=1.0,  # a few large values decide
    )
    assert FOUND["c"].eight_bits["uint8"]["mse"] > FOUND["c"].eight_bits["uint8"]["minmax"]


@pytest.mark.parametrize(("tensor", "span"), [("x", DECLARED["x"]), ("s", Range(low=0.0, high=1.0))])
def test_declared_and_fixed_ranges_are_what_they_are_by_any_method(tensor: str, span: Range) -> None:
    assert FOUND[tensor].known
    assert not FOUND["c"].known
    expected = sqnr(VALUES[tensor], span, "uint8", asymmetric=True)
    assert set(FOUND[tensor].eight_bits["uint8"]) == set(MEASURED_METHODS)
    for value in FOUND[tensor].eight_bits["uint8"].values():
        assert value == pytest.approx(expected, abs=0.3)


def test_a_tensor_of_zeros_loses_nothing() -> None:
    assert FOUND["y"].eight_bits["uint8"]["mse"] == FOUND["y"].int16 == FOUND["y"].float16 == math.inf


def test_what_was_not_observed_has_no_forecast() -> None:
    assert [entry.tensor for entry in forecasts(GRAPH, {"c": statistics(VALUES["c"])}, {})] == ["c"]
