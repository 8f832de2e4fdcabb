"""npubake's quantiser beside the peers': SQNR on held-out inputs, time of the whole cold process, peak memory.

    python benchmarks/models.py --cache FOLDER
    python benchmarks/peers.py --cache FOLDER --install
    python benchmarks/quantise.py --cache FOLDER                     # everything; peers from the cache where they ran
    python benchmarks/quantise.py --cache FOLDER --only npubake      # npubake again, peers as they are in the cache
    python benchmarks/quantise.py --cache FOLDER --techniques        # each technique alone on the shipped models
    python benchmarks/quantise.py --cache FOLDER --times             # time and memory again, side by side
    python benchmarks/quantise.py --cache FOLDER --report --write    # no run: tables into docs/quantisation.md

Same model, 32 calibration samples and 32 held-out inputs from other sources for all; SQNR in dB pooled over each output
against the float model (``floating.py``). An absent or failing peer is named with its reason. "Best peer" is chosen
with hindsight, by the held-out figures of all its variants (``variants.py``): no user of a peer could choose so well.
npubake's rungs are fixed beforehand.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import cached, figure, measured
from rungs import RUNGS, TECHNIQUES, Rung, npubake_result, rung_named
from variants import NAMES, TOOLS, VARIANTS, Variant, variant_named

from models import ENTRIES, ROOT, Subject, subjects

DOCUMENT = ROOT / "docs" / "quantisation.md"
SHIPPED = ("digits_mobilenet", "digits_vit", "digits_yolo_640")
TIMED = (("ort", "MinMax"), ("ort", "Percentile 99.999"), ("nncf", "mixed, fast bias correction"), ("aimet", "min_max"))
QUIET = 1.5  # processes a core: the benchmark itself is one
Result = Mapping[str, Any]
Row = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is known: peers by (model, variant), npubake by (model, rung)."""

    peers: dict[tuple[str, str, str, str], Result]
    own: dict[str, dict[str, Result]]

    def peer(self, model: str, variant: Variant) -> Result | None:
        return self.peers.get((model, variant.tool, variant.title, variant.lane))

    def best_peer(self, model: str, lane: str) -> tuple[Variant, Result] | None:
        ran = [(variant, self.peer(model, variant)) for variant in VARIANTS if variant.lane == lane]
        known = [(variant, result) for variant, result in ran if result is not None and figure(result) > -math.inf]
        return max(known, key=lambda pair: figure(pair[1]), default=None)


def own_file(cache: Path, model: str, rung: str) -> Path:
    return cache / "npubake" / f"{model}-{rung}.json"


def own_results(cache: Path, model: str) -> dict[str, Result]:
    """The last result of every rung and technique, by its name."""
    files = {rung.name: own_file(cache, model, rung.name) for rung in (*RUNGS, *TECHNIQUES)}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.exists()}


def known_results(cache: Path, chosen: Sequence[Subject]) -> Results:
    peers = {}
    for subject in chosen:
        for variant in VARIANTS:
            result = cached(cache, subject, variant) if variant.fits(subject) else None
            if result is not None:
                peers[subject.name, variant.tool, variant.title, variant.lane] = result
    own = {subject.name: own_results(cache, subject.name) for subject in chosen}
    return Results(peers=peers, own=own)


def run_npubake(cache: Path, chosen: Iterable[Subject], rungs: Sequence[Rung]) -> None:
    """Each rung on each subject, kept in the cache as it goes."""
    (cache / "npubake").mkdir(exist_ok=True)
    for subject in chosen:
        for rung in rungs:
            result = npubake_result(cache, subject, rung)
            text = json.dumps(result, indent=1) + "\n"
            own_file(cache, subject.name, rung.name).write_text(text, encoding="utf-8")
            print(f"{subject.name:20s} {rung.lane:6s} {rung.title:34s} {line(result)}", flush=True)


def run_peers(cache: Path, chosen: Iterable[Subject], tools: Sequence[str]) -> None:
    for subject in chosen:
        for variant in VARIANTS:
            if variant.tool in tools and variant.fits(subject):
                result = measured(cache, subject, variant)
                print(f"{subject.name:20s} {variant.tool:6s} {variant.title:34s} {line(result)}", flush=True)


