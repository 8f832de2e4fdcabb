"""Room ``graph``: ONNX files. Bytes enter, a ``ModelProto`` leaves, and back; the same model gives the same bytes.

An artifact is one file: weights that a source keeps in other files (external data) are taken into it. A protobuf
message cannot be larger than 2 GiB (2**31 - 1 bytes, protobuf encoding documentation), and neither can such a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from npubake.errors import Fault, RecipeError, StageError
from npubake.graph.damage import damage, tensor_bytes
from npubake.graph.nesting import every_graph
from npubake.graph.other_formats import other_format

MAX_PROTOBUF_BYTES = 2**31 - 1
_AGAIN = "the model is damaged: save it again, for example with onnx.save_model and save_as_external_data=True"


def parse_model(data: bytes, where: str = "model", weights: Mapping[str, Path] | None = None) -> onnx.ModelProto:
    """The model in ``data``, its values from other files taken in; weights: those files, by the model's names of them.

    Raises RecipeError if the bytes are no ONNX model, or all exceeds 2 GiB, or with every tensor whose values are not
    where it says: no such file, one that is too short, a place that is none.
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
    found = {_entries(tensor).get("location", "") for tensor in _external(model)}
    names = sorted(name for name in found if isinstance(name, str))  # bytes where it is no UTF-8: ``damage`` tells it
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
        what, hint = _take_values(tensor, weights)
        if what:
            faults.append(Fault(what=what, where=where, path="$.model.path", hint=hint))
    if faults:
        raise RecipeError(*faults)


def _take_values(tensor: onnx.TensorProto, weights: Mapping[str, Path]) -> tuple[str, str]:
    """Read the values of one tensor, in place; (what stands against it, what to do), or two empty texts."""
    entries, size = _entries(tensor), tensor_bytes(tensor)
    name = entries.get("location", "")
    places = {key: entries[key] for key in ("offset", "length") if entries.get(key)}
    bad = [f"{key} {text!r}" for key, text in places.items() if not (text.isascii() and text.isdecimal())]
    if bad:
        what = f"{tensor.name!r} keeps its values in {name!r} at {' and '.join(bad)}, which is no number of bytes"
        return what, _AGAIN
    stated = int(places.get("length", 0)) or size  # 0 is what some writers put for all of the file
    if stated != size:
        return f"{tensor.name!r} keeps {stated} bytes in {name!r}, its sizes {list(tensor.dims)} need {size}", _AGAIN
    if name not in weights:
        return f"{tensor.name!r} keeps its values in {name!r}, which was not given", "put that file beside the model"
    offset = int(places.get("offset", 0))
    with weights[name].open("rb") as file:
        held = file.seek(0, os.SEEK_END)
        if offset + size > held:
            place = f"{size} bytes from {offset}"
            what = f"{name!r} ends after {held} bytes, before the values of {tensor.name!r} ({place})"
            return what, "copy model and data again, together"
        file.seek(offset)
        tensor.raw_data = file.read(size)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]
    return "", ""


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
