"""``python -m tests.pipeline.drive ROOT [key=value …]``: one build of a chain in its own process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from npubake.pipeline.project import Project
from npubake.pipeline.scheduler import execute
from tests.pipeline.dummies import chain


def main() -> int:
    root, *options = sys.argv[1:]
    if options and options[0].startswith("@"):
        options = Path(options[0][1:]).read_text().splitlines()
    params = {name: json.loads(value) for name, _, value in (option.partition("=") for option in options)}
    jobs = params.pop("jobs", 1)
    record = execute(Project(Path(root)), chain(Path(root), **params), jobs=jobs)
    print(json.dumps([result.to_json() for result in record.results]))
    for failure in record.failures:
        print(failure.error, file=sys.stderr)
    return 1 if record.failures else 0


if __name__ == "__main__":
    sys.exit(main())
