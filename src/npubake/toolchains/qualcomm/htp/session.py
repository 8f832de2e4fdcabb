"""Qualcomm toolchain: sessions of onnxruntime with the QNN execution provider: compile, or run in the emulator.

Loads the vendor's libraries, so it is used in a process of its own (``toolchains.process.run_module``): a second
compile in one process gives other bytes, and a library that crashes takes its process along.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import onnxruntime
import onnxruntime_qnn

PROVIDER = "QNNExecutionProvider"
VERBOSE, WARNING = 0, 2  # ORT_LOGGING_LEVEL_*: the provider's reasons come as warnings, QNN's own as verbose
_REASONS = ("<E>", "ERROR:", "Validation FAILED")  # in what verbose lines the compiler says why
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


@dataclass(slots=True, kw_only=True)
class Log:
    """What onnxruntime and the provider say, in order, one line each: without times, processes or addresses.

    Installed as the process's logger by ``open_session``; kept by the caller for what comes later. reasons: also what
    QNN's validators and its graph compiler call errors, which it says to verbose loggers only; kept: a file that has
    each line, as JSON, as soon as it is said: the libraries may end this process.
    """

    reasons: bool = False
    kept: IO[str] | None = None
    lines: list[str] = field(default_factory=list)

    @property
    def severity(self) -> int:
        return VERBOSE if self.reasons else WARNING

    def __call__(self, severity: int, _category: str, _logger: str, location: str, message: str) -> None:
        level = int(severity)
        if level >= WARNING or any(word in message for word in _REASONS):
            text = _ADDRESS.sub("0x...", message.strip())
            self.lines.append(f"[{'VIWEF'[level]}] {location.rpartition('/')[2]}] {text}")
            if self.kept is not None:
                self.kept.write(json.dumps(self.lines[-1]) + "\n")
                self.kept.flush()


def open_session(
    model: bytes | str,
    *,
    provider: Mapping[str, str] | None = None,
    entries: Mapping[str, str] | None = None,
    log: Log | None = None,
) -> onnxruntime.InferenceSession:
    """A session on the HTP backend. model: ONNX bytes, or the path of a wrapper beside its binary (relative to the
    working folder). provider, entries: options of the provider and configuration entries of the session, beside the
    backend's path. Raises what onnxruntime raises.
    """
    log = log or Log()
    onnxruntime.set_default_logger_callback(log, log.severity)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = log.severity
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # processes share the work
    for name, value in (entries or {}).items():
        options.add_session_config_entry(name, value)
    options.add_provider_for_devices(
        _devices(), {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), **(provider or {})}
    )
    return onnxruntime.InferenceSession(model, options)


def open_emulator(wrapper: str, *, log: Log | None = None) -> onnxruntime.InferenceSession:
    """A compiled artifact in the x86 emulator of the HTP. wrapper: path of ``model_ctx.onnx``, its binary beside it."""
    return open_session(wrapper, entries={"session.disable_cpu_ep_fallback": "1"}, log=log)


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
