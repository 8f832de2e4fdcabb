"""tuning: one layer to be learned: its teacher, what it reads, and how weights are judged. numpy in and out.

The float layer is the teacher: what it gives for float inputs, clipped as its fused activation clips it. The quantised
layer reads what the quantised layers before it make.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.tuning.exact_products import integer_product
from npubake.tuning.quantiser_gradients import fake_quantised

Wide = NDArray[np.float64]
Chosen = slice | NDArray[np.intp]
_REPEATS = 8  # the bias of a clipped output has no closed form: so many corrections of its mean


@dataclass(frozen=True, slots=True, kw_only=True)
class InputQuantiser:
    """The quantiser in front of the layer: real = scale * (q - zero_point), low <= q <= high."""

    scale: float
    zero_point: float
    low: int
    high: int

    @property
    def bits(self) -> int:
        """|q - zero_point| <= 2**bits."""
        return int(np.ceil(np.log2(max(self.high - self.zero_point, self.zero_point - self.low))))

    def codes(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """q - zero_point, for a whole zero point."""
        ends = self.low - self.zero_point, self.high - self.zero_point
        return np.clip(np.rint(np.asarray(values, np.float64) / self.scale), *ends).astype(np.float32)

    def __call__(self, values: NDArray[np.floating]) -> Wide:
        return fake_quantised(values, self.scale, self.low - self.zero_point, self.high - self.zero_point)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerProblem:
    """One layer at chosen positions (``matrix_form.columns_at``); all arrays begin with the conv groups.

    weights [groups, rows, columns], bias [groups, rows]: the float layer's. inputs [groups, columns, positions]: what
    arrives at the quantised layer's input quantiser; outputs [groups, rows, positions]: what the float layer gives,
    bias included, before its activation; clip: that activation's limits. seen: positions that are learned
    from; the rest judge. free_bias: False where the layer has no bias that could follow; ``bias`` then stays.
    """

    weights: Wide
    bias: Wide
    inputs: NDArray[np.float32]
    outputs: NDArray[np.float32]
    quantiser: InputQuantiser
    seen: int
    clip: tuple[float, float] = (-np.inf, np.inf)
    free_bias: bool = True

    def errors(self, made: Wide, bias: Wide, chosen: Chosen) -> Wide:
        """Student less teacher behind the activation, [groups, rows, positions]; made: products without bias."""
        return np.clip(made + bias[:, :, None], *self.clip) - np.clip(self.outputs[:, :, chosen], *self.clip)


def judged(problem: LayerProblem, weights: Wide) -> tuple[float, Wide]:
    """Loss of real ``weights`` on the unseen positions (the seen ones where there are none), and the bias that goes
    with them, which is made from the seen ones.
    """
    quantiser = problem.quantiser
    made = integer_product(weights, quantiser.codes(problem.inputs), quantiser.bits) * quantiser.scale
    seen, unseen = slice(0, problem.seen), slice(problem.seen if problem.seen < made.shape[2] else 0, None)
    bias = settled_bias(problem, made[:, :, seen], seen)
    errors = problem.errors(made[:, :, unseen], bias, unseen)
    return float((errors**2).mean(axis=2).sum()), bias


def settled_bias(problem: LayerProblem, made: Wide, chosen: Chosen) -> Wide:
    """The bias with which the mean error is about zero: exact without clipping, a few Newton steps with it."""
    bias = problem.bias.copy()
    if not problem.free_bias:
        return bias
    low, high = problem.clip
    for _ in range(_REPEATS if np.isfinite(problem.clip).any() else 1):
        out = made + bias[:, :, None]
        free = ((out > low) & (out < high)).mean(axis=2)
        mean = problem.errors(made, bias, chosen).mean(axis=2)
        bias -= np.where(free > 0, mean / np.maximum(free, 0.1), 0.0)
    return bias
