"""Toolchains room: the only module that starts vendor processes. A command in; how it ended and what it printed, out.

What runs sees a fixed environment, not this process's: no variable of a vendor, no locale or time zone of the machine
reaches it, its home and scratch are the folder that it runs in. It ends with this process, at the time limit, or when
this process is interrupted, and with it all that it started.

Its memory is laid out the same way each time: a compiler that writes bytes beyond its tables (the HTP compiler does, of
a float detector) writes what its heap held beside them. Addresses are not randomised, where the kernel allows that, and
what is allocated reads as zeros; ``run_module`` with ``packages`` goes further (docs/decisions/0019).

Our own modules that load a vendor's libraries run in such a process as well (``run_module`` here, ``serve`` there):
``request.json`` and ``answer.json`` in the folder are what they say to each other.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import npubake
from npubake.errors import BuildError, Fault, StageError, ToolchainError

FIXED = {  # what every process sees; HOME and TMPDIR are its folder
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # onnxruntime from 1.29 on sends names and hashes of models to its maker. The thread that does it wakes up 9 s after
    # the start, allocates in the compiler's heap, and other bytes come out of a compile that takes longer.
    "ORT_DISABLE_TELEMETRY": "1",
    # glibc: memory is filled when it is allocated (255 ^ 255), none is kept aside unfilled, all threads share one heap.
    "GLIBC_TUNABLES": "glibc.malloc.perturb=255:glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1",
}
REQUEST, ANSWER, PRINTED = "request.json", "answer.json", "printed.txt"
_PR_SET_PDEATHSIG = 1
_ADDR_NO_RANDOMIZE = 0x0040000  # personality(2); a container's rules may forbid it, and then it stays as it was
_NEVER_MOVES = "/tmp"  # noqa: S108 - TMPDIR is a name of another length on each machine
_LOOK_EVERY = 0.2  # seconds between two calls of ``watch``
_TAIL = 2000  # characters of what a process printed that a fault shows


class ProcessDied(StageError):
    """One of our modules ended without an answer: the library that it loaded crashed, or the machine ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a process ended. status: its exit status, minus the signal's number where one ended it; output: what it
    printed, both streams as they came.
    """

    status: int
    output: bytes

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", errors="replace")

    @property
    def how(self) -> str:
        """In words: ``exit status 3``, ``SIGSEGV``."""
        return f"exit status {self.status}" if self.status >= 0 else signal.Signals(-self.status).name


def run(
    command: Sequence[str],
    *,
    folder: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[], None] = lambda: None,
) -> Finished:
    """Run ``command`` in ``folder`` to its end, whatever its exit status. timeout: seconds; environment: more variables
    than ``FIXED``; watch: called a few times a second, to look at what the process writes.

    Raises ToolchainError where the command cannot be started, StageError at the time limit.
    """
    variables = {**FIXED, "HOME": str(folder), "TMPDIR": str(folder), **(environment or {})}
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(
                list(command),
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=_prepare(os.getpid()),
            )
        except OSError as error:
            what = f"{command[0]} cannot be started: {error.strerror or error}"
            raise ToolchainError(Fault(what=what, where=Path(command[0]).name)) from error
        try:
            status = _wait(process, timeout, watch)
        finally:  # also on KeyboardInterrupt
            _end_group(process)
        printed.seek(0)
        output = printed.read()
    if status is None:
        raise StageError(_fault(command, f"did not end within {timeout:g} s and was stopped", output))
    return Finished(status=status, output=output)


def run_module(
    module: str,
    request: Mapping[str, Any],
    *,
    folder: Path,
    timeout: float,
    packages: Sequence[str] = (),
    watch: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Run ``python -m module`` of ours in ``folder``: the request is there as ``request.json``, the answer is returned;
    what it printed is left in ``printed.txt``.

    packages: the only ones that it can import, beside ours; then nothing that it does before depends on where they and
    we are installed or what else is, if ``folder`` is a ``fixed_folder``. None: all that this process can import.

    Raises the BuildError that the module raised (as StageError); ProcessDied where it ended without an answer.
    """
    (folder / REQUEST).write_text(json.dumps(request, sort_keys=True), encoding="utf-8")
    (folder / ANSWER).unlink(missing_ok=True)
    if packages:
        python, environment = _alone(folder, packages)
        command = [str(python), "-P", "-s", "-S", "-m", module]
    else:
        command, environment = [sys.executable, "-P", "-m", module], {"PYTHONPATH": _import_path()}
    ended = run(command, folder=folder, timeout=timeout, environment=environment, watch=watch)
    (folder / PRINTED).write_bytes(ended.output)
    try:
        answer: dict[str, Any] = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError) as error:
        raise ProcessDied(
            _fault(["python", "-m", module], f"ended without an answer: {ended.how}", ended.output)
        ) from error
    if "faults" in answer:
        raise StageError(*(Fault(**fault) for fault in answer["faults"]))
    return answer


