"""Qualcomm toolchain: spellings that keep the compiler from fusions that it computes wrongly. Operations are edited.

Behind layers of planes (Conv, pools) the compiler makes one kernel of x * Sigmoid(x), and one of Softplus, at 16 bits.
Beyond eight rows it takes wrong rows, without a word: whole blocks of the result are another's (20 dB at 12 x 12,
8 dB at 40 x 7). At optimization 2 and 3 it was found in planes of 9 to 12 rows, and of more rows and up to 8 columns,
and in none of 92 others; at optimization 1 in all. (tests/qualcomm/test_misfusing.py)
A Sigmoid that reads its operand through a conversion is not fused; a Softplus of three axes is another kernel. Both
cost time (a detector whose SiLUs are all kept apart: half as much again, by the compiler's estimate), so that planes
which are fused rightly stay as they are.
A Softmax that is spelt out, Exp(x) / ReduceSum(Exp(x)), loses its zero point at 16 bits (-15 dB): its last node reads
through conversions, too. x * Tanh(x), also as a part of Mish and Gelu, takes wrong rows over exactly 16 (0 dB).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from math import prod

import numpy as np
import onnx
from onnx import helper

from npubake.toolchains.qualcomm.adapting.operations import Form, Operation, Spelling
from npubake.toolchains.qualcomm.adapting.operators import demanded_grid

_RIGHT_ROWS = 8  # of a plane, up to which the fused kernels are right
_RIGHT_SIDES = 16  # rows and columns, beyond which they are right, too, but at optimization 1: 12 and 8, and room
_PLANES = 4  # axes of [N, C, H, W]
_UNTILED = 1  # optimization that does not cut planes
_WRONG_ROWS = 16  # of a Tanh that a Mul reads; 9 to 15, 17 to 40 and others are right
_SPELT_OUT = "at 16 bits the HTP makes a Softmax of it and forgets the zero point of what it makes"
_SIXTEEN_ROWS = "at 16 bits the HTP takes wrong rows of x * Tanh(x) over 16 rows"
_WHY = "at 16 bits the HTP takes wrong rows where it makes one kernel of "


def keep_apart(made: Spelling, shapes: Mapping[str, tuple[int, ...]], held: Set[str], optimization: int) -> None:
    """Edit ``made``: every 16-bit Sigmoid beside its Mul, Softplus, Tanh and spelt-out Softmax, where the compiler
    would go wrong. shapes: of tensors; held: those of 16 bits; optimization: what the compiler will be asked for.
    """
    wide, readers = _wide_tensors(made, held), made.readers()
    makers = {name: each.node for each in made.operations for name in each.node.output if name}
    operations = list[Operation]()
    for operation in made.operations:
        node = operation.node
        source = node.input[0] if node.input else ""
        shape = _shape(source, made.like, shapes)
        sixteen = operation.integer and not wide.isdisjoint((source, node.output[0]))
        wrong = sixteen and fused_wrongly(shape, optimization)
        if wrong and node.op_type == "Sigmoid" and _gates(operation, readers):
            what = f"{node.op_type} reads {source} by a conversion of its own"
            made.forms.append(Form(node=node.name, what=what, why=f"{_WHY}x * Sigmoid(x)"))
            operations.append(replace(operation, apart=True))
        elif wrong and node.op_type == "Softplus":
            made.forms.append(Form(node=node.name, what="Softplus of three axes", why=f"{_WHY}it and a layer before"))
            operations += _reshaped(made, operation, (*shape[:2], prod(shape[2:])), shape)
        elif sixteen and node.op_type == "Tanh" and prod(shape[:-1]) == _WRONG_ROWS:
            made.forms.append(Form(node=node.name, what="Tanh of one row", why=_SIXTEEN_ROWS))
            operations += _reshaped(made, operation, (1, prod(shape)), shape)
        elif sixteen and node.op_type == "Div" and _normalises(node, makers):
            what = f"{node.op_type} reads {source} by a conversion of its own"
            made.forms.append(Form(node=node.name, what=what, why=_SPELT_OUT))
            operations.append(replace(operation, apart=True))
        else:
            operations.append(operation)
    made.operations = operations


def fused_wrongly(shape: tuple[int, ...], optimization: int) -> bool:
    """Whether planes of a shape are among those in which wrong rows are taken; () is none."""
    if len(shape) < _PLANES or max(shape[1:]) <= _RIGHT_ROWS:
        return False
    return optimization == _UNTILED or len(shape) > _PLANES or min(shape[2:]) <= _RIGHT_SIDES


def _wide_tensors(made: Spelling, held: Set[str]) -> set[str]:
    """Tensors that have 16 bits, or may."""
    touched = [each.node for each in made.operations if each.integer and each.bits == 16]
    return set(held).union(*([*node.input, *node.output] for node in touched))


def _shape(name: str, like: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """() for what has none here."""
    while name not in shapes and name in like:
        name = like[name]
    return shapes.get(name, ())


def _gates(sigmoid: Operation, readers: Mapping[str, list[Operation]]) -> bool:
    """Whether a Mul multiplies the result with what the Sigmoid read."""
    source, result = sigmoid.node.input[0], sigmoid.node.output[0]
    return any(each.node.op_type == "Mul" and source in each.node.input for each in readers.get(result, ()))


def _normalises(division: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> bool:
    """Whether an Exp is divided by its own sum."""
    above, below = (makers.get(name) for name in division.input)
    if above is None or below is None or (above.op_type, below.op_type) != ("Exp", "ReduceSum"):
        return False
    return bool(below.input[0] == division.input[0])


def _reshaped(made: Spelling, operation: Operation, form: tuple[int, ...], shape: tuple[int, ...]) -> list[Operation]:
    """An operation of one tensor, of another shape inside."""
    node = operation.node
    name, source, result = node.name, node.input[0], node.output[0]
    rows, rough = f"{name}/rows", f"{name}/of_rows"
    made.constants[f"{name}/rows_shape"] = np.array(form, np.int64)
    made.constants[f"{name}/shape"] = np.array(shape, np.int64)
    made.like[rows] = source
    demanded = demanded_grid(node.op_type, 16)
    if demanded is None:
        made.like[rough] = result
    else:
        made.like[rough] = rows  # float32 as it is; the grid is its own
        made.grids[rough] = demanded
    nodes = [
        helper.make_node("Reshape", [source, f"{name}/rows_shape"], [rows], name=f"{name}/ToRows"),
        helper.make_node(node.op_type, [rows], [rough], name=name),
        helper.make_node("Reshape", [rough, f"{name}/shape"], [result], name=f"{name}/FromRows"),
    ]
    return [replace(operation, node=each) for each in nodes]
