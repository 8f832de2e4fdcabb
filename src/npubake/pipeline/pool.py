"""Pipeline: runs specifications in worker processes of this machine. A specification in; a record, or the error out.

One server process imports what the stages need, and forks a worker for each task (``forkserver``). Workers see a fixed
environment; threads of numerical libraries are set, not inherited. They end with the process that made the pool.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from npubake.errors import Fault, StageError
from npubake.pipeline import failpoints
from npubake.pipeline.store import Blob, Record, refusal
from npubake.pipeline.worker import Event, Specification, error_from

_PASSED_ON = (
    *("PATH", "HOME", "USER", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SSL_CERT_FILE"),
    "QAIRT_SDK_ROOT",  # only says where the SDK lies; its version is a parameter of the stages that use it
    *failpoints.VARIABLES,
)
FIXED = {  # of the environment of every stage
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_THREADING_LAYER": "workqueue",
    "ORT_DISABLE_TELEMETRY": "1",
}
_MODULES = {  # distribution -> what to import before the fork: slow to import, and no threads or sessions yet
    "numpy": "numpy",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "numba": "numba",
    "pillow": "PIL.Image",
}
_TAIL = 4000


class StageBug(StageError):
    """A stage raised something that is no refusal, or its process died. ``traceback`` tells where."""

    who = "bug in the stage"

    def __init__(self, *faults: Fault, traceback: str = "") -> None:
        super().__init__(*faults)
        self.traceback = traceback


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """The worker could not start: these blobs are absent from the store, or were damaged and dropped."""

    digests: tuple[str, ...]


def preload(tools: tuple[str, ...]) -> tuple[str, ...]:
    """The modules worth importing before the fork for a stage that uses these distributions."""
    return tuple(_MODULES[tool] for tool in tools if tool in _MODULES)


class WorkerPool:
    """Starts its server on the first task. Safe to use from several threads."""

    def __init__(self, cache: Path) -> None:
        """cache: a folder where compiled code (numba) may be kept between tasks; it changes no result."""
        self._cache = cache
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._closed = False

    def run(self, specification: Specification, progress: Callable[[int, int], None]) -> Record | Damaged:
        """Run one task to its end. Raises the stage's BuildError, or StageBug."""
        last: Event = {}
        with _temporary(specification) as log, self._request(specification, log) as lines:
            for line in lines:  # until both the worker and the server have closed the pipe
                event: Event = json.loads(line) if line.endswith(b"\n") else {"event": "cut off"}
                if event["event"] == "progress":
                    progress(event["done"], event["total"])
                elif event["event"] not in ("exit", "cut off") or not last:
                    last = event
            return _conclude(specification, last, log)

    def close(self) -> None:
        """End the server and with it all workers, at once."""
        with self._lock:
            self._closed = True
            if self._socket is not None and self._server is not None:
                self._socket.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._server.wait(timeout=1)  # it may be importing
                self._server.kill()
                self._server.wait()
                self._socket = self._server = None

    def _request(self, specification: Specification, log: IO[bytes]) -> IO[bytes]:
        """Hand the task over; the events come through the pipe that is returned."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        lines = os.fdopen(reading, "rb")
        with os.fdopen(os.memfd_create("specification"), "w+b") as text:
            try:
                text.write(specification.to_json().encode())
                text.seek(0)
                with self._lock:
                    socket.send_fds(self._connection(), [b"r"], [text.fileno(), writing, log.fileno()])
            except OSError as error:
                lines.close()
                refused = refusal(error, "a worker cannot be told its task", Path("memory"))
                if refused is not None:
                    raise refused from error
                what = f"the worker server is gone: {error.strerror or error}"
                raise StageBug(Fault(what=what, where=specification.task, hint="build again")) from error
            finally:
                os.close(writing)
        return lines

    def _connection(self) -> socket.socket:
        if self._closed:
            raise BrokenPipeError("the pool is closed")
        if self._socket is None:
            self._socket, theirs = socket.socketpair()
            with theirs:
                descriptor = theirs.fileno()
                self._server = subprocess.Popen(
                    [sys.executable, "-P", "-m", "npubake.pipeline.forkserver", str(descriptor)],
                    env=self._environment(),
                    pass_fds=[descriptor],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # the terminal's interrupt reaches the build, which ends its workers
                )
        return self._socket

    def _environment(self) -> dict[str, str]:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | FIXED
        environment["PYTHONPATH"] = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        environment["NUMBA_CACHE_DIR"] = str(self._cache)
        if failpoints.NAME in environment:
            environment[failpoints.DRIVER] = str(os.getpid())
        return environment


def _temporary(specification: Specification) -> IO[bytes]:
    """A file for what the stage prints."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        refused = refusal(error, f"{specification.task} cannot keep what it prints", Path(tempfile.gettempdir()))
        if refused is None:
            raise
        raise refused from error


def _conclude(specification: Specification, last: Event, log: IO[bytes]) -> Record | Damaged:
    match last.get("event"):
        case "done":
            content = last["record"]
            content["outputs"] = {port: Blob(**blob) for port, blob in content["outputs"].items()}
            return Record(**content)
        case "damaged":
            return Damaged(digests=tuple(last["digests"]))
        case "failed":
            raise error_from(last)
        case "bug":
            raise _bug(specification, last["message"], last["traceback"], log)
    raise _bug(specification, _death(last), "", log)


def _bug(specification: Specification, what: str, traceback: str, log: IO[bytes]) -> StageBug:
    stage = specification.dictionary["stage"]
    log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
    printed = log.read().decode(errors="replace").strip()
    text = "\n".join(part for part in (traceback.rstrip(), printed and f"printed by the stage:\n{printed}") if part)
    hint = "a stage must refuse with a BuildError: this is a bug of the stage, or the machine ran out of memory"
    return StageBug(
        Fault(what=f"stage {stage!r} ended without an answer: {what}", where=specification.task, hint=hint),
        traceback=text,
    )


def _death(last: Event) -> str:
    status = int(last.get("status", signal.SIGKILL))
    if os.WIFSIGNALED(status):
        return f"its process was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"its process ended with status {os.waitstatus_to_exitcode(status)}"
