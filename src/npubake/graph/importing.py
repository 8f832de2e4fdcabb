"""Room ``graph``: the original float model. Bytes of a source file enter, a model with static shapes, inferred facts,
unique names, float32 arithmetic and opset 21 leaves; every fault of a source is reported at once.

What was changed is written into the model's ``metadata_props`` under ``npubake.import`` (canonical JSON).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from npubake.errors import Fault, RecipeError
from npubake.graph.control_flow import inline_constant_conditions
from npubake.graph.editing import infer_shapes, static_shape
from npubake.graph.execution import RUNTIME_ERRORS, random_feeds, run_model
from npubake.graph.import_survey import survey
from npubake.graph.model_file import parse_model
from npubake.graph.naming import name_nodes
from npubake.graph.opset import IR_VERSION, OPSET, STANDARD_DOMAINS, opset_of
from npubake.graph.passes.fold_constants import fold_constants
from npubake.graph.promotion import promote_half
from npubake.graph.static_shapes import fix_input_shapes

Array = NDArray[Any]

_OLDEST_RUN = 7  # the oldest opset that ONNX Runtime supports (its compatibility page)
_CLOSE = 1e-5  # of the largest output: an upgrade changes spelling, at most the order of a few sums
_CONVERSION_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    IndexError,
    TypeError,
    KeyError,
    AttributeError,
)
_RUN_ERRORS = RUNTIME_ERRORS + _CONVERSION_ERRORS


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportNotes:
    """What the import changed. promoted: names that were half precision; named: nodes that got a name, and why;
    inlined: If nodes that went; opset_from: the source's opset.
    """

    opset_from: int
    promoted: tuple[str, ...]
    named: Mapping[str, str]
    inlined: tuple[str, ...]
    initialisers_no_longer_inputs: tuple[str, ...]


def import_model(data: bytes, shapes: Mapping[str, Sequence[int] | None], where: str = "model") -> onnx.ModelProto:
    """The original float model made from ``data``; ``shapes``: inputs that the recipe names, with sizes or None.

    Raises RecipeError with every fault of the model.
    """
    model = parse_model(data, where)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    named = name_nodes(model)
    freed = _separate_constants(model)
    faults = fix_input_shapes(model, shapes)
    inlined = inline_constant_conditions(_with_facts(model))
    named |= name_nodes(model)
    faults += survey(model)
    if faults:
        raise RecipeError(*faults)
    promoted = promote_half(model)
    opset = opset_of(model)
    assert opset is not None  # the survey refuses a model without
    model = _upgrade(model, opset, where)
    named |= name_nodes(model)
    model.ir_version = IR_VERSION
    model = _checked(_resolved(model, where), where)
    notes = ImportNotes(
        opset_from=opset, promoted=promoted, named=named, inlined=inlined, initialisers_no_longer_inputs=freed
    )
    entry = model.metadata_props.add()
    entry.key, entry.value = "npubake.import", json.dumps(asdict(notes), sort_keys=True)
    return model


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
    """``model`` itself; where sizes can be inferred already, they help to decide conditions."""
    if any(node.op_type == "If" for node in model.graph.node):
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
        del model.graph.value_info[:]
        model.graph.value_info.extend(inferred.graph.value_info)
    return model


def _upgrade(model: onnx.ModelProto, opset: int, where: str) -> onnx.ModelProto:
    """``model`` in opset 21, compared with itself before on random inputs."""
    others = [entry for entry in model.opset_import if entry.domain not in STANDARD_DOMAINS]
    for entry in others:
        model.opset_import.remove(entry)
    if opset == OPSET:
        return model
    hint = f"export the model with opset {OPSET} directly"
    try:
        converted = onnx.version_converter.convert_version(model, OPSET)
    except _CONVERSION_ERRORS as error:
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
    return converted


def _compared(
    model: onnx.ModelProto, converted: onnx.ModelProto, opset: int, fault: Fault
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Outputs of both on the same random inputs; before opset 7, which ONNX Runtime does not know, onnx's reference
    evaluator runs the source. Raises RecipeError (``fault``, with what happened) where one of them does not run.
    """
    feeds = random_feeds(model, seed=0)
    try:
        after = run_model(converted, feeds)
        if opset >= _OLDEST_RUN:
            return run_model(model, feeds), after
        evaluator = ReferenceEvaluator(model)
        return dict(zip(after, evaluator.run(list(after), feeds), strict=True)), after
    except _RUN_ERRORS as error:
        what = f"the model does not run on random inputs, so its upgrade to opset {OPSET} cannot be verified: "
        raise RecipeError(replace(fault, what=what + _first_line(error))) from error


def _resolved(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """``model`` with the facts of every tensor; sizes that are computed in the graph are followed by folding a copy."""
    try:
        model = infer_shapes(model)
        folded = model
        for _ in range(len(model.graph.node)):
            unknown = _unknown_tensors(model)
            if not unknown:
                break
            folded = fold_constants(folded).model
            _take_facts(model, folded)
            if _unknown_tensors(model) == unknown:
                break
    except onnx.shape_inference.InferenceError as error:
        hint = "the sizes or types of the model contradict each other; check model.inputs, or export it again"
        raise RecipeError(Fault(what=_first_line(error), where=where, hint=hint)) from error
    left = set(_unknown_tensors(model))
    faults = [
        Fault(
            what=f"the size of {name!r}, made by {node.op_type}, is not known before the model runs",
            where=node.name,
            hint="export with fixed sizes, or cut the model before this node",
        )
        for node in model.graph.node
        for name in node.output
        if name in left and not left & set(node.input)
    ]
    if faults:
        raise RecipeError(*faults)
    return model


def _unknown_tensors(model: onnx.ModelProto) -> list[str]:
    values = (*model.graph.value_info, *model.graph.output)
    known = {value.name for value in values if static_shape(value) is not None}
    return [name for node in model.graph.node for name in node.output if name and name not in known]


def _take_facts(model: onnx.ModelProto, folded: onnx.ModelProto) -> None:
    """Sizes that ``folded`` knows and ``model`` does not."""
    constants = [
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in folded.graph.initializer
    ]
    better = {
        value.name: value
        for value in (*folded.graph.value_info, *folded.graph.output, *constants)
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
