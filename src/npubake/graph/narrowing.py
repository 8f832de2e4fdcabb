"""Room ``graph``: models in double precision as float32. A model enters, one that was compared with it leaves.

No kernel of ours computes in float64, and no NPU. Values are rounded to float32 once; then both models run on the same
random inputs, and every output must agree. ONNX Runtime has no float64 kernel of some operators (Conv), and none of old
opsets: then onnx's own evaluator runs them, which is slow and has them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from npubake.errors import Fault, RecipeError
from npubake.graph.editing import Array, attribute
from npubake.graph.execution import RUNTIME_ERRORS, evaluate, random_feeds, run_model
from npubake.graph.nesting import every_graph
from npubake.graph.promotion import make_float32

_CLOSE = 1e-4  # of the largest output: some hundred roundings of float32 (2**-24 each) in a deep network
_HINT = "export the model in float32, and see that it is right"


def narrow_doubles(model: onnx.ModelProto, where: str) -> tuple[str, ...]:
    """Make every float64 tensor of ``model`` (static input sizes, sorted) float32, in place; returns their names.

    Raises RecipeError naming each constant beyond float32, and each output that changes.
    """
    faults = [fault for graph in every_graph(model.graph) for fault in _beyond(graph)]
    if faults:
        raise RecipeError(*faults)
    source = onnx.ModelProto()
    source.CopyFrom(model)
    narrowed = make_float32(model, (TensorProto.DOUBLE,))
    if narrowed:
        faults = _changed(source, model, where)
    if faults:
        raise RecipeError(*faults)
    return narrowed


def _beyond(graph: onnx.GraphProto) -> Iterator[Fault]:
    values = [(tensor.name, tensor) for tensor in graph.initializer]
    values += [
        (node.name, value) for node in graph.node if isinstance(value := attribute(node, "value", None), TensorProto)
    ]
    for name, tensor in values:
        if tensor.data_type != TensorProto.DOUBLE:
            continue
        value = numpy_helper.to_array(tensor)
        largest = float(np.abs(value[np.isfinite(value)]).max(initial=0.0))
        if largest > float(np.finfo(np.float32).max):
            what = f"constant {name!r} holds {largest:.3g}, beyond float32, which the model is brought to from float64"
            yield Fault(what=what, where=name, hint=_HINT)


def _changed(source: onnx.ModelProto, model: onnx.ModelProto, where: str) -> list[Fault]:
    """Outputs that differ on random inputs, or why that cannot be seen."""
    feeds = random_feeds(model, seed=0)
    wide = [value.name for value in source.graph.input if value.type.tensor_type.elem_type == TensorProto.DOUBLE]
    try:
        after = _run(model, feeds)
        before = _run(source, {**feeds, **{name: feeds[name].astype(np.float64) for name in wide}})
    except RUNTIME_ERRORS as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        what = f"the model does not run on random inputs, so its change to float32 cannot be verified: {line}"
        return [Fault(what=what, where=where, hint=_HINT)]
    return [
        Fault(
            what=f"output {name!r} changes when the model is brought from float64 to float32",
            where=name,
            hint=f"{_HINT}; what needs float64 belongs into the application",
        )
        for name, value in before.items()
        if not _agree(value, after[name])
    ]


def _run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    try:
        return run_model(model, feeds)
    except RUNTIME_ERRORS:
        return evaluate(model, feeds)


def _agree(before: Array, after: Array) -> bool:
    if before.shape != after.shape or before.dtype.kind != after.dtype.kind:
        return False
    if before.dtype.kind != "f":
        return bool((before == after).all())
    scale = float(np.abs(before[np.isfinite(before)]).max(initial=0.0))
    return bool(np.allclose(before, after, rtol=0.0, atol=_CLOSE * scale, equal_nan=True))
