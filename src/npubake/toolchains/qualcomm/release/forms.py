"""Qualcomm toolchain: the forms of its contract and of ``verify_htp``'s record, for ``wellformed``. Data only."""

from __future__ import annotations

from npubake.toolchains.wellformed import PICTURES, REMOVED, RUNTIME, TENSOR, Each, Maybe

_EDGE = {**TENSOR, "scale": Maybe([(int, float)]), "zero_point": Maybe(int)}
_FILE = {"name": str, "sha256": str, "bytes": int}
CONTRACT = {
    "version": range(1, 2),  # those that this npubake reads
    "toolchain": {"name": {"qualcomm"}},
    "platform": {"platform": str, "soc_model": str},
    "inputs": [{**_EDGE, "kind": str, "plane": str, "model_input": str}],
    "outputs": [{**_EDGE, "model_output": str}],
    "runtime_inputs": Each(RUNTIME),
    "removed": [REMOVED],
    "preprocessing": Maybe(PICTURES),
    "files": {"wrapper": _FILE, "binary": _FILE},
    "htp": {"graph": str},
    "build": {"qnn": str, "qnn_build_id": str},
    "cpu_nodes": [str],
}
VERIFIED = {"wrapper_sha256": str, "binary_sha256": str, "recorded_sha256": str, "runs": [dict]}
