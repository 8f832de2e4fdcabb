"""Room ``graph``: ONNX files. Bytes enter, a ``ModelProto`` leaves, and back; the same model gives the same bytes.

An artifact is one file, so weights kept beside a model (external data) are refused with what to do. A protobuf message
cannot be larger than 2 GiB (2**31 - 1 bytes, protobuf encoding documentation), and neither can such a file.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from npubake.errors import Fault, RecipeError, StageError

MAX_PROTOBUF_BYTES = 2**31 - 1


def parse_model(data: bytes, where: str = "model") -> onnx.ModelProto:
    """The model in ``data``. Raises RecipeError if the bytes are no ONNX model or its weights lie in other files."""
    if len(data) > MAX_PROTOBUF_BYTES:
        raise RecipeError(_too_large(where, len(data)))
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        what = f"these {len(data)} bytes do not parse as an ONNX model ({error})"
        raise RecipeError(_not_onnx(where, what)) from error
    if not model.HasField("graph") or not model.graph.node:
        raise RecipeError(_not_onnx(where, "the file holds no graph"))
    faults = [
        Fault(
            what=f"initialiser {tensor.name!r} keeps its values in another file",
            where=where,
            hint="load it beside that file and save it in one: onnx.save_model(onnx.load(path), one_file)",
        )
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    ]
    if faults:
        raise RecipeError(*faults)
    return model


def load_model(path: Path) -> onnx.ModelProto:
    """The model in the file ``path``; raises what ``parse_model`` raises."""
    return parse_model(path.read_bytes(), path.name)


def serialise(model: onnx.ModelProto) -> bytes:
    """Bytes of ``model``, the same for equal models. Raises StageError above 2 GiB."""
    size = model.ByteSize()
    if size > MAX_PROTOBUF_BYTES:
        raise StageError(_too_large("", size))
    return bytes(model.SerializeToString(deterministic=True))


def save_model(model: onnx.ModelProto, path: Path) -> None:
    """Write ``model`` to ``path``; raises StageError above 2 GiB."""
    path.write_bytes(serialise(model))


def _too_large(where: str, size: int) -> Fault:
    what = f"the model takes {size} bytes; one protobuf file holds at most {MAX_PROTOBUF_BYTES}"
    return Fault(what=what, where=where, hint="models above 2 GiB are not supported; split it or reduce its weights")


def _not_onnx(where: str, what: str) -> Fault:
    hint = "point model.path at a file written by an ONNX exporter"
    return Fault(what=what, where=where, path="$.model.path", hint=hint)
