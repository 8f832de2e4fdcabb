"""tuning: weights of every layer rounded with regard to what the layer reads, and biases that follow.

Two ways to know what a layer reads. *float*: moments of the float model's activations, gathered in one pass.
*execution*: layers are taken in order of execution, what they read comes out of the quantised layers before them, and
the target is what the float layer makes of what it reads in the float model; errors made before are so paid back
("asymmetric").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.quant.weight_formats import CODE_LIMITS
from npubake.quant.weights import code_parts, weight_steps
from npubake.tuning.biases import correctable, corrected_bias
from npubake.tuning.candidate import Candidate, Layer, on_bias_grid
from npubake.tuning.examples import Feeds
from npubake.tuning.execution import Stream
from npubake.tuning.hessian import Grid, HessianSettings, asymmetric_target, round_with_hessian
from npubake.tuning.moments import Moments, accumulate, accumulate_means, float_inputs
from npubake.tuning.simulation import Array, Form, SimulatedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """rounded: groups that are rounded by their Hessian, with ``hessian``; corrected: groups whose bias follows;
    positions: output positions that are looked at in one example.
    """

    rounded: frozenset[str]
    corrected: frozenset[str]
    hessian: HessianSettings
    positions: int
    threads: int

    def touches(self, layer: Layer) -> bool:
        return layer.group in self.rounded or (layer.group in self.corrected and correctable(layer))


def round_from_moments(
    candidate: Candidate, moments: Mapping[str, Moments], how: Rounding, known: Candidate | None = None
) -> dict[str, Array]:
    """Constants of the layers, each from what it reads in the float model; layers are independent of each other.

    known: a candidate that was rounded from the same moments: layers with the same grids keep its constants.
    """
    made: dict[str, Array] = {}
    layers = []
    for layer in filter(how.touches, candidate.layers.values()):
        if known is not None and layer.on_grids_of(known.layers[layer.group]):
            names = (layer.operand.initializer, layer.operand.bias_name)
            made.update({name: known.constants[name] for name in names if name in known.constants})
        else:
            layers.append(layer)
    layers.sort(key=lambda layer: -layer.form.groups * layer.form.columns**2)
    with ThreadPoolExecutor(max_workers=how.threads) as pool:
        for constants in pool.map(lambda layer: _rounded(candidate, layer, moments[layer.group], how), layers):
            made.update(constants)
    return made


def float_moments(candidate: Candidate, examples: Mapping[int, Feeds], how: Rounding) -> dict[str, Moments]:
    """Moments of what each layer that ``how`` touches reads in the float model, by group; one example's tensors are
    held at a time. examples: feeds by their place in the sample set.
    """
    forms = [layer.form for layer in candidate.layers.values() if how.touches(layer)]
    return float_inputs(candidate.start.model, examples, forms, how.positions, how.threads)


def round_in_execution(candidate: Candidate, feeds: Sequence[Feeds], how: Rounding) -> dict[str, Array]:
    """Constants of all layers, each from what the quantised layers before it make of ``feeds``."""
    walk = Walk(candidate, feeds, how.threads)
    with ThreadPoolExecutor(max_workers=how.threads) as pool:
        for layer in walk.layers(filter(how.touches, candidate.layers.values())):
            moments = _seen(layer, walk, how, pool)
            walk.settle(layer, _rounded(candidate, layer, moments, how))
    return walk.made


class Walk:
    """The float and the quantised model side by side over ``feeds``, layer by layer in order of execution.

    made: the constants that were settled so far, by initialiser; every layer behind reads what they give.
    """

    def __init__(self, candidate: Candidate, feeds: Sequence[Feeds], threads: int) -> None:
        simulated = candidate.simulated
        given = {**simulated.constants, **candidate.simulated_constants()}
        self.made: dict[str, Array] = {}
        self._real = Stream(candidate.start.model, feeds, {}, threads)
        self._quantised = Stream(with_forms(simulated, candidate.forms()), feeds, given, threads)
        self._reads = {node.name: node.input[0] for node in simulated.model.graph.node if node.input}
        self._place = {node.name: index for index, node in enumerate(candidate.start.model.graph.node)}
        self.examples = range(len(feeds))

    def layers(self, chosen: Iterable[Layer]) -> Iterator[Layer]:
        """``chosen`` in order; everything in front of the one that comes out has been computed."""
        for layer in sorted(chosen, key=lambda one: self._place[one.operand.node]):
            self._real.advance(layer.operand.node)
            self._quantised.advance(layer.operand.node)
            yield layer

    def read(self, layer: Layer, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """What ``layer`` reads in the quantised model (a graph output may read otherwise), and in the float one."""
        return self._quantised.live[index][self._reads[layer.operand.node]], self._real.live[index][layer.form.tensor]

    def settle(self, layer: Layer, made: Mapping[str, Array]) -> None:
        """Constants of ``layer``, for all that comes behind it."""
        self.made.update(made)
        self._quantised.constants.update(made)
        bias = layer.operand.bias_name
        if bias in made:
            self._quantised.constants[bias] = on_bias_grid(layer, made[bias])


def with_forms(simulated: SimulatedModel, forms: Mapping[str, Form]) -> onnx.ModelProto:
    """The simulated model with every form as a constant in place of an input."""
    model = onnx.ModelProto()
    model.CopyFrom(simulated.model)
    given: dict[str, float] = {}
    for tensor, name in simulated.forms.items():
        form = forms[tensor]
        given.update({f"{name}/scale": form.scale, f"{name}/low": form.low, f"{name}/high": form.high})
    inputs = [value for value in model.graph.input if value.name not in given]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(value, np.float32), name) for name, value in given.items()
    )
    return model


def _seen(layer: Layer, walk: Walk, how: Rounding, pool: ThreadPoolExecutor) -> Moments:
    """Moments of what the layer reads: examples in parallel, added up in their order."""

    def of_example(index: int) -> Moments:
        moments = Moments.empty(layer.form, asymmetric=True)
        read, target = walk.read(layer, index)
        if layer.group in how.rounded:
            accumulate(moments, layer.form, read, index, how.positions, target)
        else:
            accumulate_means(moments, layer.form, read, index, how.positions, target)
        return moments

    total = Moments.empty(layer.form, asymmetric=True)
    for part in pool.map(of_example, walk.examples):
        total.take(part)
    return total


def _rounded(candidate: Candidate, layer: Layer, moments: Moments, how: Rounding) -> dict[str, Array]:
    """The layer's weights (code * scale) and its bias."""
    operand = layer.operand
    values = candidate.constants.get(operand.initializer, layer.nearest)
    made: dict[str, Array] = {}
    if layer.group in how.rounded:
        values = by_hessian(layer, moments, how.hessian)
        made[operand.initializer] = values
    if layer.group in how.corrected and correctable(layer):
        target = moments.target_mean() if moments.cross is not None else None
        made[operand.bias_name] = corrected_bias(layer, values, moments.mean(), target)
    return made


