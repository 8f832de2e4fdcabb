"""Qualcomm toolchain: names of the files through which processes of the compiler and the emulator are spoken to."""

from __future__ import annotations

MODEL, LOG = "model.onnx", "log.jsonl"  # what is compiled; what the compiler said, a JSON string a line
WRAPPER, BINARY = "model_ctx.onnx", "model_ctx_qnn.bin"  # fixed: the wrapper names the binary, by its file name


def file_name(example: int, tensor: int, side: str) -> str:
    """Of one array. tensor: its place among the request's names; side: ``in`` or ``out``."""
    return f"{example:05d}.{tensor}.{side}.npy"


def done_name(example: int) -> str:
    """Stands for an example whose outputs are whole."""
    return f"{example:05d}.done"
