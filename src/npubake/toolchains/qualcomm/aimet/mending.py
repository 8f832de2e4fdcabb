"""Qualcomm toolchain: AIMET's QDQ model without the fusions that the compiler computes wrongly (adapting/misfusing.py).

Where a node must read through a conversion of its own, a quantiser of nearly the same grid is put before it, in both
models that are measured and compiled. Pure; the model that enters is untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npubake.errors import Fault, StageError
from npubake.graph.naming import all_names, fresh_name
from npubake.toolchains.qualcomm.adapting.grids import Grid, set_apart
from npubake.toolchains.qualcomm.adapting.misfusing import keep_apart
from npubake.toolchains.qualcomm.adapting.operations import Form, Operation, Spelling

_WIDE = (TensorProto.UINT16, TensorProto.INT16)
_QUANTISERS = ("QuantizeLinear", "DequantizeLinear")


def mend(quantised: onnx.ModelProto, optimization: int) -> tuple[onnx.ModelProto, list[Form]]:
    """The model, and what was spelt otherwise. quantised: with inferred shapes, in this project's names; optimization:
    that the compiler will be asked for.

    Raises StageError for nodes that have no other form here, all at once.
    """
    model = onnx.ModelProto()
    model.CopyFrom(quantised)
    held = {each.name: each for each in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    wide = {_float_name(name, makers) for name, node in makers.items() if _is_wide(node, held)}
    spelling = Spelling(
        operations=[_bare(node, makers) for node in model.graph.node if node.op_type not in _QUANTISERS]
    )
    keep_apart(spelling, _shapes(model), wide, optimization)
    apart = {each.node.name for each in spelling.operations if each.apart}
    faults = [_fault(form) for form in spelling.forms if form.node not in apart]
    if faults:
        raise StageError(*faults)
    _Conversions(model=model, held=held, makers=makers, names=all_names(model)).insert(apart)
    return model, spelling.forms


def _fault(form: Form) -> Fault:
    hint = "take 'quantiser: npubake', which spells it otherwise, or a lane of 8 bits"
    return Fault(what=f"{form.why}: AIMET's model has no other form of it", where=form.node, hint=hint)


def _float_name(name: str, makers: Mapping[str, onnx.NodeProto]) -> str:
    """The tensor behind quantisers, by the name of what its maker writes."""
    while name in makers and makers[name].op_type in _QUANTISERS:
        name = makers[name].input[0]
    return name


def _is_wide(node: onnx.NodeProto, held: Mapping[str, TensorProto]) -> bool:
    typed = node.op_type in _QUANTISERS and len(node.input) > 2 and node.input[2] in held
    return typed and held[node.input[2]].data_type in _WIDE


def _bare(node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> Operation:
    """A node as it reads float tensors."""
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    bare.input[:] = [_float_name(name, makers) for name in node.input]
    return Operation(node=bare, integer=True)


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = model.graph
    known = (*graph.input, *graph.value_info, *graph.output)
    return {each.name: tuple(side.dim_value for side in each.type.tensor_type.shape.dim) for each in known}


@dataclass(slots=True, kw_only=True)
class _Conversions:
    """Quantisers that are put before nodes. held: initialisers; names: all that are taken."""

    model: onnx.ModelProto
    held: Mapping[str, TensorProto]
    makers: Mapping[str, onnx.NodeProto]
    names: set[str]
    made: list[onnx.NodeProto] = field(default_factory=list)

    def insert(self, readers: Iterable[str]) -> None:
        """Before the nodes of these names."""
        for node in self.model.graph.node:
            if node.name in readers:
                node.input[:] = [self._converted(name) for name in node.input]
            self.made.append(node)
        nodes = list(self.made)
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)

    def _converted(self, name: str) -> str:
        """What a node reads in place of an activation; a constant as it is."""
        maker = self.makers.get(name)
        if maker is None or maker.op_type != "DequantizeLinear" or maker.input[0] in self.held:
            return name
        scale, zero = (numpy_helper.to_array(self.held[each]) for each in maker.input[1:3])
        wish = f"{_float_name(name, self.makers)}/apart"
        steps = self._constant(f"{wish}/scale", _apart(float(scale)))
        codes, seen = fresh_name(f"{wish}/quantized", self.names), fresh_name(f"{wish}/dequantized", self.names)
        for op_type, source, result in (("QuantizeLinear", name, codes), ("DequantizeLinear", codes, seen)):
            label = fresh_name(f"{wish}/{op_type}", self.names)
            self.made.append(helper.make_node(op_type, [source, steps, maker.input[2]], [result], name=label))
        assert zero.ndim == 0 or zero.size == 1, name  # activations have one scale
        return seen

    def _constant(self, wish: str, value: np.float32) -> str:
        name = fresh_name(wish, self.names)
        self.model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name


def _apart(scale: float) -> np.float32:
    return np.float32(set_apart(Grid(dtype="uint16", scale=scale, zero_point=0, by="fixed")).scale)
