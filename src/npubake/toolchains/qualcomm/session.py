"""Qualcomm toolchain: sessions of onnxruntime with the QNN execution provider: compile, or run in the emulator.

Loads the vendor's libraries, so it is used in a process of its own (``toolchains.process.run_module``): a second
compile in one process gives other bytes, and a library that crashes takes its process along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime
import onnxruntime_qnn

PROVIDER = "QNNExecutionProvider"
WARNING = 2  # ORT_LOGGING_LEVEL_WARNING: the provider's reasons come as warnings


@dataclass(slots=True, kw_only=True)
class Log:
    """What onnxruntime and the provider say, in order, one line each: without times, processes or addresses.

    Installed as the process's logger by ``open_session``; kept by the caller for what comes later.
    """

    lines: list[str] = field(default_factory=list)

    def __call__(self, severity: int, _category: str, _logger: str, location: str, message: str) -> None:
        level = "VIWEF"[int(severity)] if 0 <= int(severity) <= 4 else "?"
        self.lines.append(f"[{level}] {location.rpartition('/')[2]}] {message.rstrip()}")


def open_session(
    model: bytes | str,
    *,
    provider: Mapping[str, str] | None = None,
    entries: Mapping[str, str] | None = None,
    log: Log | None = None,
    threads: int = 1,
) -> onnxruntime.InferenceSession:
    """A session on the HTP backend. model: ONNX bytes, or the path of a wrapper beside its binary (relative to the
    working folder). provider, entries: options of the provider and configuration entries of the session, beside the
    backend's path. Raises what onnxruntime raises.
    """
    onnxruntime.set_default_logger_callback(log or Log(), WARNING)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = WARNING
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    for name, value in (entries or {}).items():
        options.add_session_config_entry(name, value)
    options.add_provider_for_devices(
        _devices(), {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), **(provider or {})}
    )
    return onnxruntime.InferenceSession(model, options)


def open_emulator(wrapper: str, *, log: Log | None = None, threads: int = 1) -> onnxruntime.InferenceSession:
    """A compiled artifact in the x86 emulator of the HTP. wrapper: path of ``model_ctx.onnx``, its binary beside it."""
    return open_session(wrapper, entries={"session.disable_cpu_ep_fallback": "1"}, log=log, threads=threads)


def library(name: str) -> Path:
    """A library of the installed package, by its file name."""
    return Path(onnxruntime_qnn.LIB_DIR_FULL_PATH) / name


def versions() -> dict[str, str]:
    """Versions of the provider, of QNN in it, and of onnxruntime."""
    return {
        "onnxruntime_qnn": str(onnxruntime_qnn.__version__),
        "qnn": str(onnxruntime_qnn.build_and_package_info.qnn_version),
        "onnxruntime": str(onnxruntime.__version__),
    }


def _devices() -> list[Any]:
    """The provider's devices; registers its library with onnxruntime on the first call (twice is an error there)."""
    found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
    if not found:
        onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
        found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
    return found
