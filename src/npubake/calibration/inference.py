"""calibration: a float session that hands out chosen tensors. The only module of this room that knows onnx.

Sessions run with ORT_ENABLE_ALL (making a tensor an output already blocks the fusions across it), sequentially, with a
set number of threads that do not spin, and with ONNX Runtime's own QDQ fusions off: a fake-quantised model is computed
as it is written, since the fused integer kernels are not exact on every CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from npubake.errors import Fault, StageError

Session = Any  # onnxruntime has no types


class TensorSession:
    """A model that gives the values of named tensors, graph inputs left out. One example at a time.

    tensors: the names wanted; those that the model does not compute are refused with StageError. (An output may be an
    input or a constant as it is.)
    """

    def __init__(self, path: Path, tensors: Iterable[str], threads: int) -> None:
        model = onnx.load(path)
        computed = {name for node in model.graph.node for name in node.output}
        self.tensors = tuple(dict.fromkeys(tensors))
        outputs = {value.name: value for value in model.graph.output}
        unknown = [name for name in self.tensors if name not in computed and name not in outputs]
        if unknown:
            raise StageError(Fault(what=f"the model does not compute {', '.join(unknown[:5])}", where=path.name))
        del model.graph.output[:]
        model.graph.output.extend(outputs.get(name) or onnx.ValueInfoProto(name=name) for name in self.tensors)
        self._session: Session = open_session(model, path.name, threads)

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Values of the tensors for one example. StageError where the feeds do not fit the model."""
        if not self.tensors:
            return {}
        try:
            values = self._session.run(list(self.tensors), dict(feeds))
        except (
            onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
            onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,
            onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            ValueError,
        ) as error:
            raise StageError(Fault(what=f"the model cannot run on this example: {error}")) from error
        return dict(zip(self.tensors, (np.asarray(value) for value in values), strict=True))


def computed_tensors(path: Path) -> tuple[str, ...]:
    """Names of all tensors that the nodes of a model compute, in their order."""
    model = onnx.load(path, load_external_data=False)
    return tuple(name for node in model.graph.node for name in node.output if name)


def output_dtypes(path: Path) -> dict[str, str]:
    """The model's outputs in order, and the numpy name of each one's dtype."""
    return _dtypes(onnx.load(path, load_external_data=False).graph.output)


def input_dtypes(path: Path) -> dict[str, str]:
    """The model's inputs in order, constants left out, and the numpy name of each one's dtype."""
    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    return _dtypes(value for value in graph.input if value.name not in constants)


def _dtypes(values: Iterable[onnx.ValueInfoProto]) -> dict[str, str]:
    kinds = {value.name: onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in values}
    return {name: kind.name for name, kind in kinds.items()}


def open_session(model: Any, where: str, threads: int) -> Session:
    """A session over a ``ModelProto``; StageError, naming ``where``, if ONNX Runtime cannot load it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except (
        onnxruntime.capi.onnxruntime_pybind11_state.Fail,
        onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
        onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
        onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,
    ) as error:
        raise StageError(Fault(what=f"ONNX Runtime cannot load the model: {error}", where=where)) from error
