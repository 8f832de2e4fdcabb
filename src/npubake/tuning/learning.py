"""tuning: MOD, Minimise Output Difference, layer by layer. Samples of one layer in, its codes and scales out.

Scales, zero point, rounding and bias of the quantised layer are moved by Adam down the gradient of the mean squared
difference of its outputs to the float layer's (``layer_problem``, ``quantiser_gradients``). Two steps: scales first
(rounding to nearest meanwhile), then, once the caller has put them on the grid of exact rounding, rounding. What was
learned is judged in integers on positions that the learning did not see, and kept only where it is better.

Products are exact (``exact_products``) and batches follow one fixed order: the result repeats for any thread count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import cos, pi
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from npubake.tuning.exact_products import integer_product, product
from npubake.tuning.hessian import Codes, Grid
from npubake.tuning.layer_problem import Chosen, InputQuantiser, LayerProblem, judged, settled_bias
from npubake.tuning.quantiser_gradients import (
    adam,
    fake_quantised,
    rounding_gradient,
    scale_gradient,
    soften,
    unrounded,
)

Wide = NDArray[np.float64]
Learnable = Literal["activation_scale", "zero_point", "weight_scale", "rounding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """epochs: passes over the positions; batch: positions a step; learning_rate: of rounding variables, a tenth of it
    for logarithms of scales; schedule: ``cosine`` falls to zero. press: weight of the term that makes rounding a
    choice, against an output error that is about 1 a weight; it comes in after ``start`` (a share of the steps) and
    grows; beta: first and last exponent of that term.
    """

    epochs: int = 50
    batch: int = 256
    learning_rate: float = 0.3
    schedule: Literal["constant", "cosine"] = "cosine"
    press: float = 300.0
    start: float = 0.2
    beta: tuple[float, float] = (20.0, 2.0)

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.learning_rate > 0:
            raise ValueError(f"epochs >= 1, batch >= 1 and learning_rate > 0, not {self}")

    def batch_of(self, positions: int) -> int:
        """``batch``, or an eighth of few positions: an epoch has eight steps at least."""
        return max(min(self.batch, positions // 8), 1)

    def steps(self, positions: int) -> int:
        return self.epochs * -(-positions // self.batch_of(positions))

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of ``step`` (from 0) of ``steps``."""
        return self.learning_rate * (0.5 + 0.5 * cos(pi * step / steps) if self.schedule == "cosine" else 1.0)

    def pressure(self, step: int, steps: int) -> tuple[float, float]:
        """beta and weight of the pressing term. After the start beta falls along a cosine (arXiv 2004.10568), and
        the weight grows with the square of the share done: first the error decides, then every code must.
        """
        begun = self.start * steps
        if step < begun:
            return self.beta[0], 0.0
        share = (step - begun) / max(steps - begun, 1)
        return self.beta[1] + (self.beta[0] - self.beta[1]) * (0.5 + 0.5 * cos(pi * share)), self.press * share**2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedRounding:
    """codes [groups, rows, columns] and bias [groups, rows] that are used; before, after: loss on unseen positions of
    the codes given and of those learned. kept: whether the learned ones are used.
    """

    codes: Codes
    bias: Wide
    before: float
    after: float
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedScales:
    """quantiser and weight_scales [groups, rows, 1] (or by column) that are used; loss as in ``LearnedRounding``."""

    quantiser: InputQuantiser
    weight_scales: Wide
    before: float
    after: float
    kept: bool


def learn_rounding(problem: LayerProblem, grid: Grid, start: Codes, settings: LearningSettings) -> LearnedRounding:
    """Codes on ``grid`` with a small output difference; ``start``: codes to beat, and the reference of the loss."""
    state, steps = RoundingState(problem, grid, start), settings.steps(problem.seen)
    for step, chosen in enumerate(_batches(problem.seen, settings)):
        gradients = state.gradients(chosen, *settings.pressure(step, steps))
        state.move(gradients, settings.rate(step, steps), step + 1)
    hard = state.codes()
    before, first = judged(problem, grid.values(start))
    after, second = judged(problem, grid.values(hard))
    kept = after < before
    return LearnedRounding(
        codes=hard if kept else start, bias=second if kept else first, before=before, after=after, kept=kept
    )


