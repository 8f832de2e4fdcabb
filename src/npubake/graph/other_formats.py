"""Room ``graph``: files that are given as a model and are none. The first bytes enter, what they are leaves.

Signatures from the formats' own specifications.
"""

from __future__ import annotations

_PREFIXES: tuple[tuple[int, bytes, str], ...] = (  # place of the mark, the mark, what bears it
    (0, b"version https://git-lfs", "a pointer of Git LFS in place of the file ('git lfs pull' fetches it)"),
    (0, b"PK\x03\x04", "a zip archive: a PyTorch or Keras file, or a packed model"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (4, b"ORTM", "a model in ONNX Runtime's own format"),
    (0, b"GGUF", "a GGUF file"),
    (0, b"\x89HDF\r\n", "an HDF5 file, as Keras writes it"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"<?xml", "an XML file, as OpenVINO writes it"),
    (8, b'{"', "a safetensors file: weights without a graph"),
    (0, b"\x80\x02", "a Python pickle, as older PyTorch writes it"),
    (0, b"\x80\x03", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"\x80\x05", "a Python pickle"),
)
HEAD = 512  # bytes that decide; a web page names itself within them


def other_format(data: bytes) -> str:
    """What the file is, with its article; '' where nothing is recognised."""
    head = data[:HEAD]
    if not data:
        return "an empty file"
    if not head.strip(b"\0"):
        return "a file that begins with nothing but zero bytes, as a broken copy leaves it"
    if not head.strip(b"\0 \r\n\t"):
        return "a blank file"
    text = head.lstrip().lower()
    if text.startswith(b"<!doctype") or b"<html" in text:
        return "a web page"
    return next((name for place, mark, name in _PREFIXES if head[place : place + len(mark)] == mark), "")
