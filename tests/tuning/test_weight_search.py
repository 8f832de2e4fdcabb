"""Search of weight scales: against trying every candidate by hand, and on weights whose best clip is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from npubake.tuning.matrix_form import MatrixForm, matrix_forms
from npubake.tuning.moments import Moments, accumulate
from npubake.tuning.weight_search import ScaleSearch, search_scales
from tests.tuning.layers import layer

Wide = NDArray[np.float64]


def free(scales: Wide) -> Wide:
    return scales


def odd_divisors(scales: Wide) -> Wide:
    """so / (si * D) with so / si = 3 and D odd, the scale never smaller than asked."""
    divisors = np.floor(3 / scales)
    return np.asarray(3 / (divisors - (divisors % 2 == 0)))


def case(name: str) -> tuple[MatrixForm, Wide, Wide]:
    """Form, weights [groups, rows, columns] with one heavy tail a channel, and the covariance of correlated inputs."""
    made = layer(name)
    form = matrix_forms(made.model, made.summary, ["layer"])["layer"]
    moments = Moments.empty(form)
    for index, x in enumerate(made.inputs(5)):
        accumulate(moments, form, np.cumsum(x, axis=1, dtype=np.float32), index, positions=4 * form.positions)
    weights = form.to_matrix(made.weights).astype(np.float64)
    return form, np.sign(weights) * np.abs(weights) ** 3, moments.centred()


def given(form: MatrixForm, weights: Wide, limit: int) -> Wide:
    """absmax / limit of each channel of the initialiser."""
    largest = np.abs(weights).max(axis=2)
    return np.asarray(largest.max(axis=0) if form.operator == "conv_transpose" else largest.reshape(-1)) / limit


@pytest.mark.parametrize("place", [free, odd_divisors])
@pytest.mark.parametrize("name", ["plain", "grouped", "depthwise", "transpose_grouped", "gemm"])
def test_each_channel_takes_its_best_candidate(name: str, place: object) -> None:
    form, weights, hessian = case(name)
    start = given(form, weights, 7)
    placed = free if place is free else odd_divisors
    search = ScaleSearch(low=-7, high=7, place=placed, candidates=9)
    found = search_scales(form, weights, hessian, start, search)
    for channel, scale in enumerate(start):
        errors, tried = [], []
        for step in range(9):
            wanted = placed(np.array([scale * (1 - 0.5 * (step / 8) ** 2)]))[0]
            rows = [channel] if form.groups * form.rows == len(start) else [channel, channel + form.rows]
            total = 0.0
            for row in rows:
                w = weights[row // form.rows, row % form.rows]
                e = w - wanted * np.clip(np.rint(w / wanted), -7, 7)
                total += float(e @ hessian[row // form.rows] @ e)
            errors.append(total)
            tried.append(wanted)
        assert found.scales[channel] == tried[int(np.argmin(errors))]
        np.testing.assert_allclose([found.before[channel], found.after[channel]], [errors[0], min(errors)], rtol=1e-4)


def test_a_lone_outlier_that_is_never_read_is_clipped_and_counted() -> None:
    form, _, _ = case("gemm")  # 6 columns, 4 rows
    weights = np.full((1, 4, 6), 0.9)
    weights[0, :, 1:] *= np.linspace(0.3, 1, 5)
    weights[0, 0, 0] = 2.0
    hessian = np.diag([0.0, 1, 1, 1, 1, 1])[None]
    found = search_scales(form, weights, hessian, np.full(4, 2 / 7), ScaleSearch(low=-7, high=7, place=free))
    assert found.saturated.tolist()[0] == 1
    assert found.scales[0] < 2 / 7
    assert (found.after <= found.before).all()
    assert found.after[0] < found.before[0]


def test_one_candidate_changes_nothing() -> None:
    form, weights, hessian = case("plain")
    start = given(form, weights, 127)
    found = search_scales(form, weights, hessian, start, ScaleSearch(low=-127, high=127, place=free, candidates=1))
    np.testing.assert_array_equal(found.scales, start)
    np.testing.assert_array_equal(found.before, found.after)
    assert not found.saturated.any()


def test_a_shared_scale_serves_the_sum_of_the_channels() -> None:
    form, weights, hessian = case("plain")
    start = np.full(5, given(form, weights, 7).max())
    search = ScaleSearch(low=-7, high=7, place=free, shared=True)
    found = search_scales(form, weights, hessian, start, search)
    assert len(set(found.scales.tolist())) == 1
    each = [
        search_scales(form, weights, hessian, np.full(5, scale), ScaleSearch(low=-7, high=7, place=free, candidates=1))
        for scale in start[0] * search.ratios()
    ]
    assert found.after.sum() == min(one.after.sum() for one in each)


def test_steps_scale_the_codes_of_their_columns() -> None:
    form, weights, hessian = case("gemm")
    steps = np.array([1.0, 1, 1, 2, 2, 2])
    start = given(form, weights / steps, 7)
    found = search_scales(form, weights, hessian, start, ScaleSearch(low=-7, high=7, place=free, steps=steps))
    scale = found.scales[2] * steps
    error = weights[0, 2] - scale * np.clip(np.rint(weights[0, 2] / scale), -7, 7)
    np.testing.assert_allclose(found.after[2], error @ hessian[0] @ error, rtol=1e-4)


@pytest.mark.parametrize("wrong", [{"candidates": 0}, {"smallest": 0.0}, {"smallest": 1.5}])
def test_settings_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="candidates"):
        ScaleSearch(low=-7, high=7, place=free, **wrong)  # type: ignore[arg-type]
