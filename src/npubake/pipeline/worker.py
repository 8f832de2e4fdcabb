"""Pipeline: runs one task from its specification and the store, and nothing else. JSON in; a record, events out.

``python -m npubake.pipeline.worker SPECIFICATION.json`` runs one task anywhere and prints its events, one JSON object
a line: ``progress`` (done, total), then one of ``done`` (record), ``failed`` (class, faults, facts), ``bug`` (message,
traceback), ``damaged`` (digests that the store must get again).
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from npubake.errors import BuildError, Fault, StageError
from npubake.pipeline import failpoints
from npubake.pipeline.machine import machine
from npubake.pipeline.stage import Job
from npubake.pipeline.store import Blob, Record, Store, refusal

Event = dict[str, Any]
_REPORT_EVERY_S = 0.05
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """One task for a worker: everything it may know. The job's params and inputs are those of the key dictionary."""

    task: str
    run: str
    outputs: tuple[str, ...]
    dictionary: Mapping[str, Any]
    store: str
    threads: int = 1
    preload: tuple[str, ...] = ()

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> Specification:
        """From JSON text; raises TypeError or ValueError where it is none of ours."""
        content = json.loads(text)
        content["outputs"], content["preload"] = tuple(content["outputs"]), tuple(content["preload"])
        return Specification(**content)


def execute(specification: Specification, send: Callable[[Event], None]) -> None:
    """Run the task; the last event tells how it ended."""
    try:
        _execute(specification, send)
    except BuildError as error:
        send(_failed(error))
    except Exception as bug:  # noqa: BLE001 - the boundary of the process: a stage's bug is told with its traceback
        said = f"stage {specification.dictionary['stage']!r} could not write"
        full = isinstance(bug, OSError) and bug.errno in _FULL and refusal(bug, said, Path(specification.store))
        message = f"{type(bug).__name__}: {bug}"
        send(_failed(full) if full else {"event": "bug", "message": message, "traceback": traceback.format_exc()})


def _failed(error: BuildError) -> Event:
    kind = type(error)
    faults = [asdict(fault) for fault in error.faults]
    name = f"{kind.__module__}:{kind.__qualname__}"
    return {"event": "failed", "class": name, "faults": faults, "facts": error.facts}


def error_from(event: Event) -> BuildError:
    """The error that a ``failed`` event carries, in its own class."""
    module, _, name = str(event["class"]).partition(":")
    kind: type[BuildError] = getattr(importlib.import_module(module), name)
    assert issubclass(kind, BuildError)
    return kind(*(Fault(**fault) for fault in event["faults"]), facts=event["facts"])


def _execute(specification: Specification, send: Callable[[Event], None]) -> None:
    store = Store(Path(specification.store))
    inputs: dict[str, list[str]] = specification.dictionary["inputs"]
    damaged = [digest for port in sorted(inputs) for digest in inputs[port] if not store.verified(digest)]
    if damaged:
        send({"event": "damaged", "digests": damaged})
        return
    failpoints.reach("worker.started")
    with store.workspace() as folder:
        job = _job(specification, store, folder, send)
        run = _load(specification.run)
        started = time.perf_counter()
        run(job)
        seconds = time.perf_counter() - started
        failpoints.reach("worker.ran")
        record = _keep(specification, store, job, seconds)
        os.chdir(store.root)  # the folder goes
    send({"event": "done", "record": asdict(record)})


def _job(specification: Specification, store: Store, folder: Path, send: Callable[[Event], None]) -> Job:
    for name in ("outputs", "scratch"):
        (folder / name).mkdir()
    os.chdir(folder / "scratch")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "scratch")
    inputs: dict[str, list[str]] = specification.dictionary["inputs"]
    return Job(
        params=specification.dictionary["params"],
        inputs={port: tuple(store.blob_path(digest) for digest in digests) for port, digests in inputs.items()},
        outputs={port: folder / "outputs" / port for port in specification.outputs},
        threads=specification.threads,
        progress=_Progress(send),
    )


class _Progress:
    """Sends progress at most twenty times a second, and always the end."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self._send = send
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next or done == total:
            self._next = now + _REPORT_EVERY_S
            self._send({"event": "progress", "done": done, "total": total})


def _load(run: str) -> Callable[[Job], object]:
    module, _, name = run.partition(":")
    function: Callable[[Job], object] = getattr(importlib.import_module(module), name)
    assert callable(function)
    return function


def _keep(specification: Specification, store: Store, job: Job, seconds: float) -> Record:
    missing = [port for port, path in job.outputs.items() if not path.is_file()]
    if missing:
        what = f"the stage wrote no output {{}}; it declares {', '.join(specification.outputs)}"
        raise StageError(*(Fault(what=what.format(repr(port)), where=specification.task) for port in missing))
    outputs: dict[str, Blob] = {port: store.adopt(path) for port, path in job.outputs.items()}
    record = Record(outputs=outputs, dictionary=specification.dictionary, seconds=round(seconds, 6), machine=machine())
    store.write_record(record)
    return record


def _main() -> int:
    specification = Specification.from_json(Path(sys.argv[1]).read_bytes())
    last: Event = {}

    def send(event: Event) -> None:
        last.update(event=event["event"])
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    execute(specification, send)
    return 0 if last["event"] == "done" else 1


if __name__ == "__main__":
    sys.exit(_main())
