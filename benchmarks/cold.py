"""The whole default quantisation beside ONNX Runtime's, each in a cold process, in turn: seconds, CPU seconds, ratio.

    python benchmarks/cold.py --cache FOLDER [--models NAME ...] [--rounds 3] [--samples 8 32 128] [--rung NAME]

From the start of Python to the saved fake-quantised (QDQ) model. npubake: its stages from ``import`` to ``tune``,
everything at its default, so ranges by the method that wins, biases corrected and activations lifted where judged
better. ONNX Runtime: ``quantize_static``, MinMax. Both on the same calibration samples; the best of the rounds counts.
On a machine with other work the CPU seconds say more than the clock, and a ratio of neighbours more than either.
``--samples``: npubake alone, the peak of memory for so many samples (those of the set, over again). ``--rung``: another
way to quantise than the default (``rungs.py``): ``thresholds`` is ``tuning: {level: none}``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peer_runner import peak_megabytes
from peers import process
from rungs import RUNGS, Road, calibrated, rung_named, write_samples
from variants import variant_named

from models import ENTRIES, Subject, subjects
from npubake.pipeline.pool import FIXED

MODELS = ("efficientnet_lite0", "digits_yolo_640")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one cold process: seconds by the clock and of CPU (its own and the system's), peak resident size in MB."""

    seconds: float
    cpu: float
    peak_mb: float


def measured_npubake(cache: Path, subject: Subject, rung: str, samples: int | None = None) -> Cost:
    words = [sys.executable, __file__, "--rung", rung, "--one", subject.model_path, cache / f"{subject.name}.npz"]
    if samples is not None:
        words += ["--samples", samples]
    before, start = os.times(), time.perf_counter()
    command, environment = [str(word) for word in words], {**os.environ, **FIXED}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return cost(before, start, json.loads(done.stdout.strip().splitlines()[-1])["peak_mb"])


def measured_ort(cache: Path, subject: Subject) -> Cost:
    variant = variant_named("ort", "MinMax", "a8w8")
    with tempfile.TemporaryDirectory() as folder:
        before, start = os.times(), time.perf_counter()
        facts = process(cache, subject, variant, Path(folder) / "quantised.onnx")
    if "failed" in facts:
        raise SystemExit(facts["failed"])
    return cost(before, start, facts["peak_mb"])


def cost(before: os.times_result, start: float, peak_mb: float) -> Cost:
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(seconds=time.perf_counter() - start, cpu=cpu, peak_mb=peak_mb)


def compare(cache: Path, subject: Subject, rung: str, rounds: int) -> None:
    """Both in turn; the best of each, and their ratio."""
    pairs = [(measured_npubake(cache, subject, rung), measured_ort(cache, subject)) for _ in range(rounds)]
    own, peer = (min(column, key=lambda one: one.cpu) for column in zip(*pairs, strict=True))
    quickest = [min(one.seconds for one in column) for column in zip(*pairs, strict=True)]
    print(
        f"{subject.name:20s} npubake {quickest[0]:5.2f} s, {own.cpu:5.2f} s of CPU, {own.peak_mb:4.0f} MB"
        f"   ORT MinMax {quickest[1]:5.2f} s, {peer.cpu:5.2f} s of CPU, {peer.peak_mb:4.0f} MB"
        f"   ratio {quickest[0] / quickest[1]:.2f}, of CPU {own.cpu / peer.cpu:.2f}",
        flush=True,
    )


def run_one(model: Path, data_file: Path, rung: str, samples: int | None) -> None:
    """The quantisation itself, in this process; prints the peak."""
    with np.load(data_file) as data:
        arrays, name = data["calibration"], str(data["input"])
    if samples is not None:
        arrays = arrays[np.arange(samples) % len(arrays)]
    with tempfile.TemporaryDirectory() as folder:
        road = Road(folder=Path(folder), files={("given", "model"): model})
        road.files["given", "samples"] = Path(folder) / "samples.npz"
        write_samples(road.files["given", "samples"], name, arrays)
        del arrays
        calibrated(rung_named(rung), road)
    print(json.dumps({"peak_mb": peak_megabytes()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(ENTRIES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", nargs="*", type=int, default=[])
    parser.add_argument("--rung", default="default", choices=[rung.name for rung in RUNGS])
    parser.add_argument("--one", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, data = options.one
        run_one(model, data, options.rung, next(iter(options.samples), None))
        return
    if options.cache is None:
        parser.error("--cache is needed")
    cache = options.cache.resolve()
    for subject in subjects(cache, tuple(options.models)):
        for samples in options.samples:
            peak_mb = measured_npubake(cache, subject, options.rung, samples).peak_mb
            print(f"{subject.name:20s} {samples:4d} samples: {peak_mb:.0f} MB")
        if not options.samples:
            compare(cache, subject, options.rung, options.rounds)


if __name__ == "__main__":
    main()
