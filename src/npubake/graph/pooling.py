"""Room ``graph``: windows of pooling, by ONNX Runtime's rule for rounding up. Numbers and one node at a time.

ONNX's shape inference counts a last window that starts behind the input and its first padding; the runtime, like
PyTorch, leaves it out. Where the two differ the sizes of everything behind would be wrong, so import settles them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from npubake.graph.editing import attribute
from npubake.graph.inference import static_shape, without_graph_body
from npubake.graph.weighted import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One axis: sizes of the input, the kernel (dilated), the stride, both paddings; count: places of the window;
    dropped: rounding up would give one more, which starts behind the input.
    """

    size: int
    kernel: int
    stride: int
    before: int
    behind: int
    count: int
    dropped: bool

    def inside(self) -> Array:
        """How many elements of the input lie under the window, at each place."""
        starts = np.arange(self.count) * self.stride - self.before
        covered: Array = np.minimum(starts + self.kernel, self.size) - np.maximum(starts, 0)
        return covered.astype(np.float64)

    @property
    def usable(self) -> bool:
        """Whether explicit padding can say it: less than one kernel, and not negative."""
        return 0 <= self.behind < self.kernel


def windows(node: onnx.NodeProto, sizes: Sequence[int]) -> list[Window]:
    """The windows of a MaxPool or AveragePool without auto_pad over ``sizes``, one for each axis."""
    return [_window(node, axis, size) for axis, size in enumerate(sizes)]


def state_padding(node: onnx.NodeProto, found: Sequence[Window], count: bool) -> None:
    """Write the padding of ``found`` into ``node`` in place of rounding up; count: an average counts it."""
    dropped = ("pads", "ceil_mode", *(("count_include_pad",) if count else ()))
    kept = [entry for entry in node.attribute if entry.name not in dropped]
    del node.attribute[:]
    node.attribute.extend(kept)
    pads = [window.before for window in found] + [window.behind for window in found]
    node.attribute.append(helper.make_attribute("pads", pads))
    if count:
        node.attribute.append(helper.make_attribute("count_include_pad", 1))


def settle_rounded_pools(model: onnx.ModelProto) -> None:
    """Let the shape inference agree with the runtime: where it would count a window more, say the padding, in place.
    What the source states of the sizes behind is forgotten then: it may have them from that inference.
    """
    settled = False
    for index, node in enumerate(model.graph.node):
        if node.op_type not in ("MaxPool", "AveragePool") or not attribute(node, "ceil_mode", 0):
            continue
        if attribute(node, "auto_pad", "NOTSET") != "NOTSET":
            continue
        sizes = _sizes_before(model, index, node.input[0])
        if sizes is None or (node.op_type == "AveragePool" and attribute(node, "count_include_pad", 0)):
            continue
        found = windows(node, sizes[2:])
        if any(window.dropped for window in found) and all(window.usable for window in found):
            state_padding(node, found, count=False)
            settled = True
    if settled:
        del model.graph.value_info[:]
        for value in model.graph.output:
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()


def _sizes_before(model: onnx.ModelProto, index: int, tensor: str) -> tuple[int, ...] | None:
    """Sizes of what the nodes before ``index`` make; what the source states of it is not trusted."""
    part = without_graph_body(model)
    part.graph.node.extend(model.graph.node[:index])
    part.graph.initializer.extend(model.graph.initializer)
    del part.graph.output[:]
    part.graph.output.append(helper.make_empty_tensor_value_info(tensor))
    inferred = onnx.shape_inference.infer_shapes(part, data_prop=True).graph
    known = {value.name: static_shape(value) for value in (*inferred.output, *inferred.value_info, *inferred.input)}
    return known.get(tensor)


def _window(node: onnx.NodeProto, axis: int, size: int) -> Window:
    up = bool(attribute(node, "ceil_mode", 0))
    spatial = len(attribute(node, "kernel_shape", []))
    pads = attribute(node, "pads", [0] * 2 * spatial)
    stride = int(attribute(node, "strides", [1] * spatial)[axis])
    dilation = int(attribute(node, "dilations", [1] * spatial)[axis])
    kernel = (int(attribute(node, "kernel_shape", [])[axis]) - 1) * dilation + 1
    before, behind = int(pads[axis]), int(pads[axis + spatial])
    steps = (size + before + behind - kernel) / stride
    count = (math.ceil(steps) if up else math.floor(steps)) + 1
    dropped = up and (count - 1) * stride >= size + before
    count -= int(dropped)
    reach = (count - 1) * stride + kernel - size - before
    behind = max(reach, 0) if up else behind
    return Window(size=size, kernel=kernel, stride=stride, before=before, behind=behind, count=count, dropped=dropped)
