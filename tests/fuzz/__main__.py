"""Long runs: ``python -m tests.fuzz --minutes 15 [--first SEED] [--folder F] [--tuned]``; what fails is printed by its
seed. With --tuned models go the whole road, through ``transform`` and ``tune``, each with another request.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
import time
import traceback
from pathlib import Path

import onnx

from tests.fuzz.contracts import LANES, hold
from tests.fuzz.models import from_seed
from tests.fuzz.tuned import ASKED, hold_tuned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10**9, help="how many seeds at most")
    parser.add_argument("--folder", type=Path, help="where failing models are written")
    parser.add_argument("--tuned", action="store_true", help="the whole road")
    arguments = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.count):
        if time.monotonic() - start > 60 * arguments.minutes:
            break
        model = from_seed(seed)
        try:
            outcome = _whole(model, seed) if arguments.tuned else hold(model, LANES[seed % len(LANES)])
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


def _whole(model: onnx.ModelProto, seed: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return hold_tuned(model, ASKED[seed % len(ASKED)], Path(folder), whole=seed % 4 == 0)


if __name__ == "__main__":
    main()
