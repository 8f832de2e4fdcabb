"""Qualcomm toolchain, SDK road: the two files by which qnn-context-binary-generator and qnn-net-run know the SoC. Pure.

The first names the library of backend extensions and the second; the second holds graphs and devices (documents
80-87189-2, genai_backend_extensions; 80-63442-10, htp_backend). Keys that the library does not know are ignored without
a word, a graph name that is not the graph's as well: so the SoC is read back from the binary.
"""

from __future__ import annotations

import json
from typing import Any

from npubake.errors import Fault, ToolchainError
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.qairt.flags import flags_of

OUTER, INNER = "context_config.json", "htp_config.json"


def outer_text(library: str) -> str:
    """``context_config.json``. library: path of libQnnHtpNetRunExtensions.so; the other file lies beside this one."""
    extensions = {"shared_library_path": library, "config_file_path": INNER}
    return json.dumps({"backend_extensions": extensions}, indent=1) + "\n"


def inner_text(platform: HtpPlatform, options: CompilerOptions, graph: str, version: str) -> str:
    """``htp_config.json`` of one SoC. graph: the name of the DLC or C++ file without its suffix, which is the graph's.

    Raises ToolchainError for a platform of two SoCs: no document says how this file would name them.
    """
    if len(platform.soc_models) != 1:
        hint = "name one platform a target, or take road: wheel, whose binary serves both"
        what = f"road: sdk makes a binary of one SoC, {platform.name} is several"
        raise ToolchainError(Fault(what=what, where=platform.name, hint=hint))
    settings: dict[str, Any] = {"graph_names": [graph], "O": options.optimization}
    if options.vtcm_mb:
        settings["vtcm_mb"] = options.vtcm_mb
    device = {"device_id": 0, flags_of(version).soc: platform.soc_models[0], "dsp_arch": platform.arch[0]}
    return json.dumps({"graphs": [settings], "devices": [device]}, indent=1) + "\n"
