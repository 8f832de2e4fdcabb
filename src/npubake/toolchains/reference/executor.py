"""Reference toolchain: runs a package, reading nothing else. Dense arrays or strided buffers go in and come out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from npubake.errors import Fault, StageError
from npubake.fixedpoint.colour import RuntimeInput
from npubake.graph.execution import RUNTIME_ERRORS
from npubake.layout.edges import from_edge, to_edge
from npubake.layout.runtime_input import encode
from npubake.layout.strides import pack, unpack
from npubake.toolchains.reference.contract import layout_of
from npubake.toolchains.reference.package_file import Package

Arrays = dict[str, NDArray[Any]]
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
    """A package ready to run. ``contract`` is the package's own."""

    def __init__(self, package: Package, *, threads: int = 1) -> None:
        self.contract = package.contract
        self._inputs = {entry["name"]: layout_of(entry) for entry in self.contract["inputs"]}
        self._outputs = {entry["name"]: layout_of(entry) for entry in self.contract["outputs"]}
        self._specs = {
            name: RuntimeInput.from_facts(name, entry) for name, entry in self.contract["runtime_inputs"].items()
        }
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
        faults = [
            Fault(where=name, what="no such input", hint=f"inputs: {', '.join(self._inputs)}")
            for name in tensors
            if name not in self._inputs
        ]
        for name, layout in self._inputs.items():
            found = "nothing" if name not in tensors else f"{tensors[name].dtype} {list(tensors[name].shape)}"
            wanted = f"{layout.dtype} {list(layout.valid_shape)}"
            if found != wanted:
                faults.append(Fault(where=name, what=f"the input takes {wanted}, it got {found}"))
        if faults:
            raise StageError(*faults)
        names = list(self._outputs)
        return dict(zip(names, self._session.run(names, dict(tensors)), strict=True))

    def run_buffers(self, buffers: Mapping[str, NDArray[np.uint8]]) -> Buffers:
        """As a board does it: uint8 buffers of the aligned byte size in and out, elements at the contract's strides."""
        tensors = {
            name: unpack(buffer, self._inputs[name]) if name in self._inputs else buffer
            for name, buffer in buffers.items()
        }
        return {name: pack(value, self._outputs[name]) for name, value in self.run(tensors).items()}

    @property
    def images(self) -> frozenset[str]:
        """Model inputs that take pixels."""
        return frozenset(name for name, spec in self._specs.items() if spec.type != "featuremap")

    def encode(self, values: Mapping[str, NDArray[Any]]) -> Arrays:
        """What the board's camera side makes of model inputs: uint8 pixels [H, W, C] (RGB or grey) become the runtime's
        tensors; other inputs are handed through.
        """
        tensors: Arrays = {}
        for name, value in values.items():
            if name in self.images:
                spec = self._specs[name]
                tensors |= encode(spec, value[..., ::-1] if spec.channels == "bgr" else value)
            else:
                tensors[name] = value
        return tensors

    def peel(self, tensors: Mapping[str, NDArray[Any]]) -> Arrays:
        """Runtime tensors in the form that the model takes after removals at its inputs."""
        return {name: to_edge(array, self._removed(name, "inputs")) for name, array in tensors.items()}

    def restore(self, outputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Outputs in the form they had before removals: real values where the edge gives integers."""
        return {name: from_edge(array, self._removed(name, "outputs")) for name, array in outputs.items()}

    def pack_inputs(self, tensors: Mapping[str, NDArray[Any]]) -> Buffers:
        return {name: pack(value, self._inputs[name]) for name, value in tensors.items()}

    def unpack_outputs(self, buffers: Mapping[str, NDArray[np.uint8]]) -> Arrays:
        return {name: unpack(buffer, self._outputs[name]) for name, buffer in buffers.items()}

    def _removed(self, tensor: str, side: str) -> list[Mapping[str, Any]]:
        return [entry for entry in self.contract["removed"] if entry["tensor"] == tensor and entry["side"] == side]


def run_values(executor: Executor, values: Mapping[str, NDArray[Any]], *, real: bool = True) -> Arrays:
    """Run one example. values: by runtime tensor name (dense, as the contract says), or by model input name (RGB or
    grey pixels, uint8 [H, W, C], for image inputs; float32 otherwise). real: outputs as real values, else as a board's.
    """
    taken = {entry["name"]: (entry["dtype"], entry["valid_shape"]) for entry in executor.contract["inputs"]}
    ready = {name: value for name, value in values.items() if taken.get(name) == (str(value.dtype), list(value.shape))}
    rest = {name: value for name, value in values.items() if name not in ready}
    outputs = executor.run({**executor.peel(executor.encode(rest)), **ready})
    return executor.restore(outputs) if real else outputs


def run_package(path: Path, values: Mapping[str, NDArray[Any]], *, threads: int = 1, real: bool = True) -> Arrays:
    """Open a package file and run one example, as ``run_values`` does."""
    return run_values(Executor(Package.open(path), threads=threads), values, real=real)
