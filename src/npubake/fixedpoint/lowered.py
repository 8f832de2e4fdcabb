"""Room ``fixedpoint``: what a lowering answers with. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import onnx

from npubake.graph.summary import Provenance

Tail = Literal["int32", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Why one group's integers are the same on every CPU and thread count.

    group: its name; kernel: what was chosen; bound: a number that no intermediate magnitude exceeds, from the constants
    and the limits of the input types; exact: the inequality on ``bound`` that makes the kernel exact, in words.
    """

    group: str
    kernel: str
    bound: int
    exact: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatNode:
    """A group that computes in floating point. tolerance: relative, of one output element between two CPUs, given
    equal inputs (``docs/arithmetic.md``); why: ``float16 group``, ``no integer kernel: ...``.
    """

    group: str
    nodes: tuple[str, ...]
    precision: Literal["float16", "float32"]
    tolerance: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFact:
    """What stands before the last node of a model output: ``real = scale * (q - zero_point)``.

    integer: the tensor that remains when the node ``<output>/DequantizeLinear`` is removed, '' where the output is
    float from the start; dtype: its numpy name; scale: one value, or one a channel along ``axis``; zero_point: of
    ``integer``.
    """

    integer: str
    dtype: str
    scale: tuple[float, ...]
    zero_point: int
    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFact:
    """One lookup table. entries: how many; max_error: largest |table - function| in real units over the inputs whose
    value lies in the output's range; max_error_lsb: the same in steps of the output (0.5 is correct rounding);
    saturated: entries whose value lies outside of it.
    """

    group: str
    function: str
    entries: int
    max_error: float
    max_error_lsb: float
    saturated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """An integer model and its explanation. ``outputs``: by model output name."""

    model: onnx.ModelProto
    certificates: tuple[Certificate, ...]
    provenance: tuple[Provenance, ...]
    float_nodes: tuple[FloatNode, ...]
    outputs: Mapping[str, OutputFact]
    tables: tuple[TableFact, ...]
