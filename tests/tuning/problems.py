"""tuning tests: a random layer to be learned."""

from __future__ import annotations

import numpy as np

from npubake.tuning.layer_problem import InputQuantiser, LayerProblem

RELU = (0.0, np.inf)


def problem(seed: int = 0, groups: int = 1, rows: int = 6, clip: tuple[float, float] = RELU) -> LayerProblem:
    """A layer of 20 columns over 400 positions of correlated, positive inputs; a quarter judges."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(groups, 20, 5)) @ rng.normal(size=(groups, 5, 400)) + 0.3 * rng.normal(
        size=(groups, 20, 400)
    )
    inputs = np.maximum(mixed, 0).astype(np.float32)
    weights, bias = rng.normal(size=(groups, rows, 20)), rng.normal(size=(groups, rows))
    outputs = (weights @ inputs + bias[:, :, None]).astype(np.float32)
    scale = float(inputs.max()) / 255
    quantiser = InputQuantiser(scale=scale, zero_point=0.0, low=0, high=255)
    return LayerProblem(
        weights=weights, bias=bias, inputs=inputs, outputs=outputs, quantiser=quantiser, seen=300, clip=clip
    )
