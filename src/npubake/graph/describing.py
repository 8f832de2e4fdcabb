"""Room ``graph``: an ONNX file's inputs and outputs as plain data, for the text of a first recipe."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import helper

from npubake.errors import Fault, RecipeError
from npubake.graph.other_formats import HEAD, other_format

_EXPORT = "Name a file that an ONNX exporter wrote."


def tensor_facts(path: Path) -> tuple[list[tuple[str, tuple[int | str, ...], str]], ...]:
    """(inputs, outputs), each a list of (name, shape, numpy dtype name); an open dimension is its name or ``?``.

    Initialisers that are listed as inputs are left out. Raises RecipeError for a file that is no ONNX model.
    """
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except FileNotFoundError as error:
        hint = "Name the ONNX file; relative paths count from the current folder."
        raise RecipeError(Fault(what="there is no such file", where=str(path), hint=hint)) from error
    except (DecodeError, OSError) as error:
        raise RecipeError(Fault(what=_no_model(path, str(error)), where=str(path), hint=_EXPORT)) from error
    if not graph.node:
        raise RecipeError(Fault(what=_no_model(path, "it has no node"), where=str(path), hint=_EXPORT))
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [_fact(value) for value in graph.input if value.name not in constants]
    return inputs, [_fact(value) for value in graph.output]


def _no_model(path: Path, why: str) -> str:
    """What to say of a file that is no model: what it is, where that is recognised."""
    try:
        with path.open("rb") as stream:
            kind = other_format(stream.read(HEAD))
    except OSError:
        kind = ""
    return f"not an ONNX model: this is {kind}" if kind else f"not an ONNX model: {why}"


def _fact(value: onnx.ValueInfoProto) -> tuple[str, tuple[int | str, ...], str]:
    kind = value.type.tensor_type
    return value.name, tuple(_size(dim) for dim in kind.shape.dim), str(helper.tensor_dtype_to_np_dtype(kind.elem_type))


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    """-1 is how some exporters write a size that is not known."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or "?"
