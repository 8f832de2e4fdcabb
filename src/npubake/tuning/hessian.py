"""tuning: weights rounded by the Hessian of their layer's output error. numpy in, integer codes out.

A layer's output error under rounding is e.H.e' for each output channel: e = w - w_hat, H the second moment of what the
layer reads (centred where the bias is corrected afterwards). Codes are chosen one column after the other, each making
up for the errors made so far: Frantar, Ashkboos, Hoefler and Alistarh, *GPTQ*, arXiv 2210.17323. With H = U U', U upper
triangular, e.H.e' = sum over j of U[j,j]^2 * (e[j] + sum over i < j of e[i] * U[i,j] / U[j,j])^2, so that the column's
best code is the nearest to w[j] + sum over i < j of e[i] * U[i,j] / U[j,j]: the same choice as GPTQ's, without H^-1.
H is damped, since a sample of few positions says too much of directions that it has hardly seen.

"Asymmetric": the layer reads quantised inputs x and should give what it gives for the float inputs t. The error
|W t - W_hat x|^2 is (W* - W_hat) H (W* - W_hat)' plus a constant, H = mean x.x', W* = W (mean t.x') H^-1: the same
problem with another target (Li and others, *GPTAQ*, arXiv 2504.02692, treat it column by column).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.tuning.exact_products import product
from npubake.tuning.moments import Moments
from npubake.tuning.triangular import factor, round_groups, solve

Wide = NDArray[np.float64]
Codes = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """What codes stand for: scale * (code - zero_point). low, high: limits of the codes.

    scales, zero_points: broadcast to [groups, rows, columns] ([groups, rows, 1] for scales by output channel).
    """

    scales: Wide
    low: int
    high: int
    zero_points: NDArray[np.float64] | float = 0.0

    def rounded(self, values: NDArray[np.floating]) -> Codes:
        """The nearest codes."""
        codes = np.rint(values.astype(np.float64) / self.scales + self.zero_points)
        return np.clip(codes, self.low, self.high).astype(np.int32)

    def values(self, codes: Codes) -> Wide:
        """What the codes stand for, float64."""
        return np.asarray(self.scales * (codes - self.zero_points))


@dataclass(frozen=True, slots=True, kw_only=True)
class HessianSettings:
    """block_size: columns rounded before the rest hears of it (a matter of speed). damping: of the mean diagonal, added
    to it; act_order: columns with the largest diagonal first.
    """

    block_size: int = 128
    damping: float = 0.1
    act_order: bool = True

    def __post_init__(self) -> None:
        if self.block_size < 1 or not 0 < self.damping <= 1:
            raise ValueError(f"block_size >= 1 and 0 < damping <= 1, not {self}")


def round_with_hessian(
    weights: NDArray[np.floating],
    hessian: Wide,
    grid: Grid,
    settings: HessianSettings,
    target: Wide | None = None,
) -> Codes:
    """Codes of ``weights`` [groups, rows, columns] with a small e.H.e', for ``hessian`` [groups, columns, columns].

    target: what the codes should stand for, where that is not the weights (``asymmetric_target``). No row leaves with a
    larger error (by the damped Hessian) than rounding the weights to nearest gives it. Columns never read (zero
    diagonal) go to the nearest.
    """
    wanted = np.asarray(weights if target is None else target, np.float64)
    scales = np.broadcast_to(grid.scales, wanted.shape)
    offsets = np.broadcast_to(np.asarray(grid.zero_points, np.float64), wanted.shape)
    limits = np.array([grid.low, grid.high], np.float64)
    damped = _damped(hessian, settings.damping)
    codes = np.empty(wanted.shape)
    orders = _orders(damped, settings.act_order)
    round_groups(codes, damped, orders, np.stack([wanted, scales, offsets]), limits, settings.block_size)
    nearest = grid.rounded(weights)
    unread = np.diagonal(hessian, axis1=1, axis2=2)[:, None, :] <= 0
    found = np.where(unread, nearest, codes.astype(np.int32))
    errors = [output_error(wanted - grid.values(each), damped) for each in (found, nearest)]
    return np.where((errors[0] <= errors[1])[:, :, None], found, nearest).astype(np.int32)


def asymmetric_target(weights: NDArray[np.floating], moments: Moments, damping: float) -> Wide:
    """W* of the asymmetric problem, [groups, rows, columns] float64: W + W (C - H) (H + damping * mean diagonal)^-1.

    H: covariance of the inputs read, C: of the inputs wanted with those read. Damped towards the weights themselves.
    The bias then takes up W mean(t) - W_hat mean(x) (``biases.lost_mean``).
    """
    wide, hessian = np.asarray(weights, np.float64), moments.centred()
    lacking = product(wide, moments.centred_cross() - hessian)
    made = np.empty(wide.shape)
    for at, square in enumerate(_damped(hessian, damping)):
        factor(square)
        shift = np.ascontiguousarray(lacking[at].T)
        solve(square, shift)
        made[at] = wide[at] + shift.T
    return made


def output_error(error: NDArray[np.floating], hessian: Wide) -> Wide:
    """e.H.e' of each row: [groups, rows, columns] and [groups, columns, columns] -> [groups, rows] float64."""
    return np.asarray((product(error, hessian) * error).sum(axis=-1))


def _orders(hessian: Wide, act_order: bool) -> NDArray[np.intp]:
    """Columns of each group in the order in which they are rounded, [groups, columns]."""
    diagonal = np.diagonal(hessian, axis1=1, axis2=2)
    return np.argsort(-diagonal if act_order else np.zeros(diagonal.shape), axis=1, kind="stable")


def _damped(hessian: Wide, damping: float) -> Wide:
    """A copy with damping * mean diagonal on each diagonal; the unit matrix where nothing was read."""
    mean = np.diagonal(hessian, axis1=1, axis2=2).mean(axis=1)
    added = np.where(mean > 0, damping * mean, 1.0)
    return np.array(hessian + np.eye(hessian.shape[1]) * added[:, None, None], order="C")
