"""What a8w8 costs the shipped detector in mAP@0.5, on 2,000 generated pictures: npubake beside its peers.

    python data/fetch_sources.py --out SOURCES
    python benchmarks/detector_map.py --cache FOLDER --sources SOURCES [--only npubake ort] [--count 2000]

The pictures come from data/generate_digits.py, validation split, seed 310, used nowhere else: no photograph or digit of
them was calibrated on. Peers' QDQ models run without graph optimisation (float simulation), npubake's integer model as
released. Drops are paired by picture; the interval is a bootstrap's (``npubake.verify.bootstrap``). Detections are kept
in FOLDER/detections by the digest of the model, so that one model can be judged again alone.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from peers import cached, process, result_file
from PIL import Image
from quantise import own_results
from rungs import Road, quantised, rung_named, write_samples
from variants import NAMES, Variant, variants

from models import ROOT, Subject, subjects
from npubake.verify import coco, detection
from npubake.verify.bootstrap import paired_drop
from npubake.verify.comparison import TracedModel

sys.path.insert(0, str(ROOT / "data"))
from letterbox import letterbox

SEED = 310
SIZE = 640
PEERS = ("ort", "nncf", "aimet")
LEFT_OUT = ("equalised, min_max", "default configuration, min_max")  # as AIMET's min_max, to 0.2 dB
RUNGS = ("default", "best_int8", "best")
THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One model to judge. record: npubake's record of the integer model, None where outputs are real numbers."""

    title: str
    model: Path
    record: Path | None = None
    optimised: bool = False


def pictures(cache: Path, sources: Path | None, count: int) -> Path:
    """The folder of generated pictures, made where it is missing."""
    folder = cache / "detector"
    if not (folder / "labels.json").exists():
        if sources is None:
            raise SystemExit("--sources is needed once: the folder that data/fetch_sources.py makes")
        options = ["--sources", str(sources), "--split", "validation", "--seed", str(SEED), "--count", str(count)]
        command = [sys.executable, str(ROOT / "data" / "generate_digits.py"), *options, "--out", str(folder)]
        subprocess.run(command, check=True)
    return folder


def peer_models(cache: Path, subject: Subject, tools: Sequence[str]) -> list[Contestant]:
    """The QDQ model of every a8w8 variant to be judged; the reason is printed where there is none."""
    found = []
    for variant in variants(tools, ["a8w8"]):
        if variant.title in LEFT_OUT or not variant.fits(subject):
            continue
        path = cache / "detector_models" / f"{result_file(cache, subject, variant).stem}.onnx"
        path.parent.mkdir(exist_ok=True)
        failed = (cached(cache, subject, variant) or {}).get("failed")
        if not failed and not path.exists():
            failed = process(cache, subject, variant, path).get("failed")
        if failed:
            print(f"{peer_title(variant)}: {failed}", flush=True)
        else:
            found.append(Contestant(title=peer_title(variant), model=path))
    return found


def peer_title(variant: Variant) -> str:
    return f"{NAMES[variant.tool]}: {variant.title}"


def own_models(cache: Path, subject: Subject, rungs: Sequence[str]) -> list[Contestant]:
    """npubake's integer models, made anew."""
    found = []
    for name in rungs:
        rung = rung_named(name)
        folder = cache / "detector_models" / name
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            road = Road(folder=Path(temporary), files={("given", "model"): subject.model_path})
            road.files["given", "samples"] = Path(temporary) / "samples.npz"
            write_samples(road.files["given", "samples"], subject.input_name, subject.calibration)
            quantised(rung, road)
            for port in ("model", "record"):
                (folder / port).write_bytes(road.files["quantize", port].read_bytes())
        found.append(
            Contestant(title=f"npubake: {rung.title}", model=folder / "model", record=folder / "record", optimised=True)
        )
    return found


def detections(cache: Path, folder: Path, names: list[str], one: Contestant) -> list[detection.Detections]:
    """Of every picture, in pixels of the picture; from the cache where this model was run before."""
    digest = hashlib.sha256(one.model.read_bytes() + "\n".join(names).encode()).hexdigest()[:16]
    path = cache / "detections" / f"{digest}.npz"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        rows = [answer(folder / name, *parts) for parts in [runner(one)] for name in names]
        counts = np.array([len(row.scores) for row in rows])
        columns = {key: np.concatenate([getattr(row, key) for row in rows]) for key in ("corners", "scores", "classes")}
        np.savez(path, counts=counts, **columns)
    with np.load(path) as data:
        ends = np.cumsum(data["counts"])[:-1]
        parts = [np.split(data[key], ends) for key in ("corners", "scores", "classes")]
    return [
        detection.Detections(corners=corners, scores=scores, classes=classes)
        for corners, scores, classes in zip(*parts, strict=True)
    ]


