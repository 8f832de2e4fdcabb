"""tuning: MOD over a network: the layers that a recipe names, taught one after the other by the float model.

Scales first, each layer from what it reads in the float model: the scale of an activation is its maker's output scale,
too, so all that was learned goes onto the grid of exact rounding at once, and every weight is rounded anew. Rounding
then, in order of execution: each layer reads what the quantised layers before it make of the examples, and is held to
what the float layer makes of what it reads in the float model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.graph.editing import attribute
from npubake.quant.loading import LoadedScales
from npubake.quant.parameters import LIMITS, TensorParameters
from npubake.tuning.biases import correctable, within_bias_limit
from npubake.tuning.candidate import Candidate, Layer, candidate
from npubake.tuning.exact_products import product
from npubake.tuning.examples import Feeds
from npubake.tuning.layer_problem import InputQuantiser, LayerProblem
from npubake.tuning.learning import Learnable, LearningSettings, learn_rounding, learn_scales
from npubake.tuning.matrix_form import chosen_positions, columns_at
from npubake.tuning.moments import positions_of
from npubake.tuning.rounding import Walk, grid_of
from npubake.tuning.searching import rescaled, with_layers
from npubake.tuning.simulation import Array

Wide = NDArray[np.float64]
Progress = Callable[[int], None]
POSITIONS = 64  # of one example
UNSEEN = 0.25  # share of the examples that judges what a layer has learned
SCALES: frozenset[Learnable] = frozenset(("activation_scale", "zero_point", "weight_scale"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """groups: those taught; learn: what is learned of them; settings: epochs, rate and schedule."""

    groups: frozenset[str]
    learn: frozenset[Learnable]
    settings: LearningSettings
    threads: int

    @classmethod
    def of(cls, groups: frozenset[str], block: Mapping[str, Any], threads: int) -> Teaching:
        """``block``: the recipe's; what it leaves out is the default, and rounding is what is learned."""
        stated = {name: block[name] for name in ("epochs", "learning_rate", "schedule") if name in block}
        learn = frozenset(block.get("learn") or ("rounding",))
        return cls(groups=groups, learn=learn, settings=LearningSettings(**stated), threads=threads)


def taught(
    given: Candidate,
    feeds: Sequence[Feeds],
    how: Teaching,
    finished: Callable[[Candidate], Candidate],
    progress: Progress,
) -> Candidate:
    """``given`` with the layers of ``how`` taught from ``feeds``.

    finished: gives a candidate of other scales the biases that ``given`` has; progress: hears how many layers are done.
    """
    made, done = given, 0
    if how.learn & SCALES:
        made = finished(_with_learned_scales(given, feeds, how, progress))
        done = len(_chosen(given, how))
    if "rounding" not in how.learn:
        return made
    walk = Walk(made, feeds, how.threads)
    for layer in walk.layers(_chosen(made, how)):
        problem = _problem(made, layer, [walk.read(layer, index) for index in walk.examples])
        walk.settle(layer, _rounding(made, layer, problem, how.settings))
        done += 1
        progress(done)
    return replace(made, constants={**made.constants, **walk.made})


def unteachable(given: Candidate, groups: Collection[str]) -> dict[str, str]:
    """Of ``groups`` the weighted ones that cannot be taught, and why."""
    return {
        name: "its bias is not one value for each output channel"
        for name, layer in given.layers.items()
        if name in groups and not _teachable(layer)
    }


def _teachable(layer: Layer) -> bool:
    bias = layer.operand.channel_bias()
    return bias is None or bias.size == layer.form.groups * layer.form.rows


def _chosen(given: Candidate, how: Teaching) -> list[Layer]:
    return [layer for name, layer in given.layers.items() if name in how.groups and _teachable(layer)]


def _rounding(given: Candidate, layer: Layer, problem: LayerProblem, settings: LearningSettings) -> dict[str, Array]:
    """The layer's weights (code * scale) and its bias, as learned."""
    operand, form, grid = layer.operand, layer.form, grid_of(layer)
    values = given.constants.get(operand.initializer, layer.nearest)
    start = grid.rounded(form.to_matrix(values.astype(np.float64)))
    learned = learn_rounding(problem, grid, start, settings)
    codes = grid.values(learned.codes).astype(np.float32)
    made: dict[str, Array] = {operand.initializer: np.ascontiguousarray(form.from_matrix(codes))}
    if correctable(layer):
        assert operand.bias is not None  # a correctable layer has one
        made[operand.bias_name] = within_bias_limit(layer, learned.bias.reshape(operand.bias.shape))
    return made


