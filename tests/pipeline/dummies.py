"""Dummy stages and a small plan for the tests of the pipeline: text files, and a log of which stages really ran."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npubake.errors import Fault, GateError
from npubake.pipeline.graph import plan
from npubake.pipeline.project import Project
from npubake.pipeline.stage import Job, Stage
from npubake.pipeline.task import Input, Literal, Output, Publish, SourceFile, Task, task_id

HERE = "tests.pipeline.dummies"


def _log(job: Job, name: str) -> None:
    """Append the stage's name to the log that the parameters name (one write, so that processes do not mix)."""
    if "log" in job.params:
        descriptor = os.open(job.params["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, f"{name}\n".encode())
        os.close(descriptor)


def join(job: Job) -> None:
    """Output: all inputs in the order of their ports, then the parameter ``text``."""
    _log(job, job.params.get("name", "join"))
    time.sleep(job.params.get("sleep", 0))
    parts = [path.read_bytes() for port in sorted(job.inputs) for path in job.inputs[port]]
    job.progress(1, 2)
    job.outputs["text"].write_bytes(b"".join(parts) + str(job.params.get("text", "")).encode())
    job.progress(2, 2)


def length(job: Job) -> None:
    """Output: the count of bytes, so that inputs of equal length give equal bytes."""
    _log(job, job.params.get("name", "length"))
    job.outputs["text"].write_text(str(len(job.input("text").read_bytes())))


def gate(job: Job) -> None:
    """Refuses when the text is longer than ``limit``."""
    _log(job, job.params.get("name", "gate"))
    size = len(job.input("text").read_bytes())
    if size > job.params["limit"]:
        raise GateError(
            Fault(what=f"{size} bytes are over the limit", where="boundary", hint="say less"),
            Fault(what="a second fault"),
        )
    job.outputs["verdict"].write_text("passed")


def broken(job: Job) -> None:
    """A stage with a bug that prints before it raises."""
    print("printed before the end", flush=True)
    raise KeyError(job.params.get("text", "nothing"))


def forgetful(job: Job) -> None:
    """Writes none of its outputs."""


def suicidal(_: Job) -> None:
    """Dies as if the kernel had run out of memory."""
    os.kill(os.getpid(), 9)


def snoop(job: Job) -> None:
    """Writes what a worker sees of the world: its environment, folder and threads."""
    names = ("PYTHONHASHSEED", "LC_ALL", "OMP_NUM_THREADS", "SECRET")
    seen = [f"{name}={os.environ.get(name)}" for name in names]
    job.outputs["text"].write_text("\n".join([*seen, str(len(list(Path.cwd().iterdir()))), str(job.threads)]))


def heavy(job: Job) -> None:
    """Uses numpy, as real stages do."""
    import numpy as np

    values = np.arange(10, dtype=np.int64)
    job.outputs["text"].write_text(str(int(values.sum())))


def _stage(name: str, *, inputs: dict[str, str], output: str = "text", tools: tuple[str, ...] = ()) -> Stage:
    return Stage(name=name, version=1, run=f"{HERE}:{name}", inputs=inputs, outputs={output: output}, tools=tools)


JOIN = _stage("join", inputs={"file": "file*", "text": "text*", "listing": "listing?"})
LENGTH = _stage("length", inputs={"text": "text"})
GATE = _stage("gate", inputs={"text": "text"}, output="verdict")
BROKEN = _stage("broken", inputs={})
FORGETFUL = _stage("forgetful", inputs={})
SUICIDAL = _stage("suicidal", inputs={})
SNOOP = _stage("snoop", inputs={})
HEAVY = _stage("heavy", inputs={}, tools=("numpy",))


def task(
    stage: Stage,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, tuple[Input, ...]] | None = None,
    *,
    after: tuple[str, ...] = (),
    publish: str = "",
    target: str = "target",
    role: str = "",
) -> Task:
    """A task with its id."""
    params, inputs = params or {}, inputs or {}
    port = next(iter(stage.outputs))
    return Task(
        id=task_id(stage, params, inputs, after),
        stage=stage,
        params=params,
        inputs=inputs,
        after=after,
        targets=(target,),
        publish=(Publish(port=port, path=publish),) if publish else (),
        role=role,
    )


def source(path: str) -> tuple[Input, ...]:
    """One source file as the artifacts of a port."""
    return (SourceFile(path=path),)


def of(maker: Task) -> tuple[Input, ...]:
    """The first output of a task as the artifacts of a port."""
    return (Output(task=maker.id, port=next(iter(maker.stage.outputs))),)


def listing(text: str, label: str = "listing of data") -> tuple[Input, ...]:
    """A literal."""
    return (Literal(data=text.encode(), label=label),)


def chain(
    root: Path, *, target: str = "target", texts: tuple[str, ...] = ("a", "b", "c"), **params: Any
) -> tuple[Task, ...]:
    """``a`` reads in.txt, each further task the one before; all are published under build/<target>/."""
    tasks: list[Task] = []
    for number, text in enumerate(texts):
        name = f"s{number}"
        inputs = {"text": of(tasks[-1])} if tasks else {"file": source("in.txt")}
        wanted = {"name": name, "log": str(root / "log"), "text": text, **params}
        tasks.append(task(JOIN, wanted, inputs, publish=f"build/{target}/{name}.txt", target=target, role=name))
    return plan(tasks)


def ran(project: Project) -> list[str]:
    """The stages that ran since the last call, in order."""
    log = project.root / "log"
    names = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return names
