"""Pipeline: the quick answer to "is there anything to do?": signatures of all that a request read or made.

In: paths and what to print. Out: the printed summary again, while every signature is as it was. Imports the standard
library alone, so that a build with nothing to do costs a few stats.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npubake.pipeline.project import Project
    from npubake.pipeline.runrecord import RunRecord
    from npubake.pipeline.task import Task

_FORMAT = 1
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - no pathlib at start-up


def request_name(request: Mapping[str, Any]) -> str:
    """A file name for a request: targets, options and store, as JSON values."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:24]


def check(root: str | Path, request: Mapping[str, Any]) -> Any:
    """The summary of the last build of this request in the project at ``root`` while nothing has changed, else None."""
    path = os.path.join(root, ".npubake", "settled", request_name(request) + ".json")  # noqa: PTH118
    try:
        with open(path, "rb") as stream:  # noqa: PTH123
            state = json.loads(stream.read())
        if state["surroundings"] != _surroundings() or state["format"] != _FORMAT:
            return None
        if state["root"] != os.path.abspath(root):  # noqa: PTH100
            return None  # the project was copied or moved: the state speaks of files elsewhere
        stat = os.stat
        for name, stamp in state["paths"].items():
            facts = stat(name)
            if [facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns] != stamp:
                return None
        if state["package"] != _package():
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent, unreadable or half written: the long way decides
    return state["summary"]


class Seen:
    """What the plan of a request is made from: recipes, presets, platform files, schemas, folders whose list was read.

    Make it before the first is read, and ``add`` each file or folder before it is read: what changes later is noticed.
    """

    def __init__(self) -> None:
        self.package = _package()
        self.surroundings = _surroundings()
        self.paths: dict[str, list[int]] = {}

    def add(self, path: Path) -> None:
        """Note a file or folder that is about to be read (waits out the clock's tick if it was just written)."""
        from npubake.pipeline.files import signature, wait_until_settled

        if str(path) not in self.paths:
            wait_until_settled([signature(path)])
            self.paths[str(path)] = list(signature(path))

    def wrote(self, path: Path) -> None:
        """Note a file that making the plan itself wrote (a lock), and that its folder changed by that alone."""
        for changed in (path.parent, path):
            if self.paths.pop(str(changed), None) is not None or changed == path:
                self.add(changed)


def write(
    project: Project, request: Mapping[str, Any], tasks: Iterable[Task], record: RunRecord, seen: Seen, summary: Any
) -> bool:
    """Note that the request is settled, with what to print next time.

    False, and nothing noted, where a task did not succeed, or a file, folder or tool changed while the build went on.
    """
    from npubake.pipeline.files import signature, write_atomic

    tasks = tuple(tasks)
    expected = _expected(project, tasks, record)
    if expected is None or not _same_tools(tasks, record):
        return False
    try:
        files = project.digests.settle(list(expected))
        if any(files[path][1] != digest for path, digest in expected.items()):
            return False
        if any(list(signature(path)) != stamp for path, stamp in seen.paths.items()):
            return False
        paths = seen.paths | {str(path): list(stamp) for path, (stamp, _) in files.items()}
        paths |= {str(path): list(signature(path)) for path in _tool_files(project, tasks)}
        state = {"format": _FORMAT, "root": str(project.root), "surroundings": seen.surroundings}
        facts = {**state, "package": seen.package, "paths": paths, "summary": summary}
        data = json.dumps(facts, separators=(",", ":")).encode()
        write_atomic(project.state / "settled" / f"{request_name(request)}.json", data, "settled")
        project.digests.save()
    except OSError:
        return False  # a file vanished, or the disk is full: the next build takes the long way
    return True


def _expected(project: Project, tasks: tuple[Task, ...], record: RunRecord) -> dict[Path, str] | None:
    """Source and published files with the digests that they must have; None unless every task succeeded."""
    expected: dict[Path, str] = {}
    for task in tasks:
        result = record[task.id]
        if result.record is None:
            return None
        expected |= {project.path(item.path): result.outputs[item.port].digest for item in task.publish}
        expected |= _source_digests(project, task, result.record.dictionary["inputs"])
    return expected


def _source_digests(project: Project, task: Task, inputs: Mapping[str, list[str]]) -> dict[Path, str]:
    from npubake.pipeline.task import SourceFile

    pairs = (
        (item, digest)
        for port, items in task.inputs.items()
        for item, digest in zip(items, inputs.get(port, ()), strict=True)
    )
    return {project.path(item.path): digest for item, digest in pairs if isinstance(item, SourceFile)}


def _same_tools(tasks: tuple[Task, ...], record: RunRecord) -> bool:
    """Whether the tools installed now are those that the keys name."""
    from npubake.pipeline.tools import InstalledTools

    tools = InstalledTools()
    used: dict[str, str] = {}
    for task in tasks:
        made = record[task.id].record
        used |= made.dictionary["tools"] if made else {}
    return all((found := tools.find(name)) is not None and found.version == used[name] for name in used)


def _tool_files(project: Project, tasks: tuple[Task, ...]) -> list[Path]:
    """What states the version of each tool, and the folders in which another version would turn up."""
    names = sorted({name for task in tasks for name in task.stage.tools})
    files = [found.metadata for name in names if (found := project.tools.find(name)) is not None]
    return list(dict.fromkeys([*files, *(path.parent.parent for path in files)]))


def _surroundings() -> list[Any]:
    """Which Python looks where for packages (the first entry of sys.path is the command's own folder), which store and
    SDK are named.
    """
    named = [os.environ.get(name, "") for name in ("PYTHONPATH", "NPUBAKE_STORE", "QAIRT_SDK_ROOT")]
    return [sys.prefix, sys.version, sys.path[1:], *named]


def _package() -> list[Any]:
    """Names, sizes and times of npubake's own files."""
    found: list[list[Any]] = []
    folders = [_PACKAGE]
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == "__pycache__":
                    continue
                if entry.is_dir():
                    folders.append(entry.path)
                    continue
                facts = entry.stat()
                found.append([entry.path[len(_PACKAGE) :], facts.st_ino, facts.st_size, facts.st_mtime_ns])
    return [_PACKAGE, *sorted(found)]
