"""Room ``graph``: the original float model. Bytes of a source file enter, a model with static shapes, inferred facts,
unique names, float32 arithmetic and opset 21 leaves; every fault of a source is reported at once.

What was changed is written into the model's ``metadata_props`` (``import_notes``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter
from numpy.typing import NDArray

from npubake.errors import Fault, RecipeError
from npubake.graph.control_flow import inline_constant_conditions
from npubake.graph.dequantising import dequantise
from npubake.graph.execution import RUNTIME_ERRORS, evaluate, random_feeds, run_model
from npubake.graph.expanding import expand_newer_operators
from npubake.graph.foreign import state_foreign_facts
from npubake.graph.import_notes import ImportNotes
from npubake.graph.import_survey import survey
from npubake.graph.inference import infer_shapes, static_shape
from npubake.graph.model_file import parse_model, serialise
from npubake.graph.naming import name_nodes
from npubake.graph.narrowing import narrow_doubles
from npubake.graph.nesting import every_node
from npubake.graph.opset import IR_VERSION, OPSET, STANDARD_DOMAINS, opset_of
from npubake.graph.ordering import sort_nodes
from npubake.graph.outlining import outline
from npubake.graph.passes.fold_constants import fold_constants
from npubake.graph.pooling import settle_rounded_pools
from npubake.graph.promotion import promote_half
from npubake.graph.static_shapes import fix_input_shapes

Array = NDArray[Any]

_OLDEST_RUN = 7  # the oldest opset that ONNX Runtime supports (its compatibility page)
_WITHOUT = "export the model without this output, or with the size of the input that it was made for"
_CLOSE = 1e-5  # of the largest output: an upgrade changes spelling, at most the order of a few sums
# What onnx's converter raises by itself, and as which Python error the binding hands on the C++ errors of its adapters
# (std::runtime_error; std::out_of_range of a missing attribute or input; std::invalid_argument).
_CONVERTER_ERRORS: tuple[type[Exception], ...] = (
    onnx.version_converter.ConvertError,
    onnx.shape_inference.InferenceError,
    RuntimeError,
    IndexError,
    ValueError,
)


def import_model(
    data: bytes,
    shapes: Mapping[str, Sequence[int] | None],
    where: str = "model",
    weights: Mapping[str, Path] | None = None,
) -> onnx.ModelProto:
    """The original float model made from ``data``. shapes: inputs that the recipe names, with sizes or None; weights:
    the files that keep values of the model, by the name that it calls them by.

    Raises RecipeError with every fault of the model.
    """
    model = _written_out(parse_model(data, where, weights or {}), where)
    named = name_nodes(model)
    freed = _separate_constants(model)
    faults = fix_input_shapes(model, shapes)
    inlined = inline_constant_conditions(_with_facts(model))
    named |= name_nodes(model)
    faults += survey(model)
    if faults:
        raise RecipeError(*faults)
    _sort(model)
    settle_rounded_pools(model)
    promoted = promote_half(model)
    narrowed = narrow_doubles(model, where)
    model, opset = _upgrade(model, where)
    named |= name_nodes(model)
    model.ir_version = IR_VERSION
    dequantised = dequantise(model)
    if dequantised.faults:
        raise RecipeError(*dequantised.faults)
    foreign = _foreign_operators(model)
    outlined = outline(model)
    model = _checked(_resolved(model, where), where)
    notes = ImportNotes(
        opset_from=opset,
        promoted=promoted,
        narrowed=narrowed,
        named=named,
        inlined=inlined,
        initialisers_no_longer_inputs=freed,
        dequantised=tuple(dequantised.removed),
        ranges=dequantised.ranges,
        outlined=outlined,
        foreign=foreign,
    )
    notes.attach(model)
    return model


def _written_out(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """``model`` with its functions in place of their calls. Raises RecipeError where they contradict each other."""
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except (onnx.checker.ValidationError, RuntimeError) as error:
        hint = "correct the functions of the model, or export it again with its operators written out"
        raise RecipeError(Fault(what=_first_line(error), where=where, hint=hint)) from error


def _sort(model: onnx.ModelProto) -> None:
    """Nodes in topological order, in place. Raises RecipeError naming the nodes of a cycle."""
    nodes = sort_nodes(model.graph.node)
    if any(new is not old for new, old in zip(nodes, model.graph.node, strict=True)):
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(copies)


def _foreign_operators(model: onnx.ModelProto) -> tuple[str, ...]:
    kinds = (f"{node.domain}.{node.op_type}" for node in every_node(model.graph) if node.domain not in STANDARD_DOMAINS)
    return tuple(dict.fromkeys(kinds))


def _separate_constants(model: onnx.ModelProto) -> tuple[str, ...]:
    """Initialisers are constants, not inputs with a default (as up to IR 3); returns those that were listed as both."""
    constants = {tensor.name for tensor in model.graph.initializer}
    both = tuple(value.name for value in model.graph.input if value.name in constants)
    kept = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, 4)
    return both


def _with_facts(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` itself; where sizes can be inferred already, they help to decide conditions. A model of which nothing
    can be inferred is left as it is: its fault is told later, with what else stands against it.
    """
    if any(node.op_type == "If" for node in model.graph.node):
        try:
            inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
        except onnx.shape_inference.InferenceError:
            return model
        del model.graph.value_info[:]
        model.graph.value_info.extend(inferred.graph.value_info)
    return model


