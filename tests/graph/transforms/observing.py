"""What ``observe`` would hand in, of small models: every tensor on random feeds, channel by channel."""

from __future__ import annotations

import numpy as np
import onnx

from npubake.graph.execution import random_feeds
from npubake.graph.summarising import summarise
from npubake.graph.transforms.ranges import ChannelRange
from tests.graph.writing import Array, every_tensor, normal

SEEDS = (3, 4, 5)


def spread(*shape: int, seed: int = 1) -> Array:
    """Weights whose output channels (axis 0) lie up to 2^6 apart, never of one magnitude."""
    factors = np.exp2(np.random.default_rng([seed, *shape]).permutation(np.linspace(-3, 3, shape[0])))
    return np.asarray(normal(*shape, seed=seed) * factors.reshape(-1, *(1,) * (len(shape) - 1)), np.float32)


def observed(model: onnx.ModelProto) -> dict[str, ChannelRange]:
    """Of every quantisable tensor: along axis 1 for images and rows, along the last axis otherwise."""
    passes = [every_tensor(model, random_feeds(model, seed)) for seed in SEEDS]
    found = {}
    for name in summarise(model, ()).quantisable():
        values = np.stack([entry[name] for entry in passes])
        axis = 1 if passes[0][name].ndim in (2, 4) else passes[0][name].ndim - 1
        if passes[0][name].ndim == 0:
            continue
        others = tuple(place for place in range(values.ndim) if place != axis + 1)
        wide = values.astype(np.float64)
        found[name] = ChannelRange(
            axis=axis,
            low=values.min(axis=others),
            high=values.max(axis=others),
            mean=wide.mean(axis=others),
            square=(wide * wide).mean(axis=others),
        )
    return found
