"""``python -m tests.pipeline.hermetic SPECIFICATION.json``: runs one task, and names whatever it touches undeclared.

An audit hook watches the stage's ``run``: files opened outside its inputs, outputs, scratch folder and the Python
installation, sockets, processes. (What native code opens by itself is not seen.) Prints one
line for each, then the worker's last event; exit code 1 when there was any.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import npubake
from npubake.pipeline import worker
from npubake.pipeline.stage import Job
from npubake.pipeline.worker import Event, Specification

FORBIDDEN = ("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.system", "os.fork", "urllib.", "os.startfile")
SYSTEM = ("/dev/null", "/dev/urandom", "/proc/", "/sys/devices/", "/etc/ld.so", "/usr/share/zoneinfo", "/etc/localtime")


def violations(specification: Specification) -> list[str]:
    """What the task touches undeclared, found in a process of its own (an audit hook cannot be removed)."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as stream:
        stream.write(specification.to_json())
        stream.flush()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "tests.pipeline.hermetic", stream.name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    *found, last = done.stdout.splitlines() or [""]
    if not last.startswith("{") or json.loads(last)["event"] != "done":
        raise AssertionError(done.stdout + done.stderr)
    return found


class Watch:
    """The audit hook, active while the stage runs."""

    def __init__(self) -> None:
        self.active = False
        self.found: list[str] = []
        self._readable: tuple[str, ...] = ()
        self._writable: tuple[str, ...] = ()

    def begin(self, job: Job) -> None:
        """Watch from now on."""
        inputs = [str(path) for paths in job.inputs.values() for path in paths]
        python = [*sys.path, sys.prefix, sys.base_prefix, str(Path(npubake.__file__).parent)]
        self._writable = (str(Path.cwd()), *(str(path) for path in job.outputs.values()), "/dev/null")
        self._writable += tuple(filter(None, [os.environ.get("NUMBA_CACHE_DIR")]))
        self._readable = (*self._writable, *inputs, *filter(None, python), *SYSTEM)
        self.active = True

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event.startswith(FORBIDDEN):
            self.found.append(f"{event} {arguments[:2]!r}")
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path = str(Path.cwd() / os.fsdecode(arguments[0]))
            writes = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            allowed = self._writable if writes else self._readable
            if not path.startswith(allowed):
                self.found.append(f"{'writes' if writes else 'reads'} {path}")


def main() -> int:
    specification = Specification.from_json(Path(sys.argv[1]).read_bytes())
    watch = Watch()
    sys.addaudithook(watch)
    load = worker._load

    def watched(run: str) -> Callable[[Job], object]:
        function = load(run)

        def call(job: Job) -> object:
            watch.begin(job)
            try:
                return function(job)
            finally:
                watch.active = False

        return call

    worker._load = watched
    last: list[Event] = []
    worker.execute(specification, last.append)
    for line in watch.found:
        print(line)
    print(json.dumps(last[-1]))
    return 1 if watch.found else 0


if __name__ == "__main__":
    sys.exit(main())
