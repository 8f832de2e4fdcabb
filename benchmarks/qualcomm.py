"""Shipped models in every lane of the Qualcomm road: gates, accuracy, sizes, seconds. A table a recipe.

    python benchmarks/qualcomm.py [--recipes NAME ...] [--socs NAME ...] [--lanes NAME ...] [--cold] [--json FILE]

Needs the extra npubake[qualcomm]. Each lane is built in a copy of the project, at the recipe's own thresholds; where a
gate fails it is said, and that gate is switched off for the figures after it. Figures of the emulator are of its few
examples; its seconds are this machine's and no latency; what the compiler simulates is labelled so. ``compile``: one
compile in a process of its own, median; ``stages``: the sum of the seconds of every stage where it ran (targets share
what they have in common); ``cold``: an empty store, by the clock; ``again``: a build with nothing to do, median.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from npubake.pipeline.store import Store
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.htp.compiling import Asked, attempt

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ("yolo_640", "digits_mobilenet", "digits_vit")
SOCS = ("qcs9075", "qcs8275")
LANES = ("a8w8", "a16w8", "a16w16", "w4a16", "fp16", "fp16_a8w8")
# Each gate without its thresholds: figures are measured and not judged.
_LOOSE = {"cosine": None, "sqnr_db": None}
LOOSE: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("optimized", "calibrated", "quantized"), _LOOSE),
    **dict.fromkeys(("converted", "compiled"), _LOOSE | {"boxes_matched": None}),
}
Read = Callable[[str], Any]
ABSENT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    recipe: str
    soc: str
    lane: str

    @property
    def name(self) -> str:
        return f"{self.recipe}_{self.lane}_{self.soc}"

    def text(self, loosened: Sequence[str]) -> str:
        """The recipe, as JSON, which YAML reads. loosened: gates that are not judged."""
        facts: dict[str, Any] = {
            "extends": f"{self.recipe}.yaml",
            "platform": self.soc,
            "quant_config": {"lane": self.lane},
        }
        gates = {name: LOOSE[name] for name in loosened if name in LOOSE}
        metric = {"metric": {"max_drop": 1.0}} if "product" in loosened else {}
        return json.dumps({**facts, **metric, **({"gates": gates} if gates else {})}, indent=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """refused: why nothing more came; failed: figures below their thresholds; figures: of ``figures``."""

    case: Case
    refused: str = ""
    failed: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)


def figures(tasks: Sequence[Mapping[str, Any]], metrics: Mapping[str, Any], read: Read) -> dict[str, Any]:
    """What is shown of a build, as far as it came. tasks, metrics: of ``build --json``; read: digest -> parsed JSON."""
    outputs = {task["role"]: task["outputs"] for task in tasks if task["outputs"]}

    def made(role: str) -> Any:
        return read(outputs[role]["figures"]["digest"]) if role in outputs else {}

    emulated = made("emulate")
    agreement = emulated.get("agreement", {}).get("outputs", {})
    metadata = read(outputs["compile"]["metadata"]["digest"]) if "compile" in outputs else {}
    return {
        "binary_bytes": outputs["compile"]["binary"]["size"] if "compile" in outputs else None,
        "bundle_bytes": outputs["package"]["bundle"]["size"] if "package" in outputs else None,
        "float_to_qdq": _pairs(made("measure quantized").get("outputs", {})),
        "float_to_emulator": _pairs(emulated.get("outputs", {})),
        "emulator_to_qdq": _pairs(agreement),
        "largest_steps": {name: found["largest_steps"] for name, found in agreement.items()},
        "float_artifact": _pairs(made("emulate float").get("outputs", {})),
        "boxes": _boxes(emulated.get("boxes")),
        "metric": next(iter(metrics.values()), {}),
        "simulated_us": (metadata.get("estimates") or {}).get("microseconds", {}).get("estimate"),
        "qnn_operators": (read(outputs["compile"]["trace"]["digest"]) if "compile" in outputs else {}).get(
            "qnn_operators", {}
        ),
        "examples": emulated.get("examples"),
    }


def _pairs(outputs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {kind: found[kind] for kind in ("sqnr_db", "cosine")} for name, found in outputs.items()}


def _boxes(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Boxes that both models show: of all shown, at the strict IoU, and also within a step of their outputs."""
    if not found:
        return None
    strict, near = found["matched"], found["matched"] + found["within_a_step"]
    alone = found["only_candidate"] + found["only_quantised"]
    return {"strict": strict, "within_a_step": near, "alone": alone, "fraction": found["fraction"]}