def _upgrade(model: onnx.ModelProto, where: str) -> tuple[onnx.ModelProto, int]:
    """``model`` in opset 21, compared with itself before on random inputs; the opset that it had."""
    opset = opset_of(model)
    assert opset is not None  # the survey refuses a model without
    used = {node.domain for node in every_node(model.graph)}
    for entry in [each for each in model.opset_import if each.domain not in (*STANDARD_DOMAINS, *used)]:
        model.opset_import.remove(entry)
    if opset == OPSET:
        return expand_newer_operators(model), opset
    hint = f"export the model with opset {OPSET} directly"
    source = onnx.ModelProto.FromString(serialise(model))
    try:
        source = expand_newer_operators(source)
        converted = onnx.version_converter.convert_version(source, OPSET)
    except _CONVERTER_ERRORS as error:
        what = f"the model cannot be brought from opset {opset} to {OPSET}: {_first_line(error)}"
        raise RecipeError(Fault(what=what, where=where, hint=hint)) from error
    converted.ir_version = IR_VERSION
    before, after = _compared(model, converted, opset, Fault(what="", where=where, hint=hint))
    faults = []
    for name, old in before.items():
        new = after[name]
        scale = float(np.abs(old[np.isfinite(old)]).max(initial=0.0)) if old.dtype.kind == "f" else 0.0
        if old.shape != new.shape or not np.allclose(old, new, rtol=_CLOSE, atol=_CLOSE * scale, equal_nan=True):
            what = f"output {name!r} changes when the model is brought from opset {opset} to {OPSET}"
            faults.append(Fault(what=what, where=name, hint=hint))
    if faults:
        raise RecipeError(*faults)
    return converted, opset