@contextmanager
def fixed_folder() -> Iterator[Path]:
    """A new folder ``/tmp/npubake-<8 characters>``, removed at the end: its path is as long on every machine.

    Raises ToolchainError where none can be made.
    """
    try:
        made = tempfile.TemporaryDirectory(prefix="npubake-", dir=_NEVER_MOVES, ignore_cleanup_errors=True)
    except OSError as error:
        what = f"no folder can be made there: {error.strerror or error}"
        hint = "vendor tools run there, whatever TMPDIR says; make it a folder that may be written"
        raise ToolchainError(Fault(what=what, where=_NEVER_MOVES, hint=hint)) from error
    with made as folder:
        yield Path(folder)


def _import_path() -> str:
    return os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)


def _alone(folder: Path, packages: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """An interpreter and its environment, all below ``folder``: links to ``packages`` and the libraries that lie beside
    them, and our own modules. All is read as source: compiled files hold the path that they were compiled at. The
    interpreter is the one below a virtual environment. Raises ToolchainError for packages that are not installed.
    """
    python, place = folder / "python", folder / "packages"
    python.symlink_to(Path(sys.executable).resolve())
    own = Path(npubake.__file__).parent
    shutil.copytree(own, place / own.name, ignore=shutil.ignore_patterns("__pycache__", "*_files", "schemas"))
    found = {name: _installed(name) for name in packages}
    missing = [Fault(what="is not installed", where=name) for name, where in found.items() if where is None]
    if missing:
        raise ToolchainError(*missing)
    for where in found.values():
        assert where is not None
        for item in (where, where.with_name(f"{where.name}.libs")):
            if item.exists():
                (place / item.name).symlink_to(item)
    return python, {"PYTHONPATH": str(place), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def _installed(package: str) -> Path | None:
    places = (Path(entry).resolve() / package for entry in sys.path)
    return next((place for place in places if place.is_dir()), None)


def serve(answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """The other side of ``run_module``: ``answer`` gets the request and returns the answer, or raises a BuildError."""
    request = json.loads(Path(REQUEST).read_text(encoding="utf-8"))
    try:
        said: Mapping[str, Any] = answer(request)
    except BuildError as error:
        said = {"faults": [asdict(fault) for fault in error.faults]}
    unfinished = Path(ANSWER + ".part")
    unfinished.write_text(json.dumps(said, sort_keys=True, allow_nan=False), encoding="utf-8")
    unfinished.rename(ANSWER)


def tail(output: bytes) -> str:
    """The end of what a process printed, for a fault: whole lines."""
    text = output.decode("utf-8", errors="replace").strip()
    if len(text) <= _TAIL:
        return text
    return "... " + text[-_TAIL:].partition("\n")[2]


def _wait(process: subprocess.Popen[bytes], timeout: float, watch: Callable[[], None]) -> int | None:
    """The exit status; None where the time is over."""
    left = timeout
    while True:
        try:
            return process.wait(min(_LOOK_EVERY, max(left, 0)))
        except subprocess.TimeoutExpired:
            if left <= 0:
                return None
        left -= _LOOK_EVERY
        watch()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the process and of all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _prepare(parent: int) -> Callable[[], None]:
    """What the new process does before it becomes the command: ask the kernel to end it when we are gone, and to put
    everything at the same addresses as the last time.
    """
    kernel = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        kernel.personality(_ADDR_NO_RANDOMIZE)
        kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _fault(command: Sequence[str], what: str, output: bytes) -> Fault:
    said = tail(output)
    hint = f"the end of what it printed:\n{said}" if said else "it printed nothing"
    return Fault(
        what=f"{Path(command[0]).name} {' '.join(command[1:3])} {what}", where=Path(command[0]).name, hint=hint
    )
