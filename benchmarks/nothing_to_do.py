"""A build with nothing to do against plain doit, in one run, interleaved: wall time, medians and ratios.

    python benchmarks/nothing_to_do.py [--repetitions 15] [--recipes 1 100]

Both sides have as many tasks. npubake's recipes differ in their thresholds, so that each has gates, deployables and
published files of its own; they share the rest. Then one output and one input are edited: the same command must notice
both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.e2e.workspace import Workspace  # noqa: E402

BIN = Path(sys.executable).parent


def wall(command: list[str], cwd: Path, env: dict[str, str]) -> float:
    """Seconds of one command, which must succeed."""
    start = time.perf_counter()
    subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True)
    return time.perf_counter() - start


def prepare_npubake(root: Path, recipes: int) -> Workspace:
    """A project with ``recipes`` recipes, built."""
    workspace = Workspace.create(root)
    text = workspace.recipe.read_text()
    for index in range(1, recipes):
        least = 1 + index / 100
        boundaries = ("optimized", "calibrated", "ptq", "quantized")
        gates = "\n".join(f"  {name}: {{sqnr_db: {least}}}" for name in boundaries)
        other = text.replace("  quantized: {cosine: 0.98, sqnr_db: 15}", gates)
        other = other.replace("max_drop: 0.1", f"max_drop: {0.1 + index / 1000}")
        other = other.replace("platform: generic", "platforms: [generic, j6b]")
        (root / "recipes" / f"small{index:03d}.yaml").write_text(other)
    result = workspace.run("build", "-q")
    if result.code:
        sys.exit(result.err)
    workspace.run("build", "-q")
    return workspace


def prepare_doit(root: Path, tasks: int) -> dict[str, str]:
    """Plain doit's project with the same number of tasks, built."""
    chains = max(1, tasks // 10)
    (root / "in").mkdir(parents=True)
    for chain in range(chains):
        (root / "in" / f"{chain:03d}.txt").write_text(str(chain))
    shutil.copy(HERE / "plain_doit" / "dodo.py", root)
    env = {**os.environ, "CHAINS": str(chains)}
    wall([str(BIN / "doit")], root, env)
    return env


def compare(recipes: int, repetitions: int, folder: Path) -> None:
    """Print one block of figures."""
    workspace = prepare_npubake(folder / "npubake", recipes)
    tasks = len(workspace.run("build", "--json").json["tasks"])
    env = prepare_doit(folder / "doit", tasks)
    sides = {
        "plain doit": ([str(BIN / "doit")], folder / "doit", env),
        "npubake build": ([str(BIN / "npubake"), "build"], workspace.root, workspace.env()),
        "doit build (npubake)": ([str(BIN / "doit"), "build"], workspace.root, workspace.env()),
        "python -c pass": ([sys.executable, "-c", "pass"], folder, dict(os.environ)),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repetitions):
        for name, (command, cwd, environment) in sides.items():
            times[name].append(wall(command, cwd, environment))
    base = statistics.median(times["plain doit"])
    plain = max(1, tasks // 10) * 10
    print(f"{recipes} recipes, {tasks} tasks (plain doit: {plain}), {repetitions} interleaved repetitions")
    for name, found in times.items():
        median = statistics.median(found)
        print(
            f"  {name:<22} median {median * 1000:7.1f} ms  min {min(found) * 1000:7.1f} ms  ratio {median / base:5.2f}"
        )
    notice(workspace)


def notice(workspace: Workspace) -> None:
    """One edited output, then one edited input: the same command notices both."""
    output = next(iter(sorted((workspace.root / "build").glob("*/*_quantized_model.onnx"))))
    good = output.read_bytes()
    output.chmod(0o644)
    output.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    workspace.run("build", "-q")
    model = workspace.root / "models" / "digits_mobilenet.onnx"
    noticed_output = output.read_bytes() == good
    model.write_bytes(model.read_bytes() + b"\x1a\x00")  # an unknown empty field: another file, the same model
    ran = workspace.build("--quiet").ran()
    print(f"  edited output restored: {noticed_output}; edited input: {', '.join(sorted(set(ran)))} ran")


def main() -> None:
    """Parse the command line and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--recipes", type=int, nargs="+", default=[1, 100])
    arguments = parser.parse_args()
    for recipes in arguments.recipes:
        with tempfile.TemporaryDirectory() as folder:
            compare(recipes, arguments.repetitions, Path(folder))


if __name__ == "__main__":
    main()
