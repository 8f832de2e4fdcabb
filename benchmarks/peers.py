"""The peers: their environments, their exact options, and one cached result for each model and variant.

    python benchmarks/peers.py --cache FOLDER --install          # an environment each, in FOLDER/venvs
    python benchmarks/peers.py --cache FOLDER [--tools ort nncf] [--only MODEL ...] [--lane a8w8] [--again]

Packages and versions stand in pyproject.toml, one extra a peer (``bench-ort``, ``bench-nncf``, ...): they cannot share
an environment. A result is one JSON file in FOLDER/peers, named by a digest of model, data, tool and options; a failure
is a result too, with its reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from environments import install, python_of, requirements
from floating import float_outputs, sqnr_of_outputs
from variants import TOOLS, Variant, variants

from models import ENTRIES, Subject, subjects

ROOT = Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 1800


def result_file(cache: Path, subject: Subject, variant: Variant) -> Path:
    return cache / "peers" / f"{subject.name}-{variant.tool}-{key(cache, subject, variant)}.json"


def cached(cache: Path, subject: Subject, variant: Variant) -> dict[str, Any] | None:
    """The result of an earlier run on the same model, data, options and versions; None where there is none."""
    path = result_file(cache, subject, variant)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def measured(cache: Path, subject: Subject, variant: Variant, *, again: bool = False) -> dict[str, Any]:
    """The result of one variant on one subject, from the cache unless ``again``: title, load, seconds, peak_mb, sqnr_db
    (one an output), or ``failed`` with the reason.
    """
    known = cached(cache, subject, variant)
    if known is not None and not again:
        return known
    result = {
        "tool": variant.tool,
        "title": variant.title,
        "lane": variant.lane,
        "options": variant.options,
        "requirements": requirements(variant.tool),
        "load": load(),
        **run(cache, subject, variant),
    }
    if not result.get("failed", "").startswith("absent"):
        path = result_file(cache, subject, variant)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def load() -> float:
    """Runnable processes a core, over the last minute: how far seconds that are measured now can be trusted."""
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)


def key(cache: Path, subject: Subject, variant: Variant) -> str:
    digest = hashlib.sha256(subject.model_path.read_bytes())
    digest.update((cache / f"{subject.name}.npz").read_bytes())
    settings = {"options": variant.options, "requirements": requirements(variant.tool)}
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def run(cache: Path, subject: Subject, variant: Variant) -> dict[str, Any]:
    """One fresh process of the peer's own environment, and what its outputs are worth."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder) / "outputs.npz"
        facts = process(cache, subject, variant, outputs)
        if "failed" in facts:
            return facts
        with np.load(outputs) as arrays:
            found = [arrays[name] for name in sorted(arrays.files)]
    return {**facts, "sqnr_db": sqnr_of_outputs(float_outputs(subject), found)}


def process(cache: Path, subject: Subject, variant: Variant, outputs: Path) -> dict[str, Any]:
    """Run ``peer_runner``; its line of facts, or ``failed`` with the reason."""
    python = python_of(cache, variant.tool)
    if not python.exists():
        return {"failed": f"absent: install it with benchmarks/peers.py --install --tools {variant.tool}"}
    with tempfile.TemporaryDirectory() as folder:
        options = Path(folder) / "options.json"
        options.write_text(json.dumps(variant.options), encoding="utf-8")
        script = Path(__file__).with_name("peer_runner.py")
        data = cache / f"{subject.name}.npz"
        words = [python, script, variant.tool, options, subject.model_path, data, outputs, time.time()]
        environment = {**os.environ, "OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
        environment.pop("PYTHONPATH", None)
        try:
            done = subprocess.run(
                [str(word) for word in words],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {LIMIT_SECONDS} s"}
    if done.returncode:
        return {"failed": reason(done.stderr) or f"ended with {done.returncode}"}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def reason(errors: str) -> str:
    """The last line of a traceback on one line, without the folders of this machine."""
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    last = " ".join(lines[-1].split()) if lines else ""
    return re.sub(rf"({re.escape(str(ROOT))}|{re.escape(tempfile.gettempdir())}|\S*/site-packages)/?", "", last)[:300]


def figure(result: dict[str, Any]) -> float:
    """What one result is ranked by: the SQNR of its worst output; -inf where it failed."""
    values = [-math.inf if value is None else value for value in result.get("sqnr_db", ())]
    return min(values, default=-math.inf)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=TOOLS)
    parser.add_argument("--only", nargs="*", default=[], choices=list(ENTRIES))
    parser.add_argument("--lane", nargs="*", default=["a8w8", "a16w8"])
    parser.add_argument("--again", action="store_true", help="run what is cached once more")
    options = parser.parse_args()
    cache = options.cache.resolve()
    if options.install:
        for tool in options.tools:
            code = install(cache, tool)
            print(f"{tool}: {'installed' if code == 0 else f'pip ended with {code}'}", flush=True)
        return
    for subject in subjects(cache, tuple(options.only)):
        for variant in variants(options.tools, options.lane):
            if variant.fits(subject):
                result = measured(cache, subject, variant, again=options.again)
                shown = result.get("failed") or (
                    f"{' / '.join(f'{value:.2f}' for value in result['sqnr_db'])} dB, "
                    f"{result['process_seconds']:.1f} s, {result['peak_mb']:.0f} MB"
                )
                print(f"{subject.name:20s} {variant.tool:6s} {variant.lane:6s} {variant.title:34s} {shown}", flush=True)


if __name__ == "__main__":
    main()
