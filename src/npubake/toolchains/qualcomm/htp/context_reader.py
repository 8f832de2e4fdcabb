"""Qualcomm toolchain: what a context binary says of itself, in a process of its own (``python -m``).

Asks ``libQnnSystem.so`` through ctypes (``QnnSystemInterface_getProviders``, ``systemContextGetBinaryInfo``), as
``qnn-context-binary-utility`` of the SDK does. In the folder that it runs in: the binaries that ``request.json`` names
(``binaries``: file names). The answer: ``parts``, in their order.

The structures are those of QNN's public headers ``QnnSystemContext.h``, ``QnnTypes.h`` and ``QnnSystemInterface.h``
(API 1.15, build 2.51); their version fields are read first, and one that is not known here is refused: never guessed.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime_qnn

from npubake.errors import Fault, StageError
from npubake.toolchains.process import serve
from npubake.toolchains.qualcomm.htp.metadata import DTYPES

_INFO_VERSION = 3  # QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3
_HARDWARE_VERSION = 1  # QNN_SYSTEM_CONTEXT_HTP_HW_INFO_BLOB_VERSION_V1
_GRAPH_VERSIONS = (1, 2, 3)  # each begins with the fields of the one before
_TENSOR_VERSIONS = (1, 2)
_DEFINED = 1  # QNN_DEFINITION_DEFINED
_SCALE_OFFSET = 0  # QNN_QUANTIZATION_ENCODING_SCALE_OFFSET
_WRONG_BINARY = 30010  # QNN_SYSTEM_CONTEXT_ERROR of bytes that are no context binary, or not a whole one
_MOST = 4096  # tensors or graphs that a count may name: more is damage, not a model

# Qnn_DataType_t -> its name.
DATA_TYPES: Mapping[int, str] = {
    0x008: "INT_8",
    0x016: "INT_16",
    0x032: "INT_32",
    0x064: "INT_64",
    0x108: "UINT_8",
    0x116: "UINT_16",
    0x132: "UINT_32",
    0x164: "UINT_64",
    0x216: "FLOAT_16",
    0x232: "FLOAT_32",
    0x308: "SFIXED_POINT_8",
    0x316: "SFIXED_POINT_16",
    0x332: "SFIXED_POINT_32",
    0x408: "UFIXED_POINT_8",
    0x416: "UFIXED_POINT_16",
    0x432: "UFIXED_POINT_32",
    0x508: "BOOL_8",
}


class _Version(c.Structure):
    _fields_ = (("major", c.c_uint32), ("minor", c.c_uint32), ("patch", c.c_uint32))


class _ScaleOffset(c.Structure):
    _fields_ = (("scale", c.c_float), ("offset", c.c_int32))


class _BlockwiseAxis(c.Structure):  # the largest member of the union: it fixes its size
    _fields_ = (
        ("bitwidth", c.c_uint32),
        ("axis", c.c_int32),
        ("elements", c.c_uint32),
        ("scales", c.c_void_p),
        ("offsets", c.c_void_p),
    )


class _Encoding(c.Union):
    _fields_ = (("scale_offset", _ScaleOffset), ("blockwise_axis", _BlockwiseAxis))


class _Quantization(c.Structure):
    _fields_ = (("definition", c.c_uint32), ("encoding", c.c_uint32), ("value", _Encoding))


class _Memory(c.Structure):
    _fields_ = (("data", c.c_void_p), ("size", c.c_uint32))


_TENSOR_1 = (
    ("id", c.c_uint32),
    ("name", c.c_char_p),
    ("type", c.c_uint32),
    ("format", c.c_uint32),
    ("data_type", c.c_uint32),
    ("quantization", _Quantization),
    ("rank", c.c_uint32),
    ("dimensions", c.POINTER(c.c_uint32)),
    ("memory_type", c.c_uint32),
    ("memory", _Memory),
)


class _TensorBody(c.Structure):  # version 2: version 1 and what this reader does not ask for
    _fields_ = (
        *_TENSOR_1,
        ("dynamic", c.c_void_p),
        ("sparse", c.c_uint32 * 3),
        ("produced", c.c_uint8),
    )


class _Tensor(c.Structure):
    _fields_ = (("version", c.c_uint32), ("body", _TensorBody))


class _GraphBody(c.Structure):  # version 3
    _fields_ = (
        ("name", c.c_char_p),
        ("input_count", c.c_uint32),
        ("inputs", c.POINTER(_Tensor)),
        ("output_count", c.c_uint32),
        ("outputs", c.POINTER(_Tensor)),
        ("updateable_count", c.c_uint32),
        ("updateable", c.c_void_p),
        ("blob_size", c.c_uint32),
        ("blob", c.c_void_p),
        ("start", c.c_uint32),
        ("end", c.c_uint32),
    )


class _Graph(c.Structure):
    _fields_ = (("version", c.c_uint32), ("body", _GraphBody))


class _HardwareInfo(c.Structure):  # QnnHtpSystemContext_HwBlobInfo: version 1
    _fields_ = (("version", c.c_uint32), ("dsp_arch", c.c_uint32))


class _Info(c.Structure):  # Qnn_SystemContext binary info, version 3
    _fields_ = (
        ("backend_id", c.c_uint32),
        ("build_id", c.c_char_p),
        ("core_api", _Version),
        ("backend_api", _Version),
        ("soc_version", c.c_char_p),
        ("blob_version", _Version),
        ("blob_size", c.c_uint64),
        ("context_tensor_count", c.c_uint32),
        ("context_tensors", c.c_void_p),
        ("graph_count", c.c_uint32),
        ("graphs", c.POINTER(_Graph)),
        ("platform", c.c_void_p),
        ("metadata_size", c.c_uint32),
        ("metadata", c.POINTER(_HardwareInfo)),
        ("soc_model", c.c_uint32),
    )


class _BinaryInfo(c.Structure):
    _fields_ = (("version", c.c_uint32), ("body", _Info))


class _System(c.Structure):
    _fields_ = (
        ("backend_id", c.c_uint32),
        ("name", c.c_char_p),
        ("version", _Version),
        ("create", c.CFUNCTYPE(c.c_uint64, c.POINTER(c.c_void_p))),
        (
            "get_binary_info",
            c.CFUNCTYPE(
                c.c_uint64,
                c.c_void_p,
                c.c_void_p,
                c.c_uint64,
                c.POINTER(c.POINTER(_BinaryInfo)),
                c.POINTER(c.c_uint64),
            ),
        ),
        ("get_metadata", c.c_void_p),
        ("free", c.CFUNCTYPE(c.c_uint64, c.c_void_p)),
    )


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """``parts``: what each of ``binaries`` says. Raises StageError for one that is no whole context binary."""
    system = _system()
    return {"parts": [_read(system, Path(name).read_bytes(), name) for name in request["binaries"]]}


def _system() -> _System:
    try:
        library = c.CDLL(str(Path(onnxruntime_qnn.LIB_DIR_FULL_PATH) / "libQnnSystem.so"))
    except OSError as error:
        hint = "pip install --force-reinstall 'npubake[qualcomm]'"
        raise StageError(Fault(what=f"it cannot be loaded: {error}", where="libQnnSystem.so", hint=hint)) from error
    found = c.POINTER(c.POINTER(_System))()
    count = c.c_uint32()
    library.QnnSystemInterface_getProviders.restype = c.c_uint64
    status = library.QnnSystemInterface_getProviders(c.byref(found), c.byref(count))
    if status or not count.value:
        raise _damaged("libQnnSystem.so offers no interface", int(status))
    system: _System = found[0].contents
    return system


def _read(system: _System, data: bytes, name: str) -> dict[str, Any]:
    handle = c.c_void_p()
    status = system.create(c.byref(handle))
    if status:
        raise _damaged("libQnnSystem.so makes no context", status)
    held = c.create_string_buffer(data, len(data))  # the structures point into it
    info, size = c.POINTER(_BinaryInfo)(), c.c_uint64()
    try:
        status = system.get_binary_info(handle, c.addressof(held), len(data), c.byref(info), c.byref(size))
        if status or not info:
            raise _damaged(f"{name} is no whole context binary", status)
        if info.contents.version != _INFO_VERSION:
            raise _unknown("binary info", info.contents.version, (_INFO_VERSION,))
        return _facts(info.contents.body)
    finally:
        system.free(handle)


def _facts(info: _Info) -> dict[str, Any]:
    return {
        "soc_model": info.soc_model,
        "arch": _arch(info),
        "build_id": _text(info.build_id),
        "core_api": _version(info.core_api),
        "backend_api": _version(info.backend_api),
        "blob_version": _version(info.blob_version),
        "blob_bytes": info.blob_size,
        "graphs": [_graph(info.graphs[i]) for i in range(_count(info.graph_count))],
    }


def _arch(info: _Info) -> str:
    """The HTP architecture that the binary is for, ``v73``. Only the HTP backend writes it, in a blob of 8 bytes."""
    if info.metadata_size != c.sizeof(_HardwareInfo) or not info.metadata:
        raise _unknown("blob about the hardware", info.metadata_size, (c.sizeof(_HardwareInfo),))
    hardware = info.metadata.contents
    if hardware.version != _HARDWARE_VERSION:
        raise _unknown("blob about the hardware", hardware.version, (_HARDWARE_VERSION,))
    return f"v{hardware.dsp_arch}"


def _graph(graph: _Graph) -> dict[str, Any]:
    if graph.version not in _GRAPH_VERSIONS:
        raise _unknown("graph info", graph.version, _GRAPH_VERSIONS)
    body = graph.body
    return {
        "name": _text(body.name),
        "inputs": [_tensor(body.inputs[i]) for i in range(_count(body.input_count))],
        "outputs": [_tensor(body.outputs[i]) for i in range(_count(body.output_count))],
    }


def _tensor(tensor: _Tensor) -> dict[str, Any]:
    if tensor.version not in _TENSOR_VERSIONS:
        raise _unknown("tensor", tensor.version, _TENSOR_VERSIONS)
    body = tensor.body
    kind = DATA_TYPES.get(body.data_type, f"0x{body.data_type:x}")
    scaled = body.quantization.definition == _DEFINED and body.quantization.encoding == _SCALE_OFFSET
    return {
        "name": _text(body.name),
        "dtype": DTYPES.get(kind, "unknown"),
        "qnn_dtype": kind,
        "shape": [body.dimensions[i] for i in range(_count(body.rank))],
        "scale": body.quantization.value.scale_offset.scale if scaled else None,
        "offset": body.quantization.value.scale_offset.offset if scaled else None,
    }


def _count(value: int) -> int:
    if value > _MOST:
        raise _damaged(f"a count of {value} in a context binary", 0)
    return value


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", errors="replace")


def _version(version: _Version) -> str:
    return f"{version.major}.{version.minor}.{version.patch}"


def _damaged(what: str, status: int) -> StageError:
    code = status & 0xFFFF
    said = f" (QNN error {code})" if code else ""
    hint = "it is cut off or damaged: compile again" if code == _WRONG_BINARY else "compile again"
    return StageError(Fault(what=what + said, hint=hint))


def _unknown(what: str, found: int, known: tuple[int, ...]) -> StageError:
    hint = f"this version of npubake reads {', '.join(map(str, known))}: use the locked version of onnxruntime-qnn"
    return StageError(Fault(what=f"the {what} of the context binary has version {found}", hint=hint))


if __name__ == "__main__":
    serve(answer)
