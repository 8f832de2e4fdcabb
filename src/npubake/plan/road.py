"""Plan room: subjects -> the DAG of tasks. Pure: reads no file, runs nothing; no numpy, no onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from npubake.errors import Fault, ToolchainError
from npubake.pipeline.graph import plan as arrange
from npubake.pipeline.task import Task
from npubake.plan.qairt_road import QairtRoad
from npubake.plan.qualcomm_road import QualcommRoad
from npubake.plan.reference_road import ReferenceRoad
from npubake.plan.several_socs_road import SeveralSocsRoad
from npubake.plan.subject import Subject
from npubake.plan.target_road import TargetRoad

CHECKED_FIRST = ("import", "optimize", "check", "probe")
# Toolchain -> its roads: the first that serves a target is taken.
ROADS: Mapping[str, Sequence[type[TargetRoad]]] = {
    "reference": (ReferenceRoad,),
    "qualcomm": (QairtRoad, SeveralSocsRoad, QualcommRoad),
}


def plan(subjects: Sequence[Subject], root: Path) -> tuple[Task, ...]:
    """The tasks of all subjects in topological order, equal work merged, every ``check`` before any inference.

    Raises BuildError where ports do not fit, ToolchainError for targets of toolchains without a road.
    """
    _refuse_unknown(subjects)
    tasks = [task for subject in subjects for task in _road(subject)(subject, root).tasks()]
    return arrange(sorted(tasks, key=lambda task: task.stage.name not in CHECKED_FIRST))


def _refuse_unknown(subjects: Sequence[Subject]) -> None:
    named = {subject.target.name: subject.target.toolchain for subject in subjects}
    hint = f"toolchains that it drives: {', '.join(ROADS)}"
    faults = [
        Fault(where=name, what=f"this version of npubake has no road of toolchain {toolchain}", hint=hint)
        for name, toolchain in named.items()
        if toolchain not in ROADS
    ]
    if faults:
        raise ToolchainError(*faults)


def _road(subject: Subject) -> type[TargetRoad]:
    return next(road for road in ROADS[subject.target.toolchain] if road.serves(subject))
