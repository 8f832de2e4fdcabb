"""tuning: a quantised model that may be judged: a float graph, its parameters, and the constants chosen for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.quant.assign import Assignment, Subject, assign
from npubake.quant.operands import WeightedOperand, weighted_operand
from npubake.quant.parameters import QuantizationParameters, TensorParameters, WeightParameters
from npubake.quant.qdq import calibrated_model
from npubake.quant.request import Request, Settings
from npubake.quant.weight_scales import bias_scales
from npubake.tuning.matrix_form import MatrixForm, matrix_forms
from npubake.tuning.simulation import Array, Form, SimulatedModel, form_of, simulated_model

TUNING = "tuning"  # the place of what tuning lifts, where a recipe's overrides have theirs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """A float graph to quantise, and what is asked of it.

    name: ``optimised`` or ``transformed``; matched: groups of each of the request's overrides; given: the parameters
    that ``calibrate`` made for it, where it did.
    """

    name: str
    model: onnx.ModelProto
    subject: Subject
    request: Request
    matched: Sequence[tuple[str, ...]]
    given: QuantizationParameters | None = None

    def assigned(self, lifted: Sequence[str]) -> Assignment:
        """Parameters with 16 bits for what the groups ``lifted`` make."""
        if not lifted:
            made = assign(self.subject, self.request, self.matched)
            return made if self.given is None else replace(made, parameters=self.given)
        entry = {"match": {"names": list(lifted)}, "set": {"output": "int16"}, "path": TUNING}
        request = replace(
            self.request,
            overrides=(*self.request.overrides, entry),
            settings=(*self.request.settings, Settings(output="int16")),
        )
        return assign(self.subject, request, [*self.matched, tuple(lifted)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """One weighted integer group: its constant operand and bias in float, its form, its integer parameters.

    source, target: what it reads and makes; target None where its accumulator leaves unrounded. nearest: code * scale
    of the weights rounded to nearest, in the initialiser's shape.
    """

    group: str
    operand: WeightedOperand
    form: MatrixForm
    parameters: WeightParameters
    source: TensorParameters
    target: TensorParameters | None
    nearest: Array

    def on_grids_of(self, other: Layer) -> bool:
        """True where weights and bias are coded as in ``other``."""
        return self.parameters == other.parameters and self.source.scale == other.source.scale


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """constants: weights (code * scale) and biases (float) that replace the float graph's, by initialiser."""

    start: Start
    assignment: Assignment
    simulated: SimulatedModel
    layers: Mapping[str, Layer]
    lifted: tuple[str, ...] = ()
    constants: Mapping[str, Array] = field(default_factory=dict)

    @property
    def parameters(self) -> QuantizationParameters:
        return self.assignment.parameters

    def forms(self) -> dict[str, Form]:
        """The form of every fake-quantised tensor."""
        return {name: form_of(self.parameters.tensors[name]) for name in self.simulated.forms}

    def simulated_constants(self) -> dict[str, Array]:
        """``constants`` as the calibrated model will hold them: biases on the grid of their int32 form."""
        found = dict(self.constants)
        for layer in self.layers.values():
            name = layer.operand.bias_name
            if name in found:
                found[name] = on_bias_grid(layer, found[name])
        return found

    def float_model(self) -> onnx.ModelProto:
        """The float graph with ``constants`` in place of its own."""
        model = onnx.ModelProto()
        model.CopyFrom(self.start.model)
        for tensor in model.graph.initializer:
            if tensor.name in self.constants:
                value = np.asarray(self.constants[tensor.name], order="C")
                tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
        return model


def candidate(start: Start, lifted: Sequence[str] = ()) -> Candidate:
    """Everything rounded to nearest."""
    made = start.assigned(lifted)
    calibrated = calibrated_model(start.model, start.subject.summary, start.subject.facts, made.parameters).model
    simulated = simulated_model(calibrated, start.subject.summary)
    return Candidate(
        start=start,
        assignment=made,
        simulated=simulated,
        layers=_layers(start, made.parameters, simulated),
        lifted=tuple(lifted),
    )


def _layers(start: Start, parameters: QuantizationParameters, simulated: SimulatedModel) -> dict[str, Layer]:
    summary = start.subject.summary
    groups = [group for group in summary.groups if group.name in parameters.weights]
    forms = matrix_forms(start.model, summary, [group.name for group in groups])
    layers = {}
    for group in groups:
        unrounded = parameters.groups[group.name].accumulator_output
        operand = weighted_operand(summary, group, start.subject.facts)
        layers[group.name] = Layer(
            group=group.name,
            operand=operand,
            form=forms[group.name],
            parameters=parameters.weights[group.name],
            source=parameters.tensors[group.inputs[0]],
            target=None if unrounded else parameters.tensors[group.outputs[0]],
            nearest=simulated.constants[operand.initializer],
        )
    return layers


def on_bias_grid(layer: Layer, bias: Array) -> Array:
    """``bias`` as int32 codes give it back: rint(b / (si * sw)) * float32(si * sw)."""
    scales = bias_scales(bias.shape[-1], np.array(layer.parameters.scales), layer.source.scale)
    codes = np.rint(bias.astype(np.float64) / scales)
    return np.asarray(codes.astype(np.float32) * scales.astype(np.float32), np.float32)


def channel_means(start: Start, forms: Iterable[MatrixForm]) -> dict[str, NDArray[np.float64]]:
    """Group -> mean of each input channel over the calibration set, from the statistics; float64 [channels].

    A tensor that groups read along unlike axes (a Conv and a MatMul) has the channels of one of them alone
    (calibration/channels.py): the others have no means.
    """
    found: dict[str, Any] = {}
    for form in forms:
        entry = start.subject.statistics.get(form.tensor)
        if entry is not None and entry.channels is not None and entry.channels.axis == form.input_axis:
            found[form.group] = entry.channels.sums / (entry.count / len(entry.channels.sums))
    return found
