"""Room ``graph``: files that parse and are damaged nevertheless. A message enters, what is broken in it leaves.

Protobuf checks neither that a name is text nor that a tensor holds as many values as its sizes say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx
from google.protobuf.message import Message
from onnx import TensorProto

_PAIRED: dict[int, int] = {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4}  # bits: two a byte
_NARROW: dict[int, int] = _PAIRED | {
    TensorProto.INT2: 2,
    TensorProto.UINT2: 2,
    TensorProto.FLOAT6E2M3: 6,
    TensorProto.FLOAT6E3M2: 6,
}
KNOWN_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def damage(model: onnx.ModelProto) -> str:
    """The first thing found broken, as a sentence; '' for a sound model."""
    return next(_broken(model), "")


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes of a tensor's values in raw form; types below 8 bits are packed."""
    whole: int = 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    bits = _NARROW.get(tensor.data_type, whole)
    return -(-int(math.prod(tensor.dims)) * bits // 8)


def _broken(message: Message) -> Iterator[str]:
    """Walks every message; the values of tensors are not copied."""
    if isinstance(message, TensorProto):
        yield from _tensor(message)
        return
    try:
        fields = message.ListFields()
    except UnicodeDecodeError:
        yield f"a text in a {message.DESCRIPTOR.name} is no UTF-8"
        return
    for field, value in fields:
        if field.type == field.TYPE_STRING:
            texts = value if field.is_repeated else (value,)
            if not all(isinstance(text, str) for text in texts):
                yield f"{field.name} of a {message.DESCRIPTOR.name} is no UTF-8"
        elif field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                yield from _broken(inner)


def _tensor(tensor: TensorProto) -> Iterator[str]:
    try:
        named = isinstance(tensor.name, str)
        placed = all(isinstance(text, str) for entry in tensor.external_data for text in (entry.key, entry.value))
    except UnicodeDecodeError:
        named = placed = False
    if not named:
        yield "the name of a tensor is no UTF-8"
    elif not placed:
        yield f"the file that tensor {tensor.name!r} keeps its values in has a name that is no UTF-8"
    elif tensor.data_type not in KNOWN_TYPES:
        yield f"tensor {tensor.name!r} is of the unknown type {tensor.data_type}"
    elif any(size < 0 for size in tensor.dims):
        yield f"tensor {tensor.name!r} has a negative size"
    elif tensor.data_location != TensorProto.EXTERNAL and tensor.data_type != TensorProto.STRING:
        held, due = len(tensor.raw_data), tensor_bytes(tensor)
        if tensor.HasField("raw_data") and held != due:
            yield f"tensor {tensor.name!r} holds {held} bytes where its sizes {list(tensor.dims)} need {due}"
        elif not tensor.HasField("raw_data") and (tensor.data_type in _PAIRED or tensor.data_type not in _NARROW):
            yield from _typed(tensor)


def _typed(tensor: TensorProto) -> Iterator[str]:
    """Values kept one by one in the field of their type; complex ones as pairs, narrow ones packed."""
    count = math.prod(tensor.dims)
    counts = {len(getattr(tensor, name)) for name in _FIELDS} - {0} or {0}
    pairs = tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
    due = {2 * count if pairs else -(-count // 2) if tensor.data_type in _PAIRED else count}
    if counts != due:
        yield f"tensor {tensor.name!r} holds {max(counts)} values where its sizes {list(tensor.dims)} need {max(due)}"