def below(gates: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Boundaries that failed, and what of them, in words."""
    wrong = [gate for gate in gates if not gate["passed"]]
    words = [f"{one['boundary']} {one['output']} {one['figure']} {number(one['value'])}" for one in wrong]
    return list(dict.fromkeys(one["boundary"] for one in wrong)), words


class Project:
    """A copy of the shipped project, in which each case is a recipe."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for part in ("recipes", "platforms", "models", "data"):
            if not (root / part).exists():
                shutil.copytree(ROOT / part, root / part)

    def build(self, case: Case, loosened: Sequence[str] = ()) -> dict[str, Any]:
        """What ``build --json`` says."""
        (self.root / "recipes" / f"{case.name}.yaml").write_text(case.text(loosened), encoding="utf-8")
        words = [sys.executable, "-m", "npubake", "build", case.name, "--quiet", "--json"]
        done = subprocess.run(words, cwd=self.root, env=dict(os.environ), check=False, capture_output=True, text=True)
        try:
            summary: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            sys.exit(f"{case.name}: {done.stderr}")
        return summary

    def row(self, case: Case, rounds: int) -> Row:
        """Build as far as it goes: a failed gate is noted and switched off."""
        loosened, failed = list[str](), list[str]()
        while True:
            summary = self.build(case, loosened)
            target = summary["targets"].get(case.name, {"gates": [], "metrics": {}})
            names, words = below(target["gates"])
            failed += words
            if not names or set(names) <= set(loosened):
                break
            loosened += names
        tasks = summary.get("tasks", [])
        faults = [fault for task in tasks for fault in task.get("faults", ())]
        faults += [str(fault) for fault in summary.get("faults", ())] if not tasks else []
        found = figures(tasks, target["metrics"], self.read)
        if found["binary_bytes"] is not None:
            found |= self.seconds(case, tasks, rounds if target.get("manifest") else 0)
        refused = "" if target.get("manifest") else "; ".join(faults) or "see npubake build"
        return Row(case=case, refused=refused, failed=tuple(failed), figures=found)

    def seconds(self, case: Case, tasks: Sequence[Mapping[str, Any]], rounds: int) -> dict[str, Any]:
        """Of one compile, of the emulator (its stage, with both other models, over its examples), of all stages, and of
        a build with nothing to do.
        """
        records = {task["role"]: self.store.record(task["key"]) for task in tasks if task["outputs"]}
        spent = {role: record.seconds for role, record in records.items() if record is not None}
        compiled, adapted = records["compile"], records["adapt"]
        assert compiled is not None
        assert adapted is not None
        params = compiled.dictionary["params"]
        asked = Asked(
            model=self.store.blob_path(adapted.outputs["compilable"].digest).read_bytes(),
            platform=HtpPlatform.from_params(params["platform"]),
            options=CompilerOptions.from_params(params.get("options", {})),
        )
        emulated = records.get("emulate")
        count = self.read(emulated.outputs["figures"].digest)["examples"] if emulated is not None else 0
        return {
            "compile_s": median(lambda: attempt(asked), rounds),
            "again_s": median(lambda: self.build(case), rounds),
            "emulator_s_an_example": spent["emulate"] / count if count else None,
            "stages_s": sum(spent.values()),
            "stage_seconds": spent,
        }

    def cold(self, case: Case) -> float:
        """Seconds of a build with an empty store."""
        for name in (".npubake", "build"):
            shutil.rmtree(self.root / name, ignore_errors=True)
        return median(lambda: self.build(case), 1) or 0.0

    @property
    def store(self) -> Store:
        return Store(self.root / ".npubake" / "store")

    def read(self, digest: str) -> Any:
        data = self.store.read(digest)
        return json.loads(data) if data is not None else {}


def median(work: Callable[[], object], rounds: int) -> float | None:
    """Seconds by the clock; None of no round."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) if times else None


def number(value: Any, form: str = ".4g") -> str:
    return ABSENT if value is None else format(value, form)


COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "metric float": lambda row: number(row["metric"].get("float"), ".4f"),
    "QDQ": lambda row: number(row["metric"].get("quantized"), ".4f"),
    "float → QDQ, dB": lambda row: _decibels(row["float_to_qdq"]),
    "float → emulator, dB": lambda row: _decibels(row["float_to_emulator"]),
    "its cosine": lambda row: " / ".join(number(one["cosine"], ".5f") for one in row["float_to_emulator"].values()),
    "emulator → QDQ, dB": lambda row: _decibels(row["emulator_to_qdq"]),
    "steps at most": lambda row: " / ".join(number(one) for one in row["largest_steps"].values()),
    "float artifact, dB": lambda row: _decibels(row["float_artifact"]),
    "boxes": lambda row: _shown(row["boxes"]),
    "binary, KiB": lambda row: number(_kib(row["binary_bytes"]), ".0f"),
    "bundle, KiB": lambda row: number(_kib(row["bundle_bytes"]), ".0f"),
    "simulated, ms": lambda row: number(row["simulated_us"] and row["simulated_us"] / 1000, ".2f"),
    "compile, s": lambda row: number(row.get("compile_s"), ".1f"),
    "emulator, s an example": lambda row: number(row.get("emulator_s_an_example"), ".2f"),
    "stages, s": lambda row: number(row.get("stages_s"), ".0f"),
    "cold, s": lambda row: number(row.get("cold_s"), ".0f"),
    "again, s": lambda row: number(row.get("again_s"), ".2f"),
}


def _decibels(outputs: Mapping[str, Mapping[str, Any]]) -> str:
    return " / ".join(number(one["sqnr_db"], ".1f") for one in outputs.values()) or ABSENT


def _kib(size: int | None) -> float | None:
    return size if size is None else size / 1024


def _shown(boxes: Mapping[str, Any] | None) -> str:
    if boxes is None:
        return ABSENT
    return f"{boxes['strict']} + {boxes['within_a_step'] - boxes['strict']}, {boxes['alone']} alone"


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown, a row a case. boxes: matched strictly + within a step of their outputs, shown by one model alone."""
    shown = [name for name, of in COLUMNS.items() if any(row.figures and of(row.figures) != ABSENT for row in rows)]
    yield "| " + " | ".join(("SoC", "lane", "gates", *shown)) + " |"
    yield "|---" * (len(shown) + 3) + "|"
    for row in rows:
        parts = [*(["fail: " + "; ".join(row.failed)] if row.failed else []), *([row.refused] if row.refused else [])]
        verdict = " / ".join(parts) or "pass"
        cells = [COLUMNS[name](row.figures) if row.figures else ABSENT for name in shown]
        yield "| " + " | ".join((row.case.soc, row.case.lane, verdict.replace("\n", " "), *cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--socs", nargs="*", default=list(SOCS))
    parser.add_argument("--lanes", nargs="*", default=list(LANES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="also build each case with an empty store")
    parser.add_argument("--project", type=Path, help="a folder that keeps the builds")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project, every = Project(asked.project or Path(folder) / "project"), list[Row]()
        for recipe in asked.recipes:
            cases = [Case(recipe=recipe, soc=soc, lane=lane) for lane in asked.lanes for soc in asked.socs]
            rows = []
            for case in cases:
                row = project.row(case, asked.rounds)
                if asked.cold:
                    row = Row(**{**asdict(row), "case": case, "figures": {**row.figures, "cold_s": project.cold(case)}})
                rows.append(row)
                every.append(row)
                print(case.name, row.refused or "built", file=sys.stderr, flush=True)
                if asked.json:
                    asked.json.write_text(json.dumps([asdict(one) for one in every], indent=1), encoding="utf-8")
            print(f"\n{recipe}\n", *table(rows), sep="\n", flush=True)


if __name__ == "__main__":
    main()
