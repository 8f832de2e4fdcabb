"""Room ``fixedpoint``: the integer model. (optimised model, graph summary, quantisation parameters) -> ``Lowered``.

A plain ONNX model of opset 21 in which every integer group computes the integers of docs/arithmetic.md on any CPU, with
any thread count and optimisation level. A model input ``x`` stays float32; the first node that reads it for integer
groups is called ``x/QuantizeLinear`` and makes ``x/quantized``, so that a runtime input (nv12, rgb) can replace it. An
output ``y`` that comes from integers is made by ``y/DequantizeLinear`` from ``y/accumulator`` or ``y/quantized``, so
that it can be removed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from npubake.errors import Fault, StageError
from npubake.fixedpoint.forms import NUMPY_TYPES
from npubake.fixedpoint.kernels.convolution import lower_convolution, lower_transposed_convolution
from npubake.fixedpoint.kernels.elementwise import lower_add, lower_divide, lower_multiply
from npubake.fixedpoint.kernels.floating import lower_float
from npubake.fixedpoint.kernels.interpolation import lower_resize
from npubake.fixedpoint.kernels.linear import lower_linear, lower_matmul
from npubake.fixedpoint.kernels.lookup import lower_table
from npubake.fixedpoint.kernels.movement import lower_concat, lower_movement
from npubake.fixedpoint.kernels.normalisation import lower_layer_norm, lower_softmax
from npubake.fixedpoint.kernels.pooling import lower_average, lower_reduce
from npubake.fixedpoint.lowered import Lowered, OutputFact, Tail
from npubake.fixedpoint.lowering import Kernel, Lowering, NoIntegerKernelError
from npubake.graph.summary import FusionGroup, GraphSummary, Provenance
from npubake.quant.parameters import QuantizationParameters

KERNELS: Mapping[str, Kernel] = {
    "conv": lower_convolution,
    "conv_transpose": lower_transposed_convolution,
    "linear": lower_linear,
    "matmul": lower_matmul,
    "table": lower_table,
    "add": lower_add,
    "multiply": lower_multiply,
    "divide": lower_divide,
    "concat": lower_concat,
    "movement": lower_movement,
    "average": lower_average,
    "resize": lower_resize,
    "reduce": lower_reduce,
    "softmax": lower_softmax,
    "layer_norm": lower_layer_norm,
}


def lower_model(
    model: onnx.ModelProto, summary: GraphSummary, parameters: QuantizationParameters, tail: Tail
) -> Lowered:
    """Lower ``model`` (static shapes, float32). tail: how accumulators leave the graph. The input is not touched.

    A group that no exact kernel is large enough for computes in float and is listed. Raises StageError, with all faults
    at once, where parameters are missing or contradict the rules, or an accumulator leaves that the tail cannot hold.
    """
    lowering = Lowering.of(model, summary, parameters, tail)
    for name in summary.inputs:
        lowering.forms.put(name, "real", name)
    faults: list[Fault] = []
    for group in summary.groups:
        try:
            lower_group(lowering, group)
        except StageError as error:
            faults.extend(error.faults)
            _stand_in(lowering, group)
    if faults:
        raise StageError(*dict.fromkeys(faults))
    for name in summary.outputs:
        _finish_output(lowering, name)
    lowered = lowering.writer.model(model, _values(model, summary.inputs), _values(model, summary.outputs))
    return Lowered(
        model=lowered,
        certificates=tuple(lowering.certificates),
        provenance=trace(lowering, lowered),
        float_nodes=tuple(lowering.float_nodes),
        outputs={name: lowering.outputs[name] for name in summary.outputs},
        tables=tuple(lowering.tables),
    )


def lower_group(lowering: Lowering, group: FusionGroup) -> None:
    """One group by its kernel, or in float (listed) where its precision or operators ask for it."""
    facts = lowering.parameters.groups.get(group.name)
    if facts is None:
        raise StageError(
            Fault(
                what="the parameters do not hold this group",
                where=group.name,
                hint="parameters and graph.json belong to different builds; run calibrate again",
            )
        )
    kernel = KERNELS.get(group.kind)
    if facts.precision in ("float16", "float32"):
        lower_float(lowering, group, f"{facts.precision} group ({facts.why})")
    elif kernel is None or any(lowering.summary.tensors[name].dtype != "float32" for name in group.outputs):
        lower_float(lowering, group, "no integer kernel: " + ", ".join(n.op_type for n in lowering.group_nodes(group)))
    else:
        try:
            kernel(lowering, group)
        except NoIntegerKernelError as reason:
            lower_float(lowering, group, f"no integer kernel: {reason}")


def trace(lowering: Lowering, lowered: onnx.ModelProto) -> tuple[Provenance, ...]:
    """Where each tensor of the optimised graph stands in the new one."""
    alive = {name for node in lowered.graph.node for name in node.output}
    alive.update(value.name for value in lowered.graph.input)
    entries = []
    for tensor in lowering.summary.tensors:
        if lowering.constant(tensor) is not None:
            continue
        forms = {form: name for form, name in lowering.forms.held(tensor).items() if name in alive}
        facts = lowering.parameters.tensors.get(tensor)
        if facts is not None and "quantized" in forms:
            entry = Provenance(
                old=tensor, new=forms["quantized"], relation="scaled", factor=facts.scale, zero_point=facts.zero_point
            )
        elif facts is not None and "centred" in forms:
            entry = Provenance(old=tensor, new=forms["centred"], relation="scaled", factor=facts.scale)
        elif "real" in forms or tensor in alive:
            entry = Provenance(old=tensor, new=forms.get("real", tensor), relation="same")
        else:
            entry = Provenance(old=tensor, new="", relation="gone")
        entries.append(entry)
    return tuple(entries)


def _stand_in(lowering: Lowering, group: FusionGroup) -> None:
    """After a fault: let later groups find the outputs, so that their faults are found too; the result is dropped."""
    for name in group.outputs:
        if not lowering.forms.held(name):
            lowering.forms.put(name, "real", name)


def _finish_output(lowering: Lowering, name: str) -> None:
    """Make the model output ``name`` as float32, where no kernel has made it under its name."""
    held = lowering.forms.held(name)
    if name in lowering.initializers:  # given out as it is; the layers that read it have theirs
        stored = lowering.initializers[name]
        lowering.writer.keep_constant(stored)
        dtype = str(helper.tensor_dtype_to_np_dtype(stored.data_type))
        lowering.outputs[name] = OutputFact(integer="", dtype=dtype, scale=(), zero_point=0, axis=0)
        return
    if name in lowering.outputs or held.get("real") == name:
        lowering.outputs.setdefault(name, OutputFact(integer="", dtype="float32", scale=(), zero_point=0, axis=0))
        return
    if not held.keys() & {"quantized", "centred"}:
        lowering.writer.node("Identity", [lowering.forms.real(name)], name, name)
        lowering.outputs[name] = OutputFact(integer="", dtype="float32", scale=(), zero_point=0, axis=0)
        return
    facts = lowering.forms.parameters(name)
    integer = lowering.forms.quantized(name)
    inputs = [
        integer,
        lowering.writer.constant(np.float32(facts.scale), f"{name}/scale"),
        lowering.writer.constant(NUMPY_TYPES[facts.dtype](facts.zero_point), f"{name}/zero_point"),
    ]
    lowering.writer.node("DequantizeLinear", inputs, name, name)
    lowering.outputs[name] = OutputFact(
        integer=integer, dtype=facts.dtype, scale=(facts.scale,), zero_point=facts.zero_point, axis=0
    )


def _values(model: onnx.ModelProto, names: tuple[str, ...]) -> list[onnx.ValueInfoProto]:
    """Inputs and outputs as in the old model."""
    known = {value.name: value for value in (*model.graph.input, *model.graph.output)}
    return [known[name] if name in known else helper.make_empty_tensor_value_info(name) for name in names]
