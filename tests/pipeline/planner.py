"""A planner for the tests of doit's loader: targets are the files of ``texts/``, each a chain of three tasks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from npubake.errors import Fault, UsageError
from npubake.pipeline import settled
from npubake.pipeline.doit_loader import Planned
from npubake.pipeline.graph import plan
from npubake.pipeline.project import Project
from npubake.pipeline.runrecord import RunRecord
from npubake.pipeline.task import Task
from tests.pipeline.dummies import chain


class Planner:
    """``recipe=NAME,…`` selects among the files of ``texts/``; each holds the words of its chain."""

    variables: Sequence[str] = ("recipe", "sleep")

    def __call__(self, root: Path, variables: Mapping[str, str], *, build: bool) -> Planned | str:
        """Plan the chains."""
        known = sorted(path.stem for path in (root / "texts").iterdir())
        names = variables["recipe"].split(",") if "recipe" in variables else known
        unknown = [name for name in names if name not in known]
        if unknown:
            raise UsageError(*(Fault(what=f"no recipe {name!r}", hint=f"did you mean {known[0]}?") for name in unknown))
        request = {"targets": names}
        if build and (summary := settled.check(root, request)) is not None:
            heavy = sorted({"networkx", "numpy", "onnx", "yaml", "jsonschema"} & sys.modules.keys())
            return f"settled {summary['count']} {heavy}"
        seen = settled.Seen()
        seen.add(root / "texts")
        params = {"sleep": float(variables["sleep"])} if "sleep" in variables else {}
        tasks: list[Task] = []
        for name in names:
            seen.add(root / "texts" / f"{name}.txt")
            words = (root / "texts" / f"{name}.txt").read_text().split()
            tasks += chain(root, target=name, texts=tuple(words), **params)
        ordered = plan(tasks)
        project = Project(root)

        def finish(record: RunRecord) -> str:
            summary = {"count": len(record.results)}
            settled.write(project, request, ordered, record, seen, summary)
            faults = [str(result.error) for result in record.failures]
            return "\n".join([" ".join(result.outcome for result in record.results), *faults])

        return Planned(project=project, tasks=ordered, finish=finish)


planner = Planner()
