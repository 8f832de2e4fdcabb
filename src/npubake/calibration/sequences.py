"""calibration: examples of a language model against the lengths that its preset states. Arrays in, Faults out.

An example is *padded* where the last rows along ``sequence`` of an input are all zero; inputs that hold ``cache`` or
``total`` too (masks, caches) tell nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault


def length_fault(
    value: NDArray[Any], words: Sequence[str], due: tuple[int, ...], *, where: str, name: str
) -> Fault | None:
    """The first named axis of another length than the model's. A batch of one may be left out."""
    shape = value.shape if value.ndim == len(due) else (1, *value.shape)
    if len(shape) != len(due) or len(words) != len(due):
        return None
    for word, found, length in zip(words, shape, due, strict=True):
        if found != length:
            return Fault(
                what=f"input {name!r}: the {word} is {found} long where the preset and the model say {length}",
                where=where,
                hint="prepare calibration data with the sequence and cache lengths of inference",
            )
    return None


def padding_faults(
    stored: Mapping[str, NDArray[Any]], axes: Mapping[str, Sequence[str]], *, padded: bool, where: str
) -> Iterator[Fault]:
    """Rows of zeros at the end of one example: where the preset wants whole sequences, or of unequal number."""
    ends = {
        name: trailing_zeros(value, list(axes[name]).index("sequence"))
        for name, value in stored.items()
        if _tells(axes.get(name, ()), value)
    }
    if not padded:
        for name, count in ends.items():
            if count:
                yield Fault(
                    what=f"input {name!r} ends in {count} rows of zeros: the sequence is padded",
                    where=where,
                    hint="give whole sequences, or take the preset llm_fast, which allows shorter ones",
                )
    elif len(set(ends.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in ends.items())
        yield Fault(
            what=f"its inputs end in different numbers of zero rows: {counts}",
            where=where,
            hint="all inputs of an example come from the same tokens",
        )


def _tells(words: Sequence[str], value: NDArray[Any]) -> bool:
    """Whether zeros in an input say that the sequence is padded."""
    plain = "sequence" in words and not {"cache", "total"} & set(words)
    return plain and value.dtype.kind == "f" and len(words) == value.ndim


def trailing_zeros(value: NDArray[Any], axis: int) -> int:
    """Rows along ``axis`` at its end that hold nothing but zeros."""
    used = np.flatnonzero(np.any(np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1), axis=1))
    return int(value.shape[axis]) - (int(used[-1]) + 1 if used.size else 0)
