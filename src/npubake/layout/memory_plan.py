"""Layout room: where the tensors of a model lie in one arena. Plain intervals in, offsets out; a model gives intervals.

A tensor lives from the node that makes it to the last node that reads it (graph inputs from the start, outputs to the
end). Placement: largest first, each at the best-fitting gap among the tensors that live at the same time (greedy by
size; Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, section 5.2). The peak is an
upper bound of the least possible; the largest sum of sizes alive at one step is a lower bound, and stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from npubake.errors import Fault, StageError
from npubake.layout.strides import align

# Operators whose output may stand on their input's bytes: nothing is moved.
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One buffer: alive from step ``first`` to step ``last``, both included; size in bytes."""

    name: str
    size: int
    first: int
    last: int

    def overlaps(self, other: Interval) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """An interval and its offset in the arena, in bytes."""

    interval: Interval
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """peak_bytes: arena size; lower_bound_bytes: most bytes alive at one step. placements: in order of first use."""

    peak_bytes: int
    lower_bound_bytes: int
    placements: tuple[Placement, ...]


def plan_memory(intervals: Sequence[Interval]) -> MemoryPlan:
    """Offsets for all intervals, the same for any order in which they are given."""
    placed: list[Placement] = []
    for interval in sorted(intervals, key=lambda entry: (-entry.size, entry.first, entry.name)):
        rivals = [entry for entry in placed if entry.interval.overlaps(interval)]
        placed.append(Placement(interval=interval, offset=_best_gap(interval.size, rivals)))
    peak = max((entry.offset + entry.interval.size for entry in placed), default=0)
    placed.sort(key=lambda entry: (entry.interval.first, entry.interval.name))
    return MemoryPlan(peak_bytes=peak, lower_bound_bytes=_most_alive(intervals), placements=tuple(placed))


def _best_gap(size: int, rivals: Sequence[Placement]) -> int:
    """Offset of the smallest gap between rivals that holds ``size`` bytes, else the end of the last rival."""
    end, best, smallest = 0, -1, math.inf
    for rival in sorted(rivals, key=lambda entry: entry.offset):
        gap = rival.offset - end
        if size <= gap < smallest:
            best, smallest = end, gap
        end = max(end, rival.offset + rival.interval.size)
    return best if best >= 0 else end


def _most_alive(intervals: Sequence[Interval]) -> int:
    changes: dict[int, int] = {}
    for interval in intervals:
        changes[interval.first] = changes.get(interval.first, 0) + interval.size
        changes[interval.last + 1] = changes.get(interval.last + 1, 0) - interval.size
    alive = most = 0
    for step in sorted(changes):
        alive += changes[step]
        most = max(most, alive)
    return most


def model_intervals(model: onnx.ModelProto, unit: int) -> list[Interval]:
    """Liveness of every computed tensor, sizes rounded up to ``unit`` bytes; views share their source's buffer.

    Constants are not counted: they lie with the code. Raises StageError, all tensors at once, where a shape is unknown.
    """
    sizes = _sizes(model, unit)
    end = len(model.graph.node)
    root = {value.name: value.name for value in model.graph.input}
    first = dict.fromkeys(root, 0)
    last = dict.fromkeys(root, 0)
    faults: list[Fault] = []
    for step, node in enumerate(model.graph.node):
        for name in node.input:
            if name in root:
                last[root[name]] = max(last[root[name]], step)
        for name in filter(None, node.output):
            if node.op_type in _VIEWS and node.input[0] in root:
                root[name] = root[node.input[0]]
                continue
            if name not in sizes:
                faults.append(Fault(where=node.name, what=f"the size of tensor {name!r} is not known"))
            root[name], first[name], last[name] = name, step, step
    if faults:
        raise StageError(*faults)
    for value in model.graph.output:
        if value.name in root:
            last[root[value.name]] = end
    return [Interval(name=name, size=sizes[name], first=first[name], last=last[name]) for name in first]


def _sizes(model: onnx.ModelProto, unit: int) -> dict[str, int]:
    """Aligned bytes of every tensor with a static shape, inferred where the model does not say it."""
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    graph = inferred.graph
    sizes: dict[str, int] = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        tensor = value.type.tensor_type
        if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            continue
        count = math.prod(dim.dim_value for dim in tensor.shape.dim)
        sizes[value.name] = align(count * helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize, unit)
    return sizes
