"""Room ``fixedpoint``: elementwise functions by lookup. A group of kind ``table`` enters, GatherElements leaves.

1-D GatherElements with int32 indices is the fastest exact lookup of ONNX Runtime's CPU (Gather takes 5 to 10 times as
long); negative indices count from the end, so a table of signed values is rolled by half its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from npubake.fixedpoint.arithmetic import Array
from npubake.fixedpoint.functions import Step, supported
from npubake.fixedpoint.lowered import TableFact
from npubake.fixedpoint.lowering import Lowering, NoIntegerKernelError
from npubake.fixedpoint.tables import Table, function_table
from npubake.graph.summary import FusionGroup


def lower_table(lowering: Lowering, group: FusionGroup) -> None:
    """entry[q] = clamp(rhe(f(s_in * (q - zp_in)) / s_out))."""
    steps, source = function_steps(lowering, group)
    target = group.outputs[0]
    facts, out = lowering.forms.parameters(source), lowering.forms.parameters(target)
    table = function_table(steps, facts, out)
    record_table(lowering, group, table)
    shape = lowering.shape(target)
    if facts.dtype == "uint8":
        indices = lowering.writer.node("Cast", [lowering.forms.quantized(source)], target, to=TensorProto.INT32)
        entries = table.entries
    else:
        indices = lowering.writer.node("Cast", [lowering.forms.centred(source)], target, to=TensorProto.INT32)
        entries = np.roll(table.entries, len(table.entries) // 2)
    if out.dtype == "uint8":
        name = look_up(
            lowering, target, (entries + out.zero_point).astype(np.uint8), indices, (f"{target}/quantized", shape)
        )
        lowering.forms.put(target, "quantized", name)
    else:
        name = look_up(lowering, target, entries.astype(np.float32), indices, (f"{target}/integer", shape))
        lowering.forms.put(target, "centred", name)
    lowering.certify(
        group,
        f"GatherElements, {len(entries)} entries",
        len(entries),
        "a copy of table entries; every index lies in the table. Entries are correctly rounded",
    )


def record_table(lowering: Lowering, group: FusionGroup, table: Table) -> None:
    """Put the table's error bounds into the record."""
    lowering.tables.append(
        TableFact(
            group=group.name,
            function=group.function or "+".join(node.op_type for node in lowering.group_nodes(group)),
            entries=len(table.entries),
            max_error=table.max_error,
            max_error_lsb=table.max_error_lsb,
            saturated=table.saturated,
        )
    )


def look_up(lowering: Lowering, wish: str, entries: Array, indices: str, result: tuple[str, Sequence[int]]) -> str:
    """entries[indices], any shape of ``indices`` (int32); ``result`` = (name, shape)."""
    writer = lowering.writer
    name, shape = result
    flat = writer.constant(np.array([-1], np.int64), "flat")
    indices = writer.node("Reshape", [indices, flat], wish)
    data = writer.constant(entries, f"{wish}/table")
    values = writer.node("GatherElements", [data, indices], wish, axis=0)
    sizes = writer.constant(np.array(shape, np.int64), f"{wish}/shape")
    return writer.node("Reshape", [values, sizes], wish, writer.unique(name))


def function_steps(lowering: Lowering, group: FusionGroup) -> tuple[tuple[Step, ...], str]:
    """The nodes of ``group`` as a function of its one computed input, and that input's name."""
    sources = [name for name in group.inputs if lowering.constant(name) is None]
    if len(sources) != 1:
        raise NoIntegerKernelError(f"a function of {len(sources)} tensors")
    known = {sources[0]: 0}
    steps: list[Step] = []
    for node in lowering.group_nodes(group):
        if node.op_type == "Constant":
            continue
        if not supported(node.op_type):
            raise NoIntegerKernelError(f"no table for {node.op_type}")
        operands = [_operand(lowering, name, known) for name in node.input]
        steps.append(
            Step(
                op_type=node.op_type,
                operands=tuple(value for value, _ in operands),
                is_constant=tuple(constant for _, constant in operands),
                attributes=_attributes(node),
            )
        )
        known[node.output[0]] = len(steps)
    if known.get(group.outputs[0]) != len(steps):
        raise NoIntegerKernelError("a function whose last node does not make its output")
    return tuple(steps), sources[0]


def _operand(lowering: Lowering, name: str, known: dict[str, int]) -> tuple[int | float | None, bool]:
    if not name:
        return None, True
    if name in known:
        return known[name], False
    value = lowering.constant(name)
    if value is None or value.size != 1:
        raise NoIntegerKernelError(f"{name} is no constant with one element")
    return float(value.reshape(-1)[0]), True


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    found = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}