def by_hessian(layer: Layer, moments: Moments, settings: HessianSettings) -> Array:
    """Weights (code * scale, the initialiser's shape) that keep the layer's output under ``moments``."""
    form = layer.form
    matrix = form.to_matrix(layer.operand.weights.astype(np.float64))
    grid = grid_of(layer)
    target = None if moments.cross is None else asymmetric_target(matrix, moments, settings.damping)
    codes = round_with_hessian(matrix, moments.centred(), grid, settings, target)
    return np.ascontiguousarray(form.from_matrix(grid.values(codes).astype(np.float32)))


def grid_of(layer: Layer) -> Grid:
    """The grid of the layer's weights: [groups, rows, 1] where the input channels of a row share a step."""
    entry, shape = layer.parameters, layer.operand.weights.shape
    low, high = CODE_LIMITS[entry.dtype]
    scales = layer.form.to_matrix(np.broadcast_to(weight_steps(entry, shape), shape))
    zeros = code_parts(np.zeros(shape, np.int8), entry)[1]
    if zeros is None:
        return Grid(scales=scales if entry.group_size else scales[:, :, :1], low=-high, high=high)
    zero_points = layer.form.to_matrix(np.broadcast_to(zeros, shape)).astype(np.float64)
    return Grid(scales=scales, low=low, high=high, zero_points=zero_points)
