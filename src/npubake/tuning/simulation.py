"""tuning: the quantised model in float, with the integer form of every activation as an input of the session.

The calibrated (QDQ) model enters. Each QuantizeLinear and DequantizeLinear pair becomes
``Mul(Clip(Round(Div(x, scale)), low, high), scale)`` with scale, low and high fed at run time: the operations of ONNX
QuantizeLinear (the zero point moved into the limits), so that one session answers for any choice of bits and
ranges, and any tensor can be left alone. Weights and biases become float constants, code * scale: a new session serves
another choice of weights. What is not a number counts as 0 where it is quantised, as in the integer model: 0 / 0 where
a small divisor rounds to 0, or a function outside its domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.calibration.inference import open_session
from npubake.graph.editing import attribute
from npubake.graph.naming import all_names, fresh_name
from npubake.graph.summary import GraphSummary
from npubake.quant.parameters import TensorParameters, limits
from npubake.tuning.examples import Feeds

Array = NDArray[np.float32]
Told = TypeVar("Told")
_PARTIAL = frozenset(("Div", "Mod", "Sqrt", "Log", "Pow", "Asin", "Acos", "Acosh", "Atanh"))  # NaN for some numbers
_MANTISSA = 24  # a step of absmax / 2**24 leaves every float32 value below absmax as good as unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Integer form of one activation: real = scale * code, low <= code <= high (codes are q - zero point)."""

    scale: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatedModel:
    """model: extra inputs ``forms[t]`` (float32 [3]: scale, low, high) for each fake-quantised tensor ``t``.

    views: tensor of the optimised graph -> its name here, as its readers see it. constants: the float constants that
    stand for integer weights and biases, by the optimised graph's names.
    """

    model: onnx.ModelProto
    forms: Mapping[str, str]
    views: Mapping[str, str]
    constants: Mapping[str, Array]


def form_of(parameters: TensorParameters) -> Form:
    """The form that ``parameters`` describe."""
    low, high = limits(parameters)
    return Form(scale=parameters.scale, low=low, high=high)


def untouched(absmax: float) -> Form:
    """A form that leaves values up to ``absmax`` as they are, to 24 bits, and clips nothing."""
    scale = float(np.exp2(np.ceil(np.log2(absmax)) - _MANTISSA)) if absmax > 2.0**-60 else 2.0**-84
    return Form(scale=scale, low=-np.inf, high=np.inf)


def simulated_model(calibrated: onnx.ModelProto, summary: GraphSummary) -> SimulatedModel:
    """``calibrated`` (untouched) with its quantisers open to the session's caller."""
    writer = _Opening(calibrated, summary)
    for node in calibrated.graph.node:
        writer.add(node)
    return writer.finish()


class Simulator:
    """A session over a simulated model. A run takes one thread; ``run_each`` makes ``threads`` of them at once, which
    leaves no processor waiting at the end of each of many small operators.

    watched: tensors of the optimised graph whose values are handed out, as their readers see them.
    constants: float constants that differ from the model's, by the optimised graph's names.
    """

    def __init__(
        self,
        simulated: SimulatedModel,
        watched: Iterable[str],
        threads: int,
        constants: Mapping[str, Array] | None = None,
    ) -> None:
        self.tensors = tuple(dict.fromkeys(watched))
        self._forms = simulated.forms
        self._views = [simulated.views[name] for name in self.tensors]
        self._session = open_session(_with_constants(simulated, constants or {}, self._views), "simulation", 1)
        self._threads = threads

    @property
    def quantised(self) -> tuple[str, ...]:
        """The tensors whose form is asked at every run."""
        return tuple(self._forms)

    def run(self, feeds: Feeds, forms: Mapping[str, Form]) -> dict[str, NDArray[Any]]:
        """Values of the watched tensors for one example; ``forms``: of every tensor in ``quantised``."""
        given = dict(feeds)
        for tensor, name in self._forms.items():
            form = forms[tensor]
            given[f"{name}/scale"] = np.array(form.scale, np.float32)
            given[f"{name}/low"] = np.array(form.low, np.float32)
            given[f"{name}/high"] = np.array(form.high, np.float32)
        values = self._session.run(list(dict.fromkeys(self._views)), given)
        found = dict(zip(dict.fromkeys(self._views), values, strict=True))
        return {name: np.asarray(found[view]) for name, view in zip(self.tensors, self._views, strict=True)}

    def run_each(
        self, asked: Sequence[tuple[Feeds, Mapping[str, Form]]], told: Callable[[int, Mapping[str, NDArray[Any]]], Told]
    ) -> list[Told]:
        """What ``told`` makes of the place and the answer of each of ``asked``, in their order."""

        def one(place: int) -> Told:
            return told(place, self.run(*asked[place]))

        with ThreadPoolExecutor(max_workers=self._threads) as pool:
            return list(pool.map(one, range(len(asked))))


