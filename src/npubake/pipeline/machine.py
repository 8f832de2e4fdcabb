"""Pipeline: facts about this machine, recorded beside a result, never hashed into a key. /proc in, JSON values out."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path

_TOLD = {  # the instruction sets by which numerical libraries choose their kernels (x86-64 and aarch64 names)
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2",
}  # fmt: skip


@functools.cache
def machine() -> dict[str, object]:
    """Architecture, CPU model, instruction sets, CPU count, Python and system."""
    fields: dict[str, str] = {}
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else ():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return {
        "arch": platform.machine(),
        "cpu": fields.get("model name") or fields.get("CPU part") or "",
        "features": sorted(flags & _TOLD),
        "cpus": os.cpu_count() or 1,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }
