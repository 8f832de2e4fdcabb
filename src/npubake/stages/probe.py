"""stages: ``probe``. An adapter."""

from __future__ import annotations

from npubake.pipeline.stage import Job


def run(job: Job) -> None:
    """Not written yet."""
    raise NotImplementedError(job.params)
