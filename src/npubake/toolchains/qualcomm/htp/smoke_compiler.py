"""Qualcomm toolchain: the smoke compile, in a process of its own (``python -m``): versions or the error out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import parser

from npubake.toolchains.process import serve
from npubake.toolchains.qualcomm.htp import context_reader
from npubake.toolchains.qualcomm.htp.htp_compiler import compile_here
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, MODEL

_ONE_OPERATOR = """
<ir_version: 10, opset_import: ["" : 21]>
smoke (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }
"""
_PROVIDER = {"soc_model": "77", "htp_graph_finalization_optimization_mode": "1", "enable_htp_prepare_only": "1"}


def compile_one(_request: Mapping[str, Any]) -> dict[str, Any]:
    """``error``, '' where it compiled; ``tools``; ``build_id``."""
    model: onnx.ModelProto = parser.parse_model(_ONE_OPERATOR)
    Path(MODEL).write_bytes(model.SerializeToString())
    made = compile_here({"provider": _PROVIDER, "strict": True, "reasons": False})
    build = "" if made["error"] else context_reader.answer({"binaries": [BINARY]})["parts"][0]["build_id"]
    return {"error": made["error"], "tools": made["tools"], "build_id": build}


if __name__ == "__main__":
    serve(compile_one)
