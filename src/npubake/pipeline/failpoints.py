"""Pipeline: named places at every write where a test can kill the build. No effect, and no cost, unless armed.

``NPUBAKE_FAILPOINT=name[:n]`` kills this process (and the build that started it, when a worker reaches the point) with
SIGKILL when ``name`` is reached for the n-th time. ``NPUBAKE_FAILPOINT_TRACE=file`` appends every name that is reached;
it also carries the count across processes.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

NAME, TRACE, DRIVER = "NPUBAKE_FAILPOINT", "NPUBAKE_FAILPOINT_TRACE", "NPUBAKE_FAILPOINT_DRIVER"
VARIABLES = (NAME, TRACE, DRIVER)
_armed = bool(os.environ.get(NAME) or os.environ.get(TRACE))
_counts: dict[str, int] = {}


def reach(name: str) -> None:
    """Say that the write point ``name`` is reached."""
    if _armed:
        _count_and_fire(name)


def _count_and_fire(name: str) -> None:
    trace = os.environ.get(TRACE)
    if trace:
        with Path(trace).open("a") as stream:
            stream.write(f"{name}\n")
        count = Path(trace).read_text().split("\n").count(name)
    else:
        count = _counts[name] = _counts.get(name, 0) + 1
    wanted, _, nth = os.environ.get(NAME, "").partition(":")
    if wanted == name and count == int(nth or 1):
        driver = os.environ.get(DRIVER)
        if driver and int(driver) != os.getpid():
            os.kill(int(driver), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