def _problem(given: Candidate, layer: Layer, reads: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> LayerProblem:
    """reads: what the layer reads in the quantised and in the float model, one pair an example."""
    form = layer.form
    weights = form.to_matrix(layer.operand.weights.astype(np.float64))
    bias = layer.operand.channel_bias()
    wide = np.zeros(weights.shape[:2]) if bias is None else form.by_row(bias.reshape(-1).astype(np.float64)).copy()
    columns: list[list[NDArray[Any]]] = [[], []]
    for index, pair in enumerate(reads):
        places = chosen_positions(form, index, positions_of(form, POSITIONS))
        for side, value in zip(columns, pair, strict=True):
            side.append(columns_at(form, value, places))
    inputs, real = (np.concatenate(side, axis=2).astype(np.float32, copy=False) for side in columns)
    judged = max(round(len(reads) * UNSEEN), 1) if len(reads) > 1 else 0
    return LayerProblem(
        weights=weights,
        bias=wide,
        inputs=inputs,
        outputs=(product(weights, real) + wide[:, :, None]).astype(np.float32),
        quantiser=_quantiser(layer.source),
        seen=sum(each.shape[2] for each in columns[0][: len(reads) - judged]),
        clip=_clip(given, layer),
        free_bias=correctable(layer),
    )


def _quantiser(source: TensorParameters) -> InputQuantiser:
    low, high = LIMITS[source.dtype]
    return InputQuantiser(scale=source.scale, zero_point=float(source.zero_point), low=low, high=high)


def _clip(given: Candidate, layer: Layer) -> tuple[float, float]:
    """Limits of the Relu and Clip nodes that are fused into the layer."""
    (group,) = (group for group in given.start.subject.summary.groups if group.name == layer.group)
    constants = given.start.subject.facts.initializers
    low, high = -np.inf, np.inf
    for node in (node for node in given.start.model.graph.node if node.name in group.nodes):
        if node.op_type == "Relu":
            low = max(low, 0.0)
        elif node.op_type == "Clip":
            ends = [float(attribute(node, name, end)) for name, end in (("min", -np.inf), ("max", np.inf))]
            for place, name in enumerate(node.input[1:3]):
                if name in constants:
                    ends[place] = float(constants[name].reshape(-1)[0])
            low, high = max(low, ends[0]), min(high, ends[1])
    return low, high


def _with_learned_scales(given: Candidate, feeds: Sequence[Feeds], how: Teaching, progress: Progress) -> Candidate:
    """``given`` with the scales that its layers learned, on the grid; weights rounded to nearest."""
    ranges: dict[str, TensorParameters] = {}
    wanted: dict[str, Wide] = {}
    walk, own = Walk(given, feeds, how.threads), _own_inputs(given)
    for done, layer in enumerate(walk.layers(_chosen(given, how)), 1):
        learn = how.learn & SCALES
        if layer.source.dtype != "uint8" or layer.form.tensor not in own:
            learn -= {"activation_scale", "zero_point"}
        if not _has_own_scales(layer):
            learn -= {"weight_scale"}
        if learn:
            real = [walk.read(layer, index)[1] for index in walk.examples]
            problem = _problem(given, layer, [(value, value) for value in real])
            learned = learn_scales(problem, grid_of(layer), learn, how.settings)
            if learned.kept and learn & {"activation_scale", "zero_point"}:
                ranges[layer.form.tensor] = _parameters(learned.quantiser)
            if learned.kept and "weight_scale" in learn:
                wanted[layer.group] = learned.weight_scales.reshape(-1)
        progress(done)
    return _on_the_grid(given, ranges, wanted)


def _on_the_grid(given: Candidate, ranges: Mapping[str, TensorParameters], wanted: Mapping[str, Wide]) -> Candidate:
    """All parameters anew from the learned ranges; then the learned scales of weights."""
    made = given
    if ranges:
        loaded = LoadedScales(tensors=ranges, weights={}, missing="calibrate")
        start = replace(given.start, request=replace(given.start.request, loaded=loaded), given=None)
        made = candidate(start, given.lifted)
    layers = {name: rescaled(made.layers[name], scales) for name, scales in wanted.items() if name in made.layers}
    return with_layers(made, layers)


def _own_inputs(given: Candidate) -> frozenset[str]:
    """Tensors with a scale of their own that one group alone reads, unless a recipe has loaded scales."""
    if given.start.request.loaded is not None:
        return frozenset()
    summary = given.start.subject.summary
    shared = {name for members in given.assignment.record.shared_scales for name in members}
    read = [name for group in summary.groups for name in group.inputs]
    kept = shared.union(summary.outputs, given.start.request.input_ranges)
    return frozenset(name for name in read if read.count(name) == 1 and name not in kept)


def _has_own_scales(layer: Layer) -> bool:
    """True where each row of the layer has a scale that may move by itself."""
    entry = layer.parameters
    several = len(entry.scales) == layer.form.groups * layer.form.rows
    alone = len(entry.scales) == 1 or len(set(entry.scales)) > 1
    return several and alone and not entry.zero_points and not entry.group_size


def _parameters(quantiser: InputQuantiser) -> TensorParameters:
    """The learned quantiser as an entry of parameters: its ends are those that its integers span."""
    low, high = (quantiser.scale * (end - quantiser.zero_point) for end in (quantiser.low, quantiser.high))
    zero_point = int(quantiser.zero_point)
    return TensorParameters(dtype="uint8", scale=quantiser.scale, zero_point=zero_point, low=low, high=high)
