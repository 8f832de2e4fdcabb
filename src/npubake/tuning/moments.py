"""tuning: first and second moments of what weighted groups read, X.mean and X.X', over chosen positions.

Rounding of weights by their Hessian, search of weight scales and bias correction read these. A pass holds one example.
Sums of one example are exact (``tuning.exact_products``) and added up in the order of examples, so the same activations
give the same bits for any thread count and BLAS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.tuning.exact_products import gram, product
from npubake.tuning.execution import values_of
from npubake.tuning.matrix_form import MatrixForm, chosen_positions, columns_at

Wide = NDArray[np.float64]
POSITIONS = 256  # of one example; between 128 and 256 more of them were measured to gain nothing
_FEW_COLUMNS = 64  # a depthwise kernel has 9 to 49 unknowns: a quarter of the positions determines it as well


@dataclass(slots=True, kw_only=True, eq=False)
class Moments:
    """Running sums over ``count`` positions of the columns x that the quantised group reads, float64.

    total: sum of x [groups, columns]; products: sum of x.x' [groups, columns, columns].
    Where x is the quantised input and t the float one that it should have been ("asymmetric"):
    target_total: sum of t; cross: sum of t.x'. Else both are None, and the target is x itself.
    """

    count: int
    total: Wide
    products: Wide
    target_total: Wide | None = None
    cross: Wide | None = None

    @classmethod
    def empty(cls, form: MatrixForm, asymmetric: bool = False) -> Self:
        """Nothing seen yet."""
        vector, square = (form.groups, form.columns), (form.groups, form.columns, form.columns)
        return cls(
            count=0,
            total=np.zeros(vector),
            products=np.zeros(square),
            target_total=np.zeros(vector) if asymmetric else None,
            cross=np.zeros(square) if asymmetric else None,
        )

    def take(self, part: Moments) -> None:
        """Add what was seen elsewhere; both are asymmetric, or neither is."""
        self.count += part.count
        self.total += part.total
        self.products += part.products
        if self.cross is not None and self.target_total is not None:
            assert part.cross is not None
            assert part.target_total is not None
            self.target_total += part.target_total
            self.cross += part.cross

    def mean(self) -> Wide:
        """Mean of x, [groups, columns]; zero where nothing was seen."""
        return self.total / max(self.count, 1)

    def target_mean(self) -> Wide:
        """Mean of what x should have been, [groups, columns]."""
        return (self.total if self.target_total is None else self.target_total) / max(self.count, 1)

    def raw(self) -> Wide:
        """Mean of x.x', [groups, columns, columns]."""
        return self.products / max(self.count, 1)

    def centred(self) -> Wide:
        """Covariance of x: mean of x.x' less mean(x).mean(x)'. The error that a corrected bias leaves is e.C.e'."""
        mean = self.mean()
        return self.raw() - mean[:, :, None] * mean[:, None, :]

    def centred_cross(self) -> Wide:
        """Covariance of target t and input x, [groups, columns of t, columns of x]."""
        if self.cross is None:
            return self.centred()
        return self.cross / max(self.count, 1) - self.target_mean()[:, :, None] * self.mean()[:, None, :]


def positions_of(form: MatrixForm, most: int) -> int:
    """Positions taken from each example: ``most``, a quarter of it for kernels of few columns."""
    return max(most // 4, 1) if form.columns <= _FEW_COLUMNS else most


def accumulate(
    moments: Moments,
    form: MatrixForm,
    x: NDArray[Any],
    index: int,
    positions: int = POSITIONS,
    target: NDArray[Any] | None = None,
) -> None:
    """Add example ``index``. x: the group's input as the quantised group reads it, float in the form's input shape;
    target: the same tensor of the float model, for moments made ``asymmetric``. positions: most of one example.
    """
    if (target is None) != (moments.cross is None):
        raise ValueError("a target goes with asymmetric moments, and with no others")
    chosen = chosen_positions(form, index, positions_of(form, positions))
    read = columns_at(form, x, chosen)
    products, total = gram(read)
    moments.count += len(chosen)
    moments.products += products
    moments.total += total
    if target is not None and moments.cross is not None and moments.target_total is not None:
        wanted = columns_at(form, target, chosen)
        moments.cross += product(wanted, read.swapaxes(-1, -2))
        moments.target_total += _sums(wanted)


def accumulate_means(
    moments: Moments, form: MatrixForm, x: NDArray[Any], index: int, positions: int, target: NDArray[Any]
) -> None:
    """As ``accumulate``, sums alone: what a bias needs. ``products`` and ``cross`` stay as they are."""
    chosen = chosen_positions(form, index, positions_of(form, positions))
    assert moments.target_total is not None  # made for a target
    moments.count += len(chosen)
    moments.total += _sums(columns_at(form, x, chosen))
    moments.target_total += _sums(columns_at(form, target, chosen))


def _sums(rows: NDArray[Any]) -> Wide:
    """Sums of rows [..., P], exactly as ``gram`` makes them."""
    return product(rows, np.ones((rows.shape[-1], 1)))[..., 0]


def float_inputs(
    model: onnx.ModelProto,
    examples: Mapping[int, Mapping[str, NDArray[Any]]],
    forms: Sequence[MatrixForm],
    positions: int,
    threads: int,
) -> dict[str, Moments]:
    """Moments of what each of ``forms`` reads in the float ``model``, by group; one example's tensors are held at a
    time. examples: feeds by their place in the sample set; positions: most of one example.
    """
    made = {form.group: Moments.empty(form) for form in forms}
    order = sorted(forms, key=lambda form: -form.groups * form.columns**2)  # the longest work first
    answers = values_of(model, [form.tensor for form in forms], examples.values(), threads)
    with ThreadPoolExecutor(max_workers=threads) as pool:
        for index, values in zip(examples, answers, strict=True):

            def add(form: MatrixForm, index: int = index, values: Mapping[str, NDArray[Any]] = values) -> None:
                accumulate(made[form.group], form, values[form.tensor], index, positions)

            list(pool.map(add, order))
    return made
