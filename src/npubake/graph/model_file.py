"""Room ``graph``: ONNX files. Bytes enter, a ``ModelProto`` leaves, and back; the same model gives the same bytes.

An artifact is one file: weights that a source keeps in other files (external data) are taken into it. A protobuf
message cannot be larger than 2 GiB (2**31 - 1 bytes, protobuf encoding documentation), and neither can such a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from npubake.errors import Fault, RecipeError, StageError
from npubake.graph.damage import damage, tensor_bytes
from npubake.graph.nesting import every_graph
from npubake.graph.other_formats import other_format

MAX_PROTOBUF_BYTES = 2**31 - 1


def parse_model(data: bytes, where: str = "model", weights: Mapping[str, Path] | None = None) -> onnx.ModelProto:
    """The model in ``data``, its values from other files taken in; weights: those files, by the model's names of them.

    Raises RecipeError if the bytes are no ONNX model, or a file is not there or too short, or all exceeds 2 GiB.
    """
    if len(data) > MAX_PROTOBUF_BYTES:
        raise RecipeError(_too_large(where, len(data)))
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise RecipeError(_not_onnx(where, data, f"it does not parse ({error})")) from error
    broken = damage(model)
    if broken:
        raise RecipeError(_not_onnx(where, data, f"the file is damaged: {broken}"))
    if not model.HasField("graph") or not model.graph.node:
        raise RecipeError(_not_onnx(where, data, "it holds no graph"))
    _take_in(model, where, weights or {})
    return model


def external_files(data: bytes, paths: Sequence[Path]) -> dict[str, Path]:
    """The files that keep values of the model in ``data`` by the model's names of them. paths: sorted by those names;
    where their number is another one, no name is known, and ``parse_model`` says which files are missing.
    """
    if not paths:
        return {}
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return {}
    names = sorted({_entries(tensor).get("location", "") for tensor in _external(model)})
    return dict(zip(names, paths, strict=True)) if len(names) == len(paths) else {}


def _external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in every_graph(model.graph):
        attributes = (entry for node in graph.node for entry in node.attribute)
        inside = (tensor for entry in attributes for tensor in (entry.t, *entry.tensors))
        for tensor in (*graph.initializer, *inside):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                yield tensor


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _take_in(model: onnx.ModelProto, where: str, weights: Mapping[str, Path]) -> None:
    """Read the values that lie in other files, in place. Raises RecipeError with every fault."""
    tensors = list(_external(model))
    total = model.ByteSize() + sum(tensor_bytes(tensor) for tensor in tensors)
    if tensors and total > MAX_PROTOBUF_BYTES:
        raise RecipeError(_too_large(where, total))
    faults = []
    for tensor in tensors:
        entries = _entries(tensor)
        name, offset, size = entries.get("location", ""), int(entries.get("offset", "0")), tensor_bytes(tensor)
        if name not in weights:
            what = f"{tensor.name!r} keeps its values in {name!r}, which was not given"
            faults.append(Fault(what=what, where=where, path="$.model.path", hint="put that file beside the model"))
            continue
        with weights[name].open("rb") as file:
            file.seek(offset)
            values = file.read(size)
        if len(values) != size:
            what = f"{name!r} ends before the values of {tensor.name!r} ({size} bytes from {offset})"
            hint = "copy model and data again, together"
            faults.append(Fault(what=what, where=where, path="$.model.path", hint=hint))
            continue
        tensor.raw_data = values
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    if faults:
        raise RecipeError(*faults)


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


def _not_onnx(where: str, data: bytes, what: str) -> Fault:
    kind = other_format(data)
    if kind:
        what = f"this is {kind}, no ONNX model"
        hint = "point model.path at a file written by an ONNX exporter"
    else:
        what = f"these {len(data)} bytes are no ONNX model: {what}"
        hint = "point model.path at a file written by an ONNX exporter; one that was copied may be cut short"
    return Fault(what=what, where=where, path="$.model.path", hint=hint)
