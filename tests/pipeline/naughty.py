"""Stages that touch what they did not declare, for the test of the watch itself."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from npubake.pipeline.stage import Job


def reads_elsewhere(job: Job) -> None:
    job.outputs["text"].write_text(Path("/etc/hostname").read_text())


def writes_elsewhere(job: Job) -> None:
    Path(job.params["path"]).write_text("x")
    job.outputs["text"].write_text("")


def connects(job: Job) -> None:
    socket.socket().close()
    job.outputs["text"].write_text("")


def spawns(job: Job) -> None:
    subprocess.run(["true"], check=True)
    job.outputs["text"].write_text("")


def good(job: Job) -> None:
    Path("scratch").write_text("x")
    job.outputs["text"].write_bytes(job.input("file").read_bytes() + Path("scratch").read_bytes())
