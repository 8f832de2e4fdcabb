"""Room ``tuning``: first and second moments of what weighted groups read, X.mean and X.X', over chosen positions.

Rounding of weights by their Hessian, search of weight scales and bias correction read these. A pass holds one example.
Sums of one example are exact (``tuning.exact_products``) and added up in the order of examples, so the same activations
give the same bits for any thread count and BLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from npubake.calibration.archive import ArchiveReader, ArchiveWriter
from npubake.calibration.inference import TensorSession
from npubake.calibration.samples import SampleSet
from npubake.errors import Fault, StageError
from npubake.tuning.exact_products import gram, product
from npubake.tuning.matrix_form import MatrixForm, chosen_positions, columns_at

Wide = NDArray[np.float64]
Progress = Callable[[int, int], None]
POSITIONS = 256  # accuracy.md measured 128 to 256 positions an example
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
        moments.target_total += gram_total(wanted)


def gram_total(rows: NDArray[Any]) -> Wide:
    """Sums of rows [..., P], exactly as ``gram`` makes them."""
    return product(rows, np.ones((rows.shape[-1], 1)))[..., 0]


def observe_moments(
    model: Path,
    samples: SampleSet,
    forms: Sequence[MatrixForm],
    threads: int,
    positions: int = POSITIONS,
    progress: Progress = lambda _done, _total: None,
) -> dict[str, Moments]:
    """Moments of the float inputs of every form, by group, in one pass over all examples.

    StageError where there is no example, or where one's values are not finite (the group and example are named).
    """
    if samples.count == 0:
        raise StageError(Fault(what="the sample set holds no example", hint="give calibration data"))
    made = {form.group: Moments.empty(form) for form in forms}
    fed = set(samples.inputs)
    session = TensorSession(model, [form.tensor for form in forms if form.tensor not in fed], threads)
    order = sorted(forms, key=lambda form: -form.groups * form.columns**2)
    with ThreadPoolExecutor(max_workers=threads) as pool:
        for index in range(samples.count):
            feeds = samples.read(index)
            values = {**feeds, **session.run(feeds)}
            _require_finite(forms, values, samples.describe(index))
            work = [pool.submit(accumulate, made[f.group], f, values[f.tensor], index, positions) for f in order]
            for each in work:
                each.result()
            progress(index + 1, samples.count)
    return made


def _require_finite(forms: Sequence[MatrixForm], values: Mapping[str, NDArray[Any]], where: str) -> None:
    bad = {form.tensor for form in forms if not np.isfinite(values[form.tensor]).all()}
    faults = [
        Fault(what=f"group {form.group!r} reads NaN or Inf: {form.tensor!r}", where=where, hint="look at this example")
        for form in forms
        if form.tensor in bad
    ]
    if faults:
        raise StageError(*faults)


def save_moments(path: Path, made: Mapping[str, Moments]) -> None:
    """A deterministic npz: counts in ``moments.json``; for each group its total, and the upper triangles of X.X'."""
    counts = [{"group": name, "count": moments.count} for name, moments in made.items()]
    with ArchiveWriter(path) as archive:
        archive.json("moments.json", {"version": 1, "groups": counts})
        for at, moments in enumerate(made.values()):
            archive.array(f"{at:05d}/total.npy", moments.total)
            archive.array(f"{at:05d}/products.npy", _packed(moments.products))


def load_moments(path: Path) -> dict[str, Moments]:
    """What ``save_moments`` wrote. StageError where the file is something else."""
    with ArchiveReader(path) as archive:
        head = archive.json("moments.json")
        return {
            entry["group"]: Moments(
                count=entry["count"],
                total=(total := archive.array(f"{at:05d}/total.npy")),
                products=_unpacked(archive.array(f"{at:05d}/products.npy"), total.shape[-1]),
            )
            for at, entry in enumerate(head["groups"])
        }


def _packed(square: Wide) -> Wide:
    """Upper triangles row by row, [groups, K (K + 1) / 2]."""
    return np.concatenate([square[:, row, row:] for row in range(square.shape[-1])], axis=1)


def _unpacked(packed: Wide, size: int) -> Wide:
    square = np.empty((len(packed), size, size))
    start = 0
    for row in range(size):
        square[:, row, row:] = square[:, row:, row] = packed[:, start : start + size - row]
        start += size - row
    return square
