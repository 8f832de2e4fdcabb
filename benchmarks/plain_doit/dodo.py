"""As many tasks as npubake has, in plain doit: one file_dep and one target each, the stock backend.

CHAINS (recipes) of TASKS each; task k of a chain reads what task k - 1 made.
"""

import os
import shutil
from pathlib import Path

CHAINS = int(os.environ.get("CHAINS", "1"))
TASKS = 10
DOIT_CONFIG = {"verbosity": 0}


def _copy(source, target):
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def task_build():
    """CHAINS x TASKS copies."""
    for chain in range(CHAINS):
        for step in range(TASKS):
            source = f"in/{chain:03d}.txt" if step == 0 else f"out/{chain:03d}_{step - 1}.txt"
            target = f"out/{chain:03d}_{step}.txt"
            yield {
                "name": f"{chain:03d}_{step}",
                "actions": [(_copy, [source, target])],
                "file_dep": [source],
                "targets": [target],
            }