class _Opening:
    """The simulated graph while it is written."""

    def __init__(self, calibrated: onnx.ModelProto, summary: GraphSummary) -> None:
        self.calibrated = calibrated
        self.original = {fact.name: fact for fact in summary.nodes}
        self.summary = summary
        self.stored = {tensor.name: tensor for tensor in calibrated.graph.initializer}
        self.makers = {name: node for node in calibrated.graph.node for name in node.output}
        self.groups = summary.producer_group()
        self.names = all_names(calibrated)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.forms: dict[str, str] = {}
        self.views: dict[str, str] = {}
        self.codes: dict[str, tuple[str, str]] = {}  # integer name -> (tensor, what was quantised)
        self.values: dict[str, Array] = {}  # dequantised constant -> value
        self.constants: dict[str, Array] = {}

    def add(self, node: onnx.NodeProto) -> None:
        if node.name in self.original:
            self._copy(node)
        elif node.op_type == "QuantizeLinear":
            self.codes[node.output[0]] = (self._source(node.input[0]), node.input[0])
        elif node.op_type == "DequantizeLinear" and node.input[0] in self.codes:
            self._open(*self.codes[node.input[0]], node.output[0])
        elif node.op_type == "DequantizeLinear":
            self.values[node.output[0]] = _dequantized(node, self.stored)
        else:
            self.nodes.append(node)  # the Casts of a float16 tensor, the Identity in front of a graph output

    def finish(self) -> SimulatedModel:
        model = onnx.ModelProto()
        model.ir_version = self.calibrated.ir_version
        model.opset_import.extend(self.calibrated.opset_import)
        model.functions.extend(self.calibrated.functions)
        graph = model.graph
        graph.name = self.calibrated.graph.name
        graph.node.extend(self.nodes)
        graph.input.extend([*self.calibrated.graph.input, *self.inputs])
        graph.output.extend(self.calibrated.graph.output)
        read = {name for node in self.nodes for name in node.input}
        graph.initializer.extend(tensor for name, tensor in self.stored.items() if name in read)
        views = {name: name for name in self.summary.inputs}
        views.update({name: name for fact in self.summary.nodes for name in fact.outputs if name})
        views.update({name: view for name, view in self.views.items() if name not in self.summary.outputs})
        return SimulatedModel(model=model, forms=self.forms, views=views, constants=self.constants)

    def _copy(self, node: onnx.NodeProto) -> None:
        """A node of the optimised graph, its dequantised constants under their own names."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for slot, name in enumerate(node.input):
            if name in self.values:
                own = self.original[node.name].inputs[slot]
                self.constants[own] = self.values[name]
                copy.input[slot] = own
        self.nodes.append(copy)

    def _open(self, tensor: str, source: str, result: str) -> None:
        name = fresh_name(f"{tensor}/form", self.names)
        ends = [f"{name}/scale", f"{name}/low", f"{name}/high"]
        self.inputs.extend(helper.make_tensor_value_info(end, TensorProto.FLOAT, []) for end in ends)
        source = self._number(tensor, source)
        steps = [f"{name}/{step}" for step in ("quotient", "code", "clipped")]
        scale, low, high = ends
        for op_type, inputs, output in (
            ("Div", [source, scale], steps[0]),
            ("Round", [steps[0]], steps[1]),
            ("Clip", [steps[1], low, high], steps[2]),
            ("Mul", [steps[2], scale], result),
        ):
            self.nodes.append(helper.make_node(op_type, inputs, [output], name=output))
        self.forms[tensor] = name
        self.views[tensor] = result

    def _number(self, tensor: str, source: str) -> str:
        """``source`` with 0 for what is not a number, where a group makes it that may make such."""
        group = self.groups.get(tensor)
        if group is None or _PARTIAL.isdisjoint(self.original[name].op_type for name in group.nodes):
            return source
        missing, zero, number = (fresh_name(f"{tensor}/{part}", self.names) for part in ("missing", "zero", "number"))
        self.stored[zero] = numpy_helper.from_array(np.zeros((), np.float32), zero)
        self.nodes.append(helper.make_node("IsNaN", [source], [missing], name=missing))
        self.nodes.append(helper.make_node("Where", [missing, zero, source], [number], name=number))
        return number

    def _source(self, name: str) -> str:
        """The optimised graph's name of what ``name`` holds: behind the Casts of float16, or what a node makes."""
        node = self.makers.get(name)
        if node is None:
            return name
        if node.name in self.original:
            return self.original[node.name].outputs[list(node.output).index(name)]
        return self._source(node.input[0])


def _dequantized(node: onnx.NodeProto, stored: Mapping[str, onnx.TensorProto]) -> Array:
    """(code - zero point) * scale in float32, along the node's axis or in its blocks, as DequantizeLinear has it."""
    codes, scale, *zeros = (numpy_helper.to_array(stored[name]) for name in node.input if name)
    wide = codes.astype(np.int32)
    axis, size = attribute(node, "axis", 1), attribute(node, "block_size", 0)
    if zeros:
        wide = wide - _along(zeros[0].astype(np.int32), axis, size, codes.shape)
    return np.asarray(wide.astype(np.float32) * _along(scale, axis, size, codes.shape), np.float32)


def _along(values: NDArray[Any], axis: int, size: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """Scales or zero points of a DequantizeLinear, to broadcast over codes of ``shape``: one, one along ``axis``, or
    one for each block of ``size`` elements along it.
    """
    if size:
        return np.repeat(values, size, axis=axis).take(range(shape[axis]), axis=axis)
    target = [1] * len(shape)
    if values.ndim:
        target[axis] = -1
    return values.reshape(target)


def _with_constants(simulated: SimulatedModel, constants: Mapping[str, Array], views: list[str]) -> onnx.ModelProto:
    """The model with every weight and bias as a constant, and ``views`` as its outputs."""
    model = onnx.ModelProto()
    model.CopyFrom(simulated.model)
    for name, value in simulated.constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(constants.get(name, value), order="C"), name))
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(views))
    return model
