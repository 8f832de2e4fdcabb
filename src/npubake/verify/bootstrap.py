"""verify: whether a drop of a metric is real, or the noise of which pictures were in the set. numpy only; no model.

Paired bootstrap over pictures (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapters 6 and 13):
pictures are drawn with replacement, the same for both models, and the drop is computed for each draw. Its lower bound
is the ``1 - confidence`` quantile of those drops: a one-sided percentile interval. A drop is *proven* to be above a
limit when the lower bound is above it; a drop whose point estimate alone is above the limit is a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npubake.errors import Fault, StageError
from npubake.verify.evidence import Evidence

RESAMPLES = 1000
SEED = 20240301


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """reference, candidate: the metric on all pictures; drop: their difference; lower, upper: its bounds."""

    reference: float
    candidate: float
    drop: float
    lower: float
    upper: float


def resample_weights(pictures: int, resamples: int = RESAMPLES, seed: int = SEED) -> NDArray[np.int64]:
    """How often each picture is drawn, int64 [resamples, pictures]; each row sums to ``pictures``."""
    generator = np.random.Generator(np.random.PCG64(seed))
    draws = generator.integers(0, pictures, (resamples, pictures))
    return np.stack([np.bincount(row, minlength=pictures) for row in draws]).astype(np.int64)


def paired_drop(reference: Evidence, candidate: Evidence, confidence: float = 0.95) -> Drop:
    """The drop of a metric from reference to candidate. StageError where they were measured on different pictures."""
    if reference.names != candidate.names:
        raise StageError(
            Fault(
                what="the two models were measured on different pictures",
                hint="measure both on the same validation set",
            )
        )
    if not reference.names:
        raise StageError(Fault(what="the metric was measured on no picture", hint="give validation data"))
    everything = np.ones((1, len(reference.names)), np.int64)
    weights = resample_weights(len(reference.names))
    drops = reference.values(weights) - candidate.values(weights)
    whole = float(reference.values(everything)[0]), float(candidate.values(everything)[0])
    return Drop(
        reference=whole[0],
        candidate=whole[1],
        drop=whole[0] - whole[1],
        lower=float(np.quantile(drops, 1.0 - confidence)),
        upper=float(np.quantile(drops, confidence)),
    )