def run_times(cache: Path, chosen: Iterable[Subject]) -> None:
    """Time and memory of the timed peers and of npubake's default, in turn, on a machine that should be quiet."""
    for subject in chosen:
        for tool, title in TIMED:
            result = measured(cache, subject, variant_named(tool, title, "a8w8"), again=True)
            print(f"{subject.name:20s} {tool:6s} {title:34s} {line(result)}")
        run_npubake(cache, [subject], [rung_named("minmax"), rung_named("default")])


def line(result: Result) -> str:
    if "failed" in result:
        return f"failed: {result['failed']}"
    return f"{decibels(result)} dB, {result['process_seconds']:.1f} s, {result['peak_mb']:.0f} MB"


def decibels(result: Result | None) -> str:
    """The SQNR of each output, joined by a slash."""
    if result is None:
        return "-"
    if "failed" in result:
        return "failed"
    return " / ".join("not finite" if value is None else f"{value:.1f}" for value in result["sqnr_db"])


def table(head: Row, rows: Iterable[Row]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def accuracy_table(results: Results, chosen: Sequence[Subject], lane: str) -> str:
    rungs = [rung for rung in RUNGS if rung.lane == lane]
    rows = []
    for subject in chosen:
        best = results.best_peer(subject.name, lane)
        peer = "-" if best is None else f"{decibels(best[1])} ({NAMES[best[0].tool]}: {best[0].title})"
        own = results.own.get(subject.name, {})
        rows.append((subject.title, subject.role, peer, *(decibels(own.get(rung.name)) for rung in rungs)))
    head = ("model", "played a part", f"best peer, {lane}", *(f"npubake {rung.title}" for rung in rungs))
    return table(head, rows)


def peers_table(results: Results, chosen: Sequence[Subject]) -> str:
    rows = [
        (
            NAMES[variant.tool],
            f"{variant.title}, {variant.lane}",
            *(cell(results, subject, variant) for subject in chosen),
        )
        for variant in VARIANTS
    ]
    return table(("peer", "options", *(subject.title for subject in chosen)), rows)


def cell(results: Results, subject: Subject, variant: Variant) -> str:
    """A dash where the variant was not run yet, nothing where it is not meant for this model."""
    result = results.peer(subject.name, variant)
    return "" if result is None and not variant.fits(subject) else decibels(result)


def costs_table(results: Results, chosen: Sequence[Subject]) -> str:
    """Seconds of the whole cold process and peak memory."""
    peers = [variant_named(tool, title, "a8w8") for tool, title in TIMED]
    own = [rung_named(name) for name in ("minmax", "default", "best")]
    rows = []
    for subject in chosen:
        found = [results.peer(subject.name, variant) for variant in peers]
        found += [results.own.get(subject.name, {}).get(rung.name) for rung in own]
        rows.append((subject.title, *(cost(result) for result in found)))
    head = ("model", *(f"{NAMES[variant.tool]} {variant.title}" for variant in peers))
    return table((*head, *(f"npubake {rung.title}" for rung in own)), rows)


def cost(result: Result | None) -> str:
    """No seconds where the machine had other work: ``--times`` measures them anew."""
    if result is None or "failed" in result:
        return "-"
    seconds = f"{result['process_seconds']:.1f} s" if timed(result) else "not timed"
    return f"{seconds}, {result['peak_mb']:.0f} MB"


def timed(result: Result | None) -> bool:
    return result is not None and "failed" not in result and result.get("load", 0) <= QUIET


def techniques_table(results: Results) -> str:
    """Each technique alone on the shipped models: dB, and seconds of the quantisation beyond those of minmax."""
    rows = []
    for rung in (rung_named("minmax"), *TECHNIQUES):
        cells = []
        for model in SHIPPED:
            own = results.own.get(model, {})
            result, base = own.get(rung.name), own.get("minmax")
            seconds = ""
            if result and base and result is not base and timed(result) and timed(base):
                seconds = f" ({result['seconds'] - base['seconds']:+.1f} s)"
            cells.append(decibels(result) + seconds)
        rows.append((f"`{rung.title}`" if ":" in rung.title else rung.title, *cells))
    return table(("alone, a8w8", *(ENTRIES[model].title for model in SHIPPED)), rows)


def failures(results: Results, chosen: Sequence[Subject]) -> str:
    """Every run that failed, once a reason."""
    found: dict[str, list[str]] = {}
    for subject in chosen:
        for variant in VARIANTS:
            result = results.peer(subject.name, variant)
            if result is not None and "failed" in result:
                why = " ".join(result["failed"].split())
                what = f"{NAMES[variant.tool]}, {variant.title}, {variant.lane}: `{why}`"
                found.setdefault(what, []).append(subject.title)
        for rung in (*RUNGS, *TECHNIQUES):
            result = results.own.get(subject.name, {}).get(rung.name)
            if result is not None and "failed" in result:
                found.setdefault(f"npubake, {rung.title}, {rung.lane}: `{result['failed']}`", []).append(subject.title)
    return "\n".join(f"- {what} ({', '.join(titles)})" for what, titles in found.items()) or "None failed."


def steps_table(results: Results, chosen: Sequence[Subject]) -> str:
    """What each judged step gave on the unseen slice, from the records of the best rung."""
    rows = []
    for subject in chosen:
        result = results.own.get(subject.name, {}).get("best", {})
        for trial in result.get("tuning", {}).get("trials", ()):
            before, after = (scores(trial.get(when)) for when in ("before", "after"))
            kept = "kept" if trial.get("kept") else "not kept"
            rows.append((subject.title, trial["step"], settings(trial), before, after, kept))
    return table(("model", "step", "how", "before, dB", "after, dB", ""), rows)


def settings(trial: Mapping[str, Any]) -> str:
    """The settings of a trial in a few words; a list of tensors is counted."""
    shown = (
        f"{len(value)} {key}" if isinstance(value, list) else f"{key} {value}"
        for key, value in trial.get("settings", {}).items()
    )
    return ", ".join(shown)


def scores(values: Mapping[str, float] | None) -> str:
    return "-" if not values else " / ".join(f"{value:.1f}" for value in values.values())


def report(results: Results, chosen: Sequence[Subject]) -> dict[str, str]:
    """Every table by the marker that it stands between in the document."""
    return {
        "accuracy a8w8": accuracy_table(results, chosen, "a8w8"),
        "accuracy a16w8": accuracy_table(results, chosen, "a16w8"),
        "peers": peers_table(results, chosen),
        "costs": costs_table(results, chosen),
        "techniques": techniques_table(results),
        "steps": steps_table(results, chosen),
        "failures": failures(results, chosen),
    }


def write(document: Path, parts: Mapping[str, str]) -> None:
    """Replace what stands between ``<!-- benchmark NAME -->`` and ``<!-- end -->``."""
    text = document.read_text(encoding="utf-8")
    for name, part in parts.items():
        before, marker, rest = text.partition(f"<!-- benchmark {name} -->\n")
        if not marker:
            raise SystemExit(f"{document.name} has no place for {name!r}")
        text = before + marker + part + "\n<!-- end -->" + rest.partition("<!-- end -->")[2]
    document.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["npubake", *TOOLS], choices=["npubake", *TOOLS])
    parser.add_argument("--models", nargs="*", default=list(ENTRIES), choices=list(ENTRIES))
    parser.add_argument("--rungs", nargs="*", default=[rung.name for rung in RUNGS])
    parser.add_argument("--times", action="store_true", help="run the timed ones again, in turn")
    parser.add_argument("--techniques", action="store_true", help="run each technique alone on the shipped models")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/quantisation.md")
    options = parser.parse_args()
    cache = options.cache.resolve()
    chosen = subjects(cache, tuple(options.models))
    if options.times:
        run_times(cache, chosen)
    elif options.techniques:
        run_npubake(cache, subjects(cache, SHIPPED), [rung_named("minmax"), *TECHNIQUES])
    elif not options.report:
        run_peers(cache, chosen, [tool for tool in options.only if tool != "npubake"])
        if "npubake" in options.only:
            run_npubake(cache, chosen, [rung_named(name) for name in options.rungs])
    parts = report(known_results(cache, chosen), chosen)
    if options.write:
        write(DOCUMENT, parts)
    for name, part in parts.items():
        print(f"\n{name}\n\n{part}")


if __name__ == "__main__":
    main()