def runner(one: Contestant) -> tuple[onnxruntime.InferenceSession, TracedModel]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not one.optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(one.model), options, providers=["CPUExecutionProvider"])
    return session, TracedModel.load(one.model, one.record)


def answer(path: Path, session: onnxruntime.InferenceSession, model: TracedModel) -> detection.Detections:
    with Image.open(path) as image:
        frame, scale, left, top = letterbox(image.convert("RGB"), SIZE)
    feed = np.ascontiguousarray(frame.transpose(2, 0, 1)[None], dtype=np.float32) / np.float32(255)
    wanted = [traced.name for traced in model.outputs.values()]
    values = session.run(wanted, {session.get_inputs()[0].name: feed})
    real = {old: traced.real(value) for (old, traced), value in zip(model.outputs.items(), values, strict=True)}
    found = detection.detect(*detection.split_outputs(real), detection.DetectionRule())
    corners = (found.corners - np.array([left, top, left, top])) / scale
    return detection.Detections(corners=corners, scores=found.scores, classes=found.classes)


def row(title: str, result: coco.CocoResult, reference: coco.CocoResult, sqnr: str) -> str:
    drop = paired_drop(reference.matches, result.matches)
    return f"| {title} | {result.map50:.4f} | {drop.drop:.4f} | {drop.lower:.4f} to {drop.upper:.4f} | {sqnr} |"


def report(results: dict[str, coco.CocoResult], sqnr: dict[str, str]) -> str:
    """Every contestant against float, then npubake's default against each peer."""
    lines = ["| model | mAP@0.5 | drop | 90 % interval | boxes / scores, dB |", "|---|---|---|---|---|"]
    lines.append(f"| float | {results['float'].map50:.4f} | | | |")
    for title, result in results.items():
        if title != "float":
            lines.append(row(title, result, results["float"], sqnr.get(title, "")))
    lines += ["", "| npubake default against | gain | 90 % interval |", "|---|---|---|"]
    own = results.get(f"npubake: {rung_named('default').title}")
    for title, result in results.items():
        if own is not None and not title.startswith(("npubake", "float")):
            drop = paired_drop(result.matches, own.matches)
            lines.append(f"| {title} | {-drop.drop:.4f} | {-drop.upper:.4f} to {-drop.lower:.4f} |")
    return "\n".join(lines)


def head_sqnr(cache: Path, subject: Subject) -> dict[str, str]:
    """Boxes and scores on the 32 held-out pictures, from the results of quantise.py."""
    shown = {}
    for variant in variants(PEERS, ["a8w8"]):
        shown[peer_title(variant)] = both(cached(cache, subject, variant) or {})
    for name, result in own_results(cache, subject.name).items():
        if rung_named(name).lane == "a8w8":
            shown[f"npubake: {rung_named(name).title}"] = both(result)
    return shown


def both(result: Mapping[str, Any]) -> str:
    return " / ".join("-" if value is None else f"{value:.1f}" for value in result.get("sqnr_db", ()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--only", nargs="*", default=["npubake", *PEERS], choices=["npubake", *PEERS])
    parser.add_argument("--rungs", nargs="*", default=list(RUNGS), choices=RUNGS)
    options = parser.parse_args()
    cache = options.cache.resolve()
    (subject,) = subjects(cache, ("digits_yolo_640",))
    folder = pictures(cache, options.sources, options.count)
    labels = coco.CocoLabels.load(folder / "labels.json")
    names = sorted(labels.images)[: options.count]
    contestants = [Contestant(title="float", model=subject.model_path, optimised=True)]
    contestants += peer_models(cache, subject, [tool for tool in PEERS if tool in options.only])
    contestants += own_models(cache, subject, options.rungs) if "npubake" in options.only else []
    results = {}
    for one in contestants:
        results[one.title] = coco.evaluate(labels, names, detections(cache, folder, names, one))
        print(f"{one.title}: mAP@0.5 {results[one.title].map50:.4f}", flush=True)
    print(report(results, head_sqnr(cache, subject)))


if __name__ == "__main__":
    main()