def _compared(
    model: onnx.ModelProto, converted: onnx.ModelProto, opset: int, fault: Fault
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Outputs of both on the same random inputs. Raises RecipeError (``fault``, with what happened) where one of them
    does not run.
    """
    feeds = random_feeds(model, seed=0)
    what = f"the model does not run on random inputs, so its upgrade to opset {OPSET} cannot be verified: "
    try:
        before = _run_source(model, feeds, opset)
    except RUNTIME_ERRORS as error:
        hint = "correct the model until ONNX Runtime runs it as it is, then build again"
        raise RecipeError(replace(fault, what=what + _first_line(error), hint=hint)) from error
    try:
        return before, run_model(converted, feeds)
    except RUNTIME_ERRORS as error:
        raise RecipeError(replace(fault, what=what + _first_line(error))) from error


def _run_source(model: onnx.ModelProto, feeds: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """The outputs as the source computes them; where the runtime does not know its opset, as onnx's evaluator does."""
    if opset >= _OLDEST_RUN:
        try:
            return run_model(model, feeds)
        except RUNTIME_ERRORS:
            if opset <= OPSET:
                raise
    return evaluate(model, feeds)


def _resolved(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """``model`` with the facts of every tensor; sizes that are computed in the graph are followed by folding a copy."""
    try:
        faults = state_foreign_facts(model)
        if faults:
            raise RecipeError(*faults)
        model = infer_shapes(model)
        _follow_computed_sizes(model)
    except onnx.shape_inference.InferenceError as error:
        hint = "the sizes or types of the model contradict each other; check model.inputs, or export it again"
        raise RecipeError(Fault(what=_first_line(error), where=where, hint=hint)) from error
    left = set(_unknown_tensors(model))
    faults += [
        Fault(
            what=f"the size of {name!r}, made by {node.op_type}, is not known before the model runs",
            where=node.name,
            hint="export with fixed sizes, or cut the model before this node",
        )
        for node in model.graph.node
        for name in node.output
        if name in left and not left & set(node.input)
    ]
    faults += [
        Fault(what=f"output {value.name!r} holds no element: its size is {shape}", where=value.name, hint=_WITHOUT)
        for value in model.graph.output
        if (shape := static_shape(value)) is not None and 0 in shape
    ]
    if faults:
        raise RecipeError(*faults)
    return model


def _follow_computed_sizes(model: onnx.ModelProto) -> None:
    """Sizes that constants and other sizes decide: a copy is folded until it says no more. In place."""
    folded = model
    for _ in range(len(model.graph.node)):
        unknown = _unknown_tensors(model)
        if not unknown:
            return
        outcome = fold_constants(folded)
        folded = outcome.model
        gone = {record.old for record in outcome.provenance} & set(unknown)
        _take_facts(model, folded, _measured(model, sorted(gone)))
        if _unknown_tensors(model) == unknown:
            return


def _measured(model: onnx.ModelProto, constants: Sequence[str]) -> list[onnx.ValueInfoProto]:
    """Facts of tensors that are the same in every run."""
    values = run_model(model, random_feeds(model, seed=0), constants) if constants else {}
    kinds = {name: onnx.helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in values.items()}
    return [onnx.helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in values.items()]


def _unknown_tensors(model: onnx.ModelProto) -> list[str]:
    values = (*model.graph.value_info, *model.graph.output)
    known = {value.name for value in values if static_shape(value) is not None}
    return [name for node in model.graph.node for name in node.output if name and name not in known]


def _take_facts(model: onnx.ModelProto, folded: onnx.ModelProto, measured: Sequence[onnx.ValueInfoProto]) -> None:
    """Sizes that ``folded`` knows, or that were measured, and ``model`` does not."""
    constants = [
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in folded.graph.initializer
    ]
    better = {
        value.name: value
        for value in (*folded.graph.value_info, *folded.graph.output, *constants, *measured)
        if static_shape(value) is not None
    }
    unknown = {name for name in _unknown_tensors(model) if name in better}
    for value in model.graph.output:
        if value.name in unknown:
            value.CopyFrom(better[value.name])
    outputs = {value.name for value in model.graph.output}
    kept = [value for value in model.graph.value_info if value.name not in unknown]
    new = [better[name] for name in sorted(unknown - outputs)]
    facts = {value.name: value for value in (*kept, *new)}
    ordered = [facts[name] for node in model.graph.node for name in node.output if name in facts]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in ordered]
    del model.graph.value_info[:]
    model.graph.value_info.extend(copies)


def _checked(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        hint = "the file does not keep the ONNX standard; export it again"
        raise RecipeError(Fault(what=_first_line(error), where=where, hint=hint)) from error
    return model


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
