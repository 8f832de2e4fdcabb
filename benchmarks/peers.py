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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from environments import install, python_of, requirements
from floating import float_outputs, sqnr_of_outputs

from models import ENTRIES, Subject, subjects

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("ort", "nncf", "aimet", "quark", "olive")
LIMIT_SECONDS = 1800
ATTENTION = ("digits_vit", "ppocr_rec")
SMALL = ("orientation", "digits_vit", "digits_mobilenet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run one peer. options: as ``peer_runner`` reads them; only: models it is for, all where empty."""

    tool: str
    title: str
    lane: str
    options: dict[str, Any]
    only: tuple[str, ...] = ()

    def fits(self, subject: Subject) -> bool:
        return not self.only or subject.name in self.only


_ASYMMETRIC = {"CalibTensorRangeSymmetric": False}
_HTP = "htp_quantsim_config_v73_per_channel_linear"
_OLIVE = {
    "calibrate_method": "MinMax",
    "quant_format": "QDQ",
    "per_channel": True,
    "reduce_range": False,
    "activation_type": "uint8",
    "precision": "int8",
    "quant_preprocess": False,
}

VARIANTS: tuple[Variant, ...] = (
    Variant(tool="ort", title="MinMax", lane="a8w8", options={"method": "MinMax", "activation": "QUInt8"}),
    Variant(
        tool="ort",
        title="Percentile 99.999",
        lane="a8w8",
        options={"method": "Percentile", "activation": "QUInt8", "extra": {"CalibPercentile": 99.999, **_ASYMMETRIC}},
    ),
    Variant(
        tool="ort",
        title="Entropy, 128 bins (its default)",
        lane="a8w8",
        options={"method": "Entropy", "activation": "QUInt8"},
        only=(*SMALL, "efficientnet_lite0"),  # the same figures as MinMax: 128 bins leave one candidate
    ),
    Variant(
        tool="ort",
        title="Entropy, 2048 bins",
        lane="a8w8",
        options={"method": "Entropy", "activation": "QUInt8", "bins": 2048},
        only=SMALL,  # its search is a Python loop: 10 minutes and more
    ),
    Variant(tool="ort", title="MinMax", lane="a16w8", options={"method": "MinMax", "activation": "QUInt16"}),
    Variant(tool="nncf", title="mixed, fast bias correction", lane="a8w8", options={}),
    Variant(tool="nncf", title="mixed, bias correction", lane="a8w8", options={"fast_bias_correction": False}),
    Variant(
        tool="nncf",
        title="mixed, transformer (SmoothQuant)",
        lane="a8w8",
        options={"transformer": True},
        only=ATTENTION,
    ),
    Variant(tool="nncf", title="mixed, fast bias correction", lane="a16w8", options={"bits": 16}),
    Variant(
        tool="aimet",
        title="min_max",
        lane="a8w8",
        options={"configuration": _HTP, "scheme": "min_max", "activation": "int8"},
    ),
    Variant(
        tool="aimet",
        title="tf_enhanced",
        lane="a8w8",
        options={"configuration": _HTP, "scheme": "tf_enhanced", "activation": "int8"},
    ),
    Variant(
        tool="aimet",
        title="equalised, min_max",
        lane="a8w8",
        options={"configuration": _HTP, "scheme": "min_max", "activation": "int8", "equalise": True},
    ),
    Variant(
        tool="aimet",
        title="default configuration, min_max",
        lane="a8w8",
        options={"configuration": "default_config_per_channel", "scheme": "min_max", "activation": "int8"},
    ),
    Variant(
        tool="aimet",
        title="sequential MSE, min_max",
        lane="a8w8",
        options={"configuration": _HTP, "scheme": "min_max", "activation": "int8", "sequential_mse": True},
        only=SMALL,  # minutes to an hour on the others
    ),
    Variant(
        tool="aimet",
        title="min_max",
        lane="a16w8",
        options={"configuration": _HTP, "scheme": "min_max", "activation": "int16"},
    ),
    Variant(tool="quark", title="preset A8W8", lane="a8w8", options={"preset": "A8W8_QCONFIG"}),
    Variant(
        tool="quark",
        title="U8S8 per channel, MinMax",
        lane="a8w8",
        options={"method": "MinMax", "activation": "QUInt8"},
    ),
    Variant(
        tool="quark",
        title="U8S8 per channel, Percentile",
        lane="a8w8",
        options={"method": "Percentile", "activation": "QUInt8", "extra": {"Percentile": 99.999}},
        only=(*SMALL, "ppocr_cls", "efficientnet_lite0"),
    ),
    Variant(
        tool="quark",
        title="U8S8 per channel, MinMax, transformer",
        lane="a8w8",
        options={"method": "MinMax", "activation": "QUInt8", "transformer": True},
        only=ATTENTION,
    ),
    Variant(
        tool="quark",
        title="U16S8 per channel, MinMax",
        lane="a16w8",
        options={"method": "MinMax", "activation": "QUInt16"},
    ),
    Variant(tool="olive", title="OnnxStaticQuantization, MinMax", lane="a8w8", options={"settings": _OLIVE}),
)


def result_file(cache: Path, subject: Subject, variant: Variant) -> Path:
    return cache / "peers" / f"{subject.name}-{variant.tool}-{key(cache, subject, variant)}.json"


def cached(cache: Path, subject: Subject, variant: Variant) -> dict[str, Any] | None:
    """The result of an earlier run on the same model, data, options and versions; None where there is none."""
    path = result_file(cache, subject, variant)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def measured(cache: Path, subject: Subject, variant: Variant, *, again: bool = False) -> dict[str, Any]:
    """The result of one variant on one subject, from the cache unless ``again``: title, seconds, peak_mb, sqnr_db (one
    an output), or ``failed`` with the reason.
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
        **run(cache, subject, variant),
    }
    if not result.get("failed", "").startswith("absent"):
        path = result_file(cache, subject, variant)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


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


def variants(tools: Sequence[str], lanes: Sequence[str]) -> list[Variant]:
    return [variant for variant in VARIANTS if variant.tool in tools and variant.lane in lanes]


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
