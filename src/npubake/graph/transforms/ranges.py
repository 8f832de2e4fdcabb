"""Room ``graph/transforms``: what was observed of tensors' channels, as the caller hands it in. Data only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelRange:
    """One tensor over all samples. axis: the channel axis; low, high: extremes of each channel, float [channels];
    mean, square: means of the values and of their squares, float64 [channels].
    """

    axis: int
    low: NDArray[np.floating]
    high: NDArray[np.floating]
    mean: Values
    square: Values

    def without_outliers(self, deviations: float) -> ChannelRange:
        """Extremes no further than so many standard deviations from the channel's mean: beyond, thresholds clip."""
        reach = deviations * np.sqrt(np.maximum(self.square - self.mean * self.mean, 0.0))
        return ChannelRange(
            axis=self.axis,
            low=np.maximum(self.low, self.mean - reach),
            high=np.minimum(self.high, self.mean + reach),
            mean=self.mean,
            square=self.square,
        )

    def scaled(self, factors: Values) -> ChannelRange:
        """The ranges of the tensor times positive ``factors``."""
        return ChannelRange(
            axis=self.axis,
            low=self.low * factors,
            high=self.high * factors,
            mean=self.mean * factors,
            square=self.square * factors * factors,
        )

    @property
    def magnitude(self) -> Values:
        return np.maximum(np.abs(self.low.astype(np.float64)), np.abs(self.high.astype(np.float64)))
