"""Qualcomm toolchain: the decided float model as QDQ in the forms that the HTP compiler takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from npubake.graph.inference import infer_shapes, without_graph_body
from npubake.graph.naming import all_names
from npubake.graph.opset import IR_VERSION
from npubake.graph.summary import GraphSummary
from npubake.quant.lanes import LANES
from npubake.quant.model_facts import model_facts
from npubake.quant.parameters import QuantizationParameters
from npubake.toolchains.qualcomm.adapting.computing import computed_in
from npubake.toolchains.qualcomm.adapting.deciding import GridTable
from npubake.toolchains.qualcomm.adapting.edges import compilable_model
from npubake.toolchains.qualcomm.adapting.grids import Grid
from npubake.toolchains.qualcomm.adapting.operations import Spelling
from npubake.toolchains.qualcomm.adapting.products import Products
from npubake.toolchains.qualcomm.adapting.recording import Written, adapt_record, float_record
from npubake.toolchains.qualcomm.adapting.request import Adapted, AdaptRequest, Sources
from npubake.toolchains.qualcomm.adapting.spelling import Speller
from npubake.toolchains.qualcomm.adapting.writing import UnitWriter


def adapt(model: onnx.ModelProto, summary: GraphSummary, sources: Sources, request: AdaptRequest) -> Adapted:
    """The QDQ model of ``sources``, and the same with the edges of ``request``. ``model`` is untouched.

    Without parameters the float model itself. Raises StageError for weights in a format that the compiler does not take
    and for tensors of which nothing is known; RecipeError for a runtime input that fits no input.
    """
    if sources.parameters is None:
        edges = compilable_model(model, {}, {}, request)
        return Adapted(model=model, compilable=edges.model, record=float_record(summary, edges, request))
    written = quantised_model(model, summary, sources, request, fused=True)
    asked = quantised_model(model, summary, sources, request, fused=False)
    edges = compilable_model(asked.model, asked.codes, asked.grids, request)
    return Adapted(model=written.model, compilable=edges.model, record=adapt_record(summary, written, edges, request))


def quantised_model(
    model: onnx.ModelProto,
    summary: GraphSummary,
    sources: Sources,
    request: AdaptRequest,
    *,
    fused: bool,
) -> Written:
    """The whole graph in node units, float32 at its edges. fused: without the quantisers that the compiler asks for and
    its kernels do not carry out.
    """
    facts, parameters = model_facts(model), sources.parameters
    assert parameters is not None
    computing = computed_in(summary, parameters)
    spelling = Speller(
        model=model,
        summary=summary,
        facts=facts,
        parameters=parameters,
        computing=computing,
        optimization=request.optimization,
    ).spell()
    names = all_names(model) | spelling.constants.keys() | spelling.like.keys()
    grids, floats = _decided(spelling, summary, sources, names)
    writer = UnitWriter(
        grids=grids,
        floats=floats,
        values=_float_values({**facts.initializers, **spelling.constants}),
        outputs=frozenset(summary.outputs),
        unrounded=frozenset(spelling.gates) if fused else frozenset(),
        oldest=request.oldest,
        wide_weights=_wide_weights(parameters),
        names=names,
    )
    for name in summary.inputs:
        writer.add_input(name)
    for operation in spelling.operations:
        writer.add(operation)
    writer.finish()
    constants = [numpy_helper.from_array(value, name) for name, value in spelling.constants.items()]
    made = _assembled(model, writer, constants)
    return Written(model=made, spelling=spelling, writer=writer, floats=floats)


def _decided(
    spelling: Spelling, summary: GraphSummary, sources: Sources, names: set[str]
) -> tuple[dict[str, Grid], frozenset[str]]:
    """The grids, and the float32 tensors of the operations; products are spelt by both. names: all that are taken."""
    parameters, statistics = sources.parameters, sources.statistics
    assert parameters is not None
    floats = _float_tensors(summary) | frozenset(spelling.like)
    grids = GridTable(spelling=spelling, floats=floats, parameters=parameters, statistics=statistics).decide()
    products = Products(
        spelling=spelling,
        grids=grids,
        summary=summary,
        statistics=statistics,
        names=names,
        twice=_wide_weights(parameters),
    )
    return grids, floats | products.spell()


def _wide_weights(parameters: QuantizationParameters) -> bool:
    """Whether they are of a lane with 16-bit weights."""
    return LANES[parameters.lane].weights == "int16"


def _float_tensors(summary: GraphSummary) -> frozenset[str]:
    """Computed ones and inputs; constants are no activations."""
    names = [*summary.inputs, *(name for node in summary.nodes for name in node.outputs)]
    return frozenset(name for name in names if name and summary.tensors[name].dtype == "float32")


def _float_values(initializers: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: value for name, value in initializers.items() if value.dtype == np.float32}


def _assembled(model: onnx.ModelProto, writer: UnitWriter, constants: list[onnx.TensorProto]) -> onnx.ModelProto:
    made = without_graph_body(model)
    made.ir_version = max(made.ir_version, IR_VERSION)
    made.graph.node.extend(writer.nodes)
    read = {name for node in writer.nodes for name in node.input} | {value.name for value in made.graph.output}
    stored = (*model.graph.initializer, *constants, *writer.constants)
    made.graph.initializer.extend(tensor for tensor in stored if tensor.name in read)
    return infer_shapes(made)
