"""Qualcomm toolchain: what is said to the compiler, from a closed table: the provider's options. Pure.

The execution provider ignores an option that it does not know, clamps a size that is too large and takes any SoC for
HTP 68 when in doubt, all without a word (seen with onnxruntime-qnn 2.7.0). So every option that reaches it is one of
these, and every SoC one of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npubake.errors import Fault, PlatformError, RecipeError
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform

_MIB = 1 << 20
TRACE_FOLDER, TRACE_FILE, PROFILE = "trace", "qnn_op_trace.json", "profile.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Soc:
    """A system on chip that the compiler knows. name: its family's; arch: HTP architecture; vtcm_mb: vector memory."""

    name: str
    arch: str
    vtcm_mb: int


# QNN's soc_model -> SoC. Ids: QNN_SOC_MODEL_* of QnnTypes.h and the SoC list of Qualcomm AI Hub; arch: read back from a
# binary that QNN 2.51.0 made for each; vtcm_mb: what it reports for each. Other ids "compile" for HTP 68 or fail.
SOCS: Mapping[int, Soc] = {
    30: Soc(name="SM8350", arch="v68", vtcm_mb=4),
    36: Soc(name="SM8450", arch="v69", vtcm_mb=8),
    39: Soc(name="SA8295", arch="v68", vtcm_mb=8),
    42: Soc(name="SM8475", arch="v69", vtcm_mb=8),
    43: Soc(name="SM8550", arch="v73", vtcm_mb=8),
    52: Soc(name="SA8255", arch="v73", vtcm_mb=8),
    57: Soc(name="SM8650", arch="v75", vtcm_mb=8),
    60: Soc(name="SC8380XP", arch="v73", vtcm_mb=8),
    66: Soc(name="QCS8550", arch="v73", vtcm_mb=8),
    67: Soc(name="SA8620P", arch="v75", vtcm_mb=8),
    69: Soc(name="SM8750", arch="v79", vtcm_mb=8),
    77: Soc(name="QCS9100", arch="v73", vtcm_mb=8),
    82: Soc(name="QCS8300", arch="v75", vtcm_mb=8),
    87: Soc(name="SM8850", arch="v81", vtcm_mb=8),
    88: Soc(name="SC8480XP", arch="v81", vtcm_mb=8),
    90: Soc(name="QCS8625", arch="v75", vtcm_mb=8),
    93: Soc(name="QCS6490", arch="v68", vtcm_mb=2),
    119: Soc(name="IQX5121", arch="v73", vtcm_mb=8),
    120: Soc(name="SC8340XP", arch="v73", vtcm_mb=8),
}

# Option of the provider -> what it is for. All of "QNN Execution Provider", onnxruntime-qnn 2.7.0.
PURPOSE: Mapping[str, str] = {
    "soc_model": "the SoCs, and with them all else; htp_arch beside it is ignored, alone it means a phone",
    "htp_graph_finalization_optimization_mode": "1 to 3: how long the compiler looks for a better graph",
    "vtcm_mb": "vector memory that the graph may use; more than the SoC has is clamped: refused here",
    "enable_htp_prepare_only": "compile, do not load: nothing here could run it but the emulator",
    "offload_graph_io_quantization": "0: the edges of the graph are compiled as the model has them, never left outside",
    "enable_framework_op_trace": "write which operator became what, and why one did not",
    "framework_op_trace_dir": "where",
    "profiling_level": "basic: the compiler's own estimates, for the SoCs that it simulates",
    "profiling_file_path": "where",
}


def provider_options(platform: HtpPlatform, options: CompilerOptions) -> dict[str, str]:
    """The options of one compile, each of ``PURPOSE``.

    Raises PlatformError where the platform is not what the compiler knows of its SoCs, RecipeError for options beyond
    it.
    """
    refuse_platform(platform)
    refuse_options(platform, options)
    asked = {
        "soc_model": ",".join(str(model) for model in platform.soc_models),
        "htp_graph_finalization_optimization_mode": str(options.optimization),
        "enable_htp_prepare_only": "1",
        "offload_graph_io_quantization": "0",
        "enable_framework_op_trace": "1",
        "framework_op_trace_dir": TRACE_FOLDER,
        "profiling_level": "basic",
        "profiling_file_path": PROFILE,
    }
    return asked | ({"vtcm_mb": str(options.vtcm_mb)} if options.vtcm_mb else {})


def refuse_platform(platform: HtpPlatform) -> None:
    """Raises PlatformError with everything in which the platform and the table of SoCs differ."""
    faults = []
    if list(platform.soc_models) != sorted(set(platform.soc_models)) or len(platform.arch) != len(platform.soc_models):
        what = "soc_model must be ascending, each SoC once, with as many entries in march"
        faults.append(Fault(what=what, where=platform.name, path="$.soc_model"))
    for model, arch in zip(platform.soc_models, platform.arch, strict=False):
        soc = SOCS.get(model)
        if soc is None:
            what, hint = f"the compiler has no HTP SoC with soc_model {model}", f"known: {', '.join(map(str, SOCS))}"
            faults.append(Fault(what=what, where=platform.name, path="$.soc_model", hint=hint))
        elif soc.arch != arch:
            what = f"soc_model {model} ({soc.name}) is HTP {soc.arch}, and march says {arch}"
            faults.append(Fault(what=what, where=platform.name, path="$.march"))
    least = min((SOCS[model].vtcm_mb for model in platform.soc_models if model in SOCS), default=0)
    if not faults and platform.vtcm_bytes != least * _MIB:
        what = f"vtcm_bytes says {platform.vtcm_bytes}, and the compiler has {least} MiB for it"
        faults.append(Fault(what=what, where=platform.name, path="$.vtcm_bytes"))
    if faults:
        raise PlatformError(*faults)


def refuse_options(platform: HtpPlatform, options: CompilerOptions) -> None:
    """Raises RecipeError with every option that the compiler would ignore or change."""
    faults = []
    path = "$.toolchain_options.qualcomm"
    if options.optimization not in (1, 2, 3):
        what = f"there is no optimization {options.optimization}"
        faults.append(Fault(what=what, path=f"{path}.optimization", hint="1, 2 or 3"))
    most = platform.vtcm_bytes // _MIB
    if not 0 <= options.vtcm_mb <= most:
        what = f"vtcm_mb: {options.vtcm_mb} is more than {platform.name} has"
        faults.append(Fault(what=what, path=f"{path}.vtcm_mb", hint=f"1 to {most}; without the line all of it is used"))
    if faults:
        raise RecipeError(*faults)