def learn_scales(
    problem: LayerProblem, grid: Grid, learn: frozenset[Learnable], settings: LearningSettings
) -> LearnedScales:
    """The input's scale and zero point and the weights' scales, as ``learn`` names them; others stay.

    The caller puts what leaves on the grid of exact rounding, and rounds anew.
    """
    state, steps = ScaleState(problem, grid, learn), settings.steps(problem.seen)
    for step, chosen in enumerate(_batches(problem.seen, settings)):
        state.move(state.gradients(chosen), settings.rate(step, steps), step + 1)
    quantiser, scales = state.quantiser(whole=True), state.scales()
    learned = replace(grid, scales=scales)
    before = judged(problem, grid.values(grid.rounded(problem.weights)))[0]
    after = judged(replace(problem, quantiser=quantiser), learned.values(learned.rounded(problem.weights)))[0]
    kept = after < before
    return LearnedScales(
        quantiser=quantiser if kept else problem.quantiser,
        weight_scales=scales if kept else np.asarray(grid.scales),
        before=before,
        after=after,
        kept=kept,
    )


def _batches(seen: int, settings: LearningSettings) -> Iterator[NDArray[np.intp]]:
    """Every epoch takes every seen position once; the order is numpy's Philox stream 0, so it is always the same."""
    random = np.random.Generator(np.random.Philox(0))
    for _ in range(settings.epochs):
        order = random.permutation(seen)
        for first in range(0, seen, settings.batch_of(seen)):
            yield order[first : first + settings.batch_of(seen)]


class RoundingState:
    """Rounding variables and bias of one layer while they are learned. Rows do not touch each other, so each row's
    loss is counted in its error at the start, times its columns: an error of about 1 a weight, whatever the layer.
    """

    def __init__(self, problem: LayerProblem, grid: Grid, start: Codes) -> None:
        self.problem, self.grid = problem, grid
        ratio = problem.weights / grid.scales + grid.zero_points
        self.base = np.clip(np.where(start < ratio, start, start - 1.0), grid.low, grid.high - 1)
        share = (np.clip(ratio - self.base, 0, 1) + start - self.base) / 2  # half the weight itself, half its start
        self.variables = np.ascontiguousarray(unrounded(share))  # moved in place, as a vector
        seen = slice(0, problem.seen)
        self.inputs = problem.quantiser.codes(problem.inputs[:, :, seen])
        made = self._product(grid.values(start), self.inputs)
        self.bias = settled_bias(problem, made, seen)
        errors = (problem.errors(made, self.bias, seen) ** 2).mean(axis=2)
        self.units = np.maximum(errors, max(float(errors.mean()), 1e-30) * 1e-6)
        self._memory = (np.zeros((2, self.variables.size)), np.zeros((2, self.bias.size)))

    def loss(self, chosen: Chosen) -> float:
        """Of the soft codes, without the pressing term."""
        errors, _ = self._errors(chosen)
        return float(((errors**2).mean(axis=2) / self.units).sum() * self.base.shape[2])

    def gradients(self, chosen: Chosen, beta: float, weight: float) -> tuple[Wide, Wide]:
        """Of ``loss`` and the pressing term: by the variables, and by the bias in units of each row's start error."""
        errors, free = self._errors(chosen)
        factor = 2 * self.base.shape[2] / (errors.shape[2] * self.units)
        upstream = errors * free * factor[:, :, None]
        slope = self._product(upstream, self.inputs[:, :, chosen].swapaxes(1, 2))
        slope = np.ascontiguousarray(slope * self.grid.scales)
        rounding_gradient(self.variables.reshape(-1), slope.reshape(-1), beta, weight)
        return slope, upstream.sum(axis=2) * np.sqrt(self.units)

    def move(self, gradients: tuple[Wide, Wide], rate: float, step: int) -> None:
        adam(self.variables.reshape(-1), gradients[0].reshape(-1), self._memory[0], rate, step)
        if not self.problem.free_bias:
            return
        shift = np.zeros(self.bias.size)
        adam(shift, gradients[1].reshape(-1), self._memory[1], rate, step)
        self.bias += shift.reshape(self.bias.shape) * np.sqrt(self.units)

    def codes(self) -> Codes:
        """Every code decided: up where h >= 1/2."""
        return (self.base + (self._soft() >= 0.5)).astype(np.int32)

    def _product(self, left: Wide, codes: NDArray[np.float32]) -> Wide:
        return integer_product(left, codes, self.problem.quantiser.bits) * self.problem.quantiser.scale

    def _soft(self) -> Wide:
        soft = np.empty(self.variables.shape)
        soften(self.variables.reshape(-1), soft.reshape(-1))
        return soft

    def _errors(self, chosen: Chosen) -> tuple[Wide, NDArray[np.bool_]]:
        """Errors of the soft codes, and where the student's output is not clipped."""
        weights = self.grid.scales * (self.base + self._soft() - self.grid.zero_points)
        made = self._product(weights, self.inputs[:, :, chosen])
        out = made + self.bias[:, :, None]
        return self.problem.errors(made, self.bias, chosen), (out > self.problem.clip[0]) & (out < self.problem.clip[1])


