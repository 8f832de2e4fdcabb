"""Reference toolchain: runs a package, reading nothing else. Dense arrays or strided buffers go in and come out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from npubake.errors import Fault, StageError
from npubake.graph.execution import RUNTIME_ERRORS
from npubake.layout.strides import pack, unpack
from npubake.toolchains.board_edges import Arrays, BoardEdges
from npubake.toolchains.reference.contract import layout_of
from npubake.toolchains.reference.package_file import Package

Buffers = dict[str, NDArray[np.uint8]]


def open_session(model: bytes, threads: int, *, optimise: bool) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session on the CPU. optimise: its graph rewriting on or off; integer models answer the same.

    Quantise-dequantise fusion stays off in both: it would round float nodes' weights anew.
    """
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Executor:
    """A package ready to run. ``contract`` is the package's own; ``edges``: the application's side of it."""

    def __init__(self, package: Package, *, threads: int = 1) -> None:
        self.contract = package.contract
        self._inputs = {entry["name"]: layout_of(entry) for entry in self.contract["inputs"]}
        self._outputs = {entry["name"]: layout_of(entry) for entry in self.contract["outputs"]}
        self.edges = BoardEdges(self.contract)
        try:
            self._session = open_session(package.model, threads, optimise=True)
        except RUNTIME_ERRORS as error:
            hint = "the package was changed, or this ONNX Runtime is too old for it"
            raise StageError(Fault(where="model.onnx", what=f"it cannot be loaded: {error}", hint=hint)) from error
        self._know_edges()

    def _know_edges(self) -> None:
        """Raises StageError where the contract names other inputs and outputs than the model has."""
        hint = "the package was put together from two builds; build it again"
        faults = [
            Fault(where=f"contract.json: {side}", what=f"the contract names {said}, the model has {held}", hint=hint)
            for side, said, held in (
                ("inputs", list(self._inputs), [value.name for value in self._session.get_inputs()]),
                ("outputs", list(self._outputs), [value.name for value in self._session.get_outputs()]),
            )
            if said != held
        ]
        if faults:
            raise StageError(*faults)

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> Arrays:
        """Dense runtime tensors in, dense outputs out. Raises StageError, all faults at once, for a wrong feed."""
        self.edges.require(tensors)
        names = list(self._outputs)
        return dict(zip(names, self._session.run(names, dict(tensors)), strict=True))

    def run_buffers(self, buffers: Mapping[str, NDArray[np.uint8]]) -> Buffers:
        """As a board does it: uint8 buffers of the aligned byte size in and out, elements at the contract's strides."""
        tensors = {
            name: unpack(buffer, self._inputs[name]) if name in self._inputs else buffer
            for name, buffer in buffers.items()
        }
        return {name: pack(value, self._outputs[name]) for name, value in self.run(tensors).items()}

    def pack_inputs(self, tensors: Mapping[str, NDArray[Any]]) -> Buffers:
        return {name: pack(value, self._inputs[name]) for name, value in tensors.items()}

    def unpack_outputs(self, buffers: Mapping[str, NDArray[np.uint8]]) -> Arrays:
        return {name: unpack(buffer, self._outputs[name]) for name, buffer in buffers.items()}


def run_values(executor: Executor, values: Mapping[str, NDArray[Any]], *, real: bool = True) -> Arrays:
    """Run one example. values: by runtime tensor name (dense, as the contract says), or by model input name (RGB or
    grey pixels, uint8 [H, W, C], for image inputs; float32 otherwise). real: outputs as real values, else as a board's.
    """
    outputs = executor.run(executor.edges.taken(values))
    return executor.edges.restore(outputs) if real else outputs


def run_package(path: Path, values: Mapping[str, NDArray[Any]], *, threads: int = 1, real: bool = True) -> Arrays:
    """Open a package file and run one example, as ``run_values`` does."""
    return run_values(Executor(Package.open(path), threads=threads), values, real=real)
