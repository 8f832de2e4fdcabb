"""What a build is asked for and what it answers, as data. Light: settled requests need no more than this."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npubake.errors import Fault

if TYPE_CHECKING:
    from npubake.recipe.lock import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for. names: recipe or target names, none for all; until: a stage, '' for all; policy: of the lock;
    threads: 0 for all cores; jobs: tasks at once.
    """

    names: tuple[str, ...] = ()
    toolchain: str | None = None
    until: str = ""
    fast: bool = False
    policy: Policy = "plain"
    keep_going: bool = False
    jobs: int = 1
    threads: int = 0

    def identity(self) -> dict[str, Any]:
        """What decides whether it is settled; how many cores work on it does not."""
        return {
            "names": list(self.names),
            "toolchain": self.toolchain,
            "until": self.until,
            "fast": self.fast,
            "locked": self.policy == "locked",
            "store": os.environ.get("NPUBAKE_STORE", ""),
        }

    @property
    def workers(self) -> int:
        """Threads of one task."""
        return self.threads or len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """summary: the JSON object of ``build --json`` (with what tables need besides); faults: of failed tasks; notes:
    what was written besides the build's own files.
    """

    summary: Mapping[str, Any]
    exit_code: int = 0
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    settled: bool = False
