"""tuning: a model computed piece by piece over many examples, so that constants may be chosen as layers are reached.

Between two pieces only those tensors are held that something ahead still reads. Each piece is a session of its own over
the nodes between two places; together they compute every node once for every example.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npubake.calibration.inference import open_session
from npubake.graph.nesting import captured
from npubake.graph.summary import GraphSummary

Values = dict[str, NDArray[Any]]


class Stream:
    """``model`` (nodes in order of computation) over ``feeds``. constants: stand for initialisers, and may be changed
    until a piece that reads them has run.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        feeds: Sequence[Mapping[str, NDArray[Any]]],
        constants: Mapping[str, NDArray[Any]],
        threads: int,
    ) -> None:
        self.constants = dict(constants)
        self.live: list[Values] = [dict(example) for example in feeds]
        self._model = model
        self._nodes = list(model.graph.node)
        self._place = {node.name: index for index, node in enumerate(self._nodes)}
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._last_read = {name: index for index, node in enumerate(self._nodes) for name in _reads(node)}
        self._threads = threads
        self._at = 0

    def advance(self, node: str) -> None:
        """Compute everything in front of the node of this name; nodes already computed stay computed."""
        end = self._place[node]
        if end > self._at:
            self._run(end)

    def _run(self, end: int) -> None:
        nodes = self._nodes[self._at : end]
        made = dict.fromkeys(name for node in nodes for name in node.output if name)
        read = dict.fromkeys(name for node in nodes for name in _reads(node) if name not in made)
        kept = [name for name in made if self._last_read.get(name, -1) >= end]
        inputs = [name for name in read if name in self.live[0]]
        if kept:
            session = open_session(self._piece(nodes, inputs, read, kept), "piece", self._threads)
            for values in self.live:
                values.update(zip(kept, session.run(kept, {name: values[name] for name in inputs}), strict=True))
        self._at = end
        for values in self.live:
            for name in [name for name in values if self._last_read.get(name, -1) < end]:
                del values[name]

    def _piece(
        self, nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], read: Mapping[str, None], outputs: Sequence[str]
    ) -> onnx.ModelProto:
        piece = onnx.ModelProto()
        piece.ir_version = self._model.ir_version
        piece.opset_import.extend(self._model.opset_import)
        piece.functions.extend(self._model.functions)
        graph = piece.graph
        graph.name = "piece"
        graph.node.extend(nodes)
        for name in inputs:
            value = self.live[0][name]
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            graph.input.append(helper.make_tensor_value_info(name, kind, value.shape))
        for name in read:
            if name in self.constants:
                graph.initializer.append(numpy_helper.from_array(np.asarray(self.constants[name], order="C"), name))
            elif name in self._stored:
                graph.initializer.append(self._stored[name])
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return piece


def _reads(node: onnx.NodeProto) -> list[str]:
    """What a node reads, graphs inside it included."""
    return [name for name in (*node.input, *captured(node)) if name]


def values_of(
    model: onnx.ModelProto, tensors: Sequence[str], feeds: Iterable[Mapping[str, NDArray[Any]]], threads: int
) -> Iterator[Values]:
    """What the float ``model`` makes of each example in turn, by tensor; graph inputs are among the answers."""
    fed = {value.name for value in model.graph.input}
    computed = [name for name in dict.fromkeys(tensors) if name not in fed]
    session = open_session(exposing(model, computed), "float model", threads) if computed else None
    for example in feeds:
        found = session.run(computed, dict(example)) if session is not None else []
        yield {**example, **dict(zip(computed, found, strict=True))}


def exposing(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """A copy of ``model`` whose outputs are ``tensors``."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors)
    return copy


def peak_bytes(summary: GraphSummary) -> int:
    """Most bytes of float tensors that one example holds at once between two nodes of the optimised graph."""
    last = {name: index for index, node in enumerate(summary.nodes) for name in node.inputs}
    held: dict[str, int] = {name: _bytes(summary, name) for name in summary.inputs}
    peak = sum(held.values())
    for index, node in enumerate(summary.nodes):
        held.update({name: _bytes(summary, name) for name in node.outputs if name})
        peak = max(peak, sum(held.values()))
        held = {name: size for name, size in held.items() if last.get(name, -1) > index}
    return peak


def _bytes(summary: GraphSummary, name: str) -> int:
    fact = summary.tensors[name]
    return int(np.prod(fact.shape, dtype=np.int64)) * np.dtype(fact.dtype).itemsize
