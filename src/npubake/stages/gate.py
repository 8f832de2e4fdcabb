"""stages: ``gate``, figures against thresholds; pure and instant, so that a new threshold recomputes nothing else."""

from __future__ import annotations

import json

from npubake.pipeline.stage import Job
from npubake.stages.json_files import write_json
from npubake.verify.diagnosis import refuse_failures
from npubake.verify.gates import Gate, judge


def run(job: Job) -> None:
    """Write ``verdict``, a list of checks; GateError with every failing figure, suspect, first action and evidence.

    Port ``evidence``: figures of the boundaries before this one, which tell where the fault lies.
    """
    gate = Gate.from_params(job.params)
    figures, evidence = (
        [json.loads(path.read_text(encoding="utf-8")) for path in job.inputs.get(port, ())]
        for port in ("figures", "evidence")
    )
    checks = judge(gate, figures)
    refuse_failures(gate, checks, figures, evidence)
    write_json(job, "verdict", [check.to_json() for check in checks])
