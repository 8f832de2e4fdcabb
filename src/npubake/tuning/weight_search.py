"""tuning: weight scales that leave a layer's output the smallest error. numpy in, scales out.

For each output channel, candidate scales from the given one (which clips nothing) downwards are tried: a smaller scale
rounds finer and saturates the largest weights. Error: e.H.e' under the second moment of what the layer reads (the local
loss of AdaRound, Nagel and others, arXiv 2004.10568; the search over clipping ranges as in OMSE, Choukroun, Kravchik,
Yang and Kisilev, arXiv 1902.06822). Every candidate is moved to the grid of exact rounding first: what is measured is
what is used. What is saturated is counted, never silent. Ties keep the larger scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.tuning.hessian import Grid, output_error
from npubake.tuning.matrix_form import MatrixForm

Wide = NDArray[np.float64]
Place = Callable[[Wide], Wide]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleSearch:
    """candidates: scales tried for each channel, the given one among them; smallest: the last one's share of it.

    low, high: limits of the codes. place: wanted scales [channels] -> the nearest ones that the arithmetic allows.
    shared: one scale for all channels. steps: what a code counts in units of its channel's scale, broadcast to
    [groups, rows, columns] (multipliers of weights that are scaled by group).
    """

    low: int
    high: int
    place: Place
    candidates: int = 16
    smallest: float = 0.5
    shared: bool = False
    steps: Wide | float = 1.0

    def __post_init__(self) -> None:
        if self.candidates < 1 or not 0 < self.smallest <= 1:
            raise ValueError(f"candidates >= 1 and 0 < smallest <= 1, not {self.candidates} and {self.smallest}")

    def ratios(self) -> Wide:
        """From 1 down to ``smallest``, the denser the nearer to 1: most channels gain by clipping little."""
        return 1 - (1 - self.smallest) * np.linspace(0, 1, self.candidates) ** 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchedScales:
    """Of each channel: the scale, the number of weights it saturates, e.H.e' with the given scale and with this one."""

    scales: Wide
    saturated: NDArray[np.int64]
    before: Wide
    after: Wide


def search_scales(
    form: MatrixForm, weights: NDArray[np.floating], hessian: Wide, start: Wide, search: ScaleSearch
) -> SearchedScales:
    """The best scale of each channel. weights: [groups, rows, columns]; start: scales [channels of the initialiser].

    hessian: [groups, columns, columns], centred where the bias is corrected afterwards.
    """
    wide = np.asarray(weights, np.float64)
    tried = np.stack([search.place(start * ratio) for ratio in search.ratios()])
    errors = np.stack([_errors(form, wide, hessian, scales, search) for scales in tried])
    best = errors.sum(axis=1).argmin() if search.shared else errors.argmin(axis=0)
    channels = np.arange(len(start))
    scales = tried[best, channels]
    return SearchedScales(
        scales=scales,
        saturated=_by_channel(_saturated(wide, _grid(form, scales, search)), len(start)),
        before=errors[0],
        after=errors[best, channels],
    )


def _grid(form: MatrixForm, scales: Wide, search: ScaleSearch) -> Grid:
    return Grid(scales=form.by_row(scales)[:, :, None] * search.steps, low=search.low, high=search.high)


def _errors(form: MatrixForm, weights: Wide, hessian: Wide, scales: Wide, search: ScaleSearch) -> Wide:
    grid = _grid(form, scales, search)
    return _by_channel(output_error(weights - grid.values(grid.rounded(weights)), hessian), len(scales))


def _saturated(weights: Wide, grid: Grid) -> NDArray[np.int64]:
    codes = np.rint(weights / grid.scales)
    return np.asarray(((codes < grid.low) | (codes > grid.high)).sum(axis=-1))


def _by_channel(rows: NDArray[Any], channels: int) -> NDArray[Any]:
    """Sums of values [groups, rows] by channel of the initialiser: a grouped ConvTranspose shares scales."""
    return np.asarray(rows.reshape(-1) if rows.size == channels else rows.sum(axis=0))
