"""Qualcomm toolchain: one compile, in a process of its own (``python -m``): a model in, a wrapper and a binary out.

In the folder that it runs in: ``model.onnx`` and ``request.json`` (``provider``: options of the execution provider;
``strict``: no node may stay on the CPU; ``reasons``: keep also what only verbose loggers are told). It leaves
``model_ctx.onnx``, ``model_ctx_qnn.bin``, ``trace/``, ``profile.csv``, ``log.jsonl`` and the answer: ``error``, what
onnxruntime raised or ''; ``tools``, versions.

The names are fixed and the model goes in as bytes, since the graph's name in the binary holds a hash of the model's
path, and the wrapper the binary's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxruntime.capi import onnxruntime_pybind11_state as refusals

from npubake.toolchains.process import serve
from npubake.toolchains.qualcomm.htp.htp_files import LOG, MODEL, WRAPPER
from npubake.toolchains.qualcomm.htp.session import Log, open_session, versions

# What onnxruntime raises for a model or an option that it does not take; all else is a bug and ends this process.
_REFUSED = (
    refusals.Fail,
    refusals.EPFail,
    refusals.InvalidArgument,
    refusals.InvalidGraph,
    refusals.InvalidProtobuf,
    refusals.NotImplemented,
    refusals.NoSuchFile,
    refusals.RuntimeException,
    RuntimeError,
)


def compile_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compile ``model.onnx`` of the working folder."""
    entries = {
        "ep.context_enable": "1",  # write the compiled graph
        "ep.context_file_path": WRAPPER,
        "ep.context_embed_mode": "0",  # the binary beside the wrapper, not in it
        "session.disable_cpu_ep_fallback": "1" if request["strict"] else "0",
    }
    error = ""
    with Path(LOG).open("w", encoding="utf-8") as kept:
        log = Log(reasons=request["reasons"], kept=kept)
        try:
            open_session(Path(MODEL).read_bytes(), provider=request["provider"], entries=entries, log=log)
        except _REFUSED as refused:
            error = str(refused)
        log.kept = None
    return {"error": error, "tools": versions()}


if __name__ == "__main__":
    serve(compile_here)
