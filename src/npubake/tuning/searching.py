"""tuning: weight scales chosen for the layer's output, put on the grid of exact rounding, and weights rounded to them.

A searched scale may saturate the largest weights: what leaves is code * scale with |code| <= 127, so that everything
behind rounds it to the same codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.quant.assign import Assignment
from npubake.quant.weight_formats import WeightFormat
from npubake.quant.weight_grid import divisor_limit, place_scales
from npubake.quant.weights import BIAS_LIMIT
from npubake.tuning.candidate import Candidate, Layer
from npubake.tuning.hessian import Grid
from npubake.tuning.moments import Moments
from npubake.tuning.rounding import grid_of
from npubake.tuning.simulation import Array
from npubake.tuning.weight_search import ScaleSearch, search_scales

Wide = NDArray[np.float64]
SEARCHED = 16  # scales tried of a channel (schemas/recipe.schema.json)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Searched:
    """candidate: with the scales found; saturated: weights beyond their codes' limits; left: layers whose weights have
    zero points, which belong to the span of all weights: their scales stay.
    """

    candidate: Candidate
    saturated: int
    left: tuple[str, ...]


def with_searched_scales(candidate: Candidate, moments: Mapping[str, Moments], tried: int) -> Searched:
    """``candidate`` with the best of ``tried`` scales for every channel of the layers that ``moments`` holds."""
    layers, saturated, left = {}, 0, []
    for name, seen in moments.items():
        layer = candidate.layers[name]
        if layer.parameters.zero_points:
            left.append(name)
            continue
        matrix = layer.form.to_matrix(layer.operand.weights.astype(np.float64))
        grid = grid_of(layer)
        start = np.asarray(layer.parameters.scales, np.float64)
        shared = len(start) > 1 and len(set(layer.parameters.scales)) == 1
        place = partial(placed, layer)
        search = ScaleSearch(low=grid.low, high=grid.high, place=place, candidates=tried, shared=shared)
        if layer.parameters.group_size:
            search = replace(search, steps=grid.scales / layer.form.by_row(start)[:, :, None])
        found = search_scales(layer.form, matrix, seen.centred(), start, search)
        layers[name], saturated = rescaled(layer, found.scales), saturated + int(found.saturated.sum())
    return Searched(candidate=with_layers(candidate, layers), saturated=saturated, left=tuple(left))


def nearest_everywhere(candidate: Candidate) -> Candidate:
    """``candidate`` with its scales as they are, every weight rounded to nearest and every bias the float one."""
    given = candidate.simulated.constants
    constants = {
        layer.operand.initializer: layer.nearest
        for layer in candidate.layers.values()
        if layer.nearest is not given[layer.operand.initializer]
    }
    return replace(candidate, constants=constants)


def placed(layer: Layer, wanted: Wide) -> Wide:
    """Scales, float64 [channels], that exact rounding allows, none below ``wanted`` nor below what the bias needs."""
    return _placed(layer, wanted)[0]


def rescaled(layer: Layer, wanted: Wide) -> Layer:
    """``layer`` with scales that exact rounding allows, none below ``wanted``; its weights are rounded to nearest."""
    scales, divisors, shifts = _placed(layer, wanted)
    parameters = replace(layer.parameters, scales=tuple(map(float, scales)), divisors=divisors, shifts=shifts)
    made = replace(layer, parameters=parameters)
    return replace(made, nearest=rounded(made, grid_of(made)))


def _placed(layer: Layer, wanted: Wide) -> tuple[Wide, tuple[int, ...], tuple[int, ...]]:
    """Scales, divisors and shifts; any scale serves where the accumulator leaves unrounded."""
    bias = layer.operand.channel_bias()
    if bias is not None:
        largest = np.abs(bias.astype(np.float64)).reshape(-1, len(wanted)).max(axis=0)
        wanted = np.maximum(wanted, largest / (layer.source.scale * BIAS_LIMIT))
    if layer.target is None:
        return wanted, (), ()
    entry = layer.parameters
    held = WeightFormat(
        dtype=entry.dtype,
        granularity="per_group" if entry.group_size else "per_channel",
        symmetric=not entry.zero_points,
    )
    limit = divisor_limit(layer.source, layer.target, held)
    found = place_scales(wanted, layer.source.scale, layer.target.scale, limit)
    return found.scales, tuple(map(int, found.divisors)), tuple(map(int, found.shifts))


def rounded(layer: Layer, grid: Grid) -> Array:
    """code * scale of the weights rounded to nearest, in the initialiser's shape."""
    matrix = layer.form.to_matrix(layer.operand.weights.astype(np.float64))
    return np.ascontiguousarray(layer.form.from_matrix(grid.values(grid.rounded(matrix)).astype(np.float32)))


def with_layers(candidate: Candidate, layers: Mapping[str, Layer]) -> Candidate:
    """``candidate`` with ``layers`` in place of its own: their parameters, and their weights rounded to nearest."""
    weights = {**candidate.parameters.weights, **{name: layer.parameters for name, layer in layers.items()}}
    made = candidate.assignment
    assignment = Assignment(parameters=replace(made.parameters, weights=weights), record=made.record)
    constants: dict[str, Any] = dict(candidate.constants)
    constants |= {layer.operand.initializer: layer.nearest for layer in layers.values()}
    return replace(candidate, assignment=assignment, layers={**candidate.layers, **layers}, constants=constants)
