"""stages: how every stage writes a JSON artifact, so that the same facts are the same bytes."""

from __future__ import annotations

import json
from typing import Any

from npubake.pipeline.stage import Job


def write_json(job: Job, port: str, facts: Any) -> None:
    """The file of output ``port``: keys sorted, a line a value. Raises ValueError for NaN and infinities: no JSON."""
    text = json.dumps(facts, sort_keys=True, indent=1, allow_nan=False)
    job.outputs[port].write_text(text + "\n", encoding="utf-8")