class ScaleState:
    """Logarithms of scales and a zero point of one layer while they are learned; the bias follows every batch."""

    def __init__(self, problem: LayerProblem, grid: Grid, learn: frozenset[Learnable]) -> None:
        self.problem, self.grid, self.learn = problem, grid, learn
        self.log_scale, self.zero_point = np.log([problem.quantiser.scale]), np.array([problem.quantiser.zero_point])
        self.log_scales = np.ascontiguousarray(np.log(grid.scales))
        self.bias = problem.bias.copy()
        self._memory = [np.zeros((2, size)) for size in (1, 1, self.log_scales.size)]

    def quantiser(self, whole: bool = False) -> InputQuantiser:
        """The input's quantiser as it stands; ``whole``: its zero point rounded and kept among the codes."""
        given = self.problem.quantiser
        zero = float(self.zero_point[0])
        zero = float(np.clip(np.rint(zero), given.low, given.high)) if whole else zero
        return replace(given, scale=float(np.exp(self.log_scale[0])), zero_point=zero)

    def scales(self) -> Wide:
        return np.asarray(np.exp(self.log_scales))

    def gradients(self, chosen: Chosen) -> tuple[Wide, Wide, Wide]:
        """Of the mean squared difference, summed over rows: by log scale, zero point and log weight scales."""
        problem, quantiser, scales = self.problem, self.quantiser(), self.scales()
        ends = quantiser.low - quantiser.zero_point, quantiser.high - quantiser.zero_point
        limits = self.grid.low - self.grid.zero_points, self.grid.high - self.grid.zero_points
        read = problem.inputs[:, :, chosen]
        inputs, weights = quantiser(read), fake_quantised(problem.weights, scales, *limits)
        made = product(weights, inputs)
        self.bias = settled_bias(replace(problem, bias=self.bias), made, chosen)
        out = made + self.bias[:, :, None]
        free = (out > problem.clip[0]) & (out < problem.clip[1])
        errors = problem.errors(made, self.bias, chosen) * free
        upstream = errors * (2 / errors.shape[2])
        by_scale, by_zero = scale_gradient(read, quantiser.scale, *ends, product(weights.swapaxes(1, 2), upstream))
        by_weight, _ = scale_gradient(problem.weights, scales, *limits, product(upstream, inputs.swapaxes(1, 2)))
        kept = tuple(axis for axis, size in enumerate(scales.shape) if size == 1)
        return (
            np.array([by_scale.sum() * quantiser.scale]),
            np.array([by_zero.sum()]),
            by_weight.sum(axis=kept, keepdims=True) * scales,
        )

    def move(self, gradients: tuple[Wide, Wide, Wide], rate: float, step: int) -> None:
        """A tenth of the rate for logarithms: one step of 0.02 would be 2 % of a scale. A code is worth 1 / 32."""
        names: tuple[Learnable, ...] = ("activation_scale", "zero_point", "weight_scale")
        values, rates = (self.log_scale, self.zero_point, self.log_scales), (rate / 10, rate * 3.2, rate / 10)
        for at, name in enumerate(names):
            if name in self.learn:
                adam(values[at].reshape(-1), gradients[at].reshape(-1), self._memory[at], rates[at], step)
