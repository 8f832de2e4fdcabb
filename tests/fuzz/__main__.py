"""Long runs: ``python -m tests.fuzz --minutes 15 [--first SEED] [--folder F]``; what fails is printed by its seed."""

from __future__ import annotations

import argparse
import collections
import time
import traceback
from pathlib import Path

import onnx

from tests.fuzz.contracts import LANES, hold
from tests.fuzz.models import from_seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10**9, help="how many seeds at most")
    parser.add_argument("--folder", type=Path, help="where failing models are written")
    arguments = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.count):
        if time.monotonic() - start > 60 * arguments.minutes:
            break
        model = from_seed(seed)
        try:
            outcome = hold(model, LANES[seed % len(LANES)])
        except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on and says so
            outcome = f"{type(error).__name__} in {traceback.extract_tb(error.__traceback__)[-1].name}"
            kinds = ", ".join(node.op_type for node in model.graph.node)
            print(f"seed {seed}: {outcome}: {str(error)[:400]}\n  {kinds}", flush=True)
            if arguments.folder:
                onnx.save(model, arguments.folder / f"seed{seed}.onnx")
        if outcome.startswith("refused"):
            print(f"seed {seed}: {outcome}", flush=True)
        outcomes[outcome.partition(":")[0]] += 1
    print(dict(outcomes))


if __name__ == "__main__":
    main()
