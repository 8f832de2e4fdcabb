"""Reference toolchain: the forms of its contract and of ``verify``'s record, for ``wellformed``. Data only."""

from __future__ import annotations

from npubake.toolchains.wellformed import PICTURES, REMOVED, RUNTIME, TENSOR, Each, Maybe

CONTRACT = {
    "version": int,
    "platform": {"platform": str},
    "platform_tail": str,
    "exact": bool,
    "float_nodes": list,
    "inputs": [{**TENSOR, "kind": str, "plane": str, "model_input": str}],
    "outputs": [TENSOR],
    "runtime_inputs": Each(RUNTIME),
    "removed": [REMOVED],
    "preprocessing": Maybe(PICTURES),
    "model": {"sha256": str},
}
VERIFIED = {"deployable_sha256": str, "recorded_sha256": str, "runs": [dict]}
