"""Start-up: ``npubake --help`` over ``python -c pass``, interleaved; medians."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

REPETITIONS = 21
SIDES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "npubake --help": [str(Path(sys.executable).parent / "npubake"), "--help"],
}


def main() -> None:
    """Print both medians and the difference."""
    times: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(REPETITIONS):
        for name, command in SIDES.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, median in medians.items():
        print(f"{name:<16} median {median * 1000:6.1f} ms")
    bare, helped = medians.values()
    print(f"difference {(helped - bare) * 1000:.1f} ms (aim: at most 150 ms)")


if __name__ == "__main__":
    main()
