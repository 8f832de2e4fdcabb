"""Report room: the tables that end a build. Plain data in, text out; ``cli`` alone prints.

Numbers stand at the right. Colour is the command line's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

FULL_REPORTS = 2  # targets of which a build tells everything unasked
_NOT_RELEASABLE = "NOT RELEASABLE: a trial, or calibrated for purpose smoke"
_SOURCE = "optimised"  # the graph that tuning starts from, unless another is named
_UNITS = {"cosine": "", "sqnr_db": " dB", "drop": "", "max_abs": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """rows: cells as text; align: ``<`` or ``>`` a column."""

    title: str
    columns: tuple[str, ...]
    align: tuple[Literal["<", ">"], ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """Plain text with two spaces between columns, no trailing blanks; '' where there are no rows."""
        if not self.rows:
            return ""
        rule = ["-" * width for width in _widths([self.columns, *self.rows])]
        return "\n".join([self.title, *laid_out([self.columns, rule, *self.rows], self.align)])


def laid_out(lines: Sequence[Sequence[str]], align: Sequence[str]) -> list[str]:
    """Lines of cells as text: columns as wide as their widest cell, two spaces between, no trailing blanks."""
    widths = _widths(lines)
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, align, widths, strict=True)).rstrip()
        for line in lines
    ]


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def stage_table(tasks: Sequence[Mapping[str, Any]], target: str) -> Table:
    """Every task of a target: role, outcome, seconds (of this build)."""
    rows = [
        (str(task["role"]), str(task["outcome"]), f"{task['seconds']:.2f} s")
        for task in tasks
        if target in task["targets"]
    ]
    return Table(title="Stages", columns=("stage", "outcome", "time"), align=("<", "<", ">"), rows=tuple(rows))


def gate_table(gates: Iterable[Mapping[str, Any]]) -> Table:
    """Every check: boundary, output, figure, threshold, verdict. A gate that failed before it could judge shows why."""
    rows = []
    for gate in gates:
        if not gate.get("figure"):
            rows.append((str(gate["boundary"]), "", str(gate.get("what", "")), "", "FAILED"))
            continue
        unit = _UNITS.get(gate["figure"], "")
        value = "NaN" if gate["value"] is None else f"{gate['value']:.6g}{unit}"
        sign = "<=" if gate["figure"] in ("drop", "max_abs") else ">="
        verdict = "passed" if gate["passed"] else "FAILED"
        if gate.get("warning"):
            verdict += f" ({gate['warning']})"
        rows.append(
            (
                str(gate["boundary"]),
                str(gate["output"]),
                f"{gate['figure']} {value}",
                f"{sign} {gate['threshold']:g}{unit}",
                verdict,
            )
        )
    columns = ("boundary", "output", "figure", "threshold", "verdict")
    return Table(title="Gates", columns=columns, align=("<", "<", "<", "<", "<"), rows=tuple(rows))


def tuning_table(trials: Iterable[Mapping[str, Any]]) -> Table:
    """Every step that was tried: SQNR on unseen examples before and after, the mean over the outputs, kept or not."""
    rows = []
    for trial in trials:
        before, after = (_mean_cell(trial[name]) for name in ("before", "after"))
        verdict = "kept" if trial["kept"] else "not kept"
        rows.append((str(trial["step"]), _how(trial), before, after, verdict, str(trial["why"])))
    columns = ("step", "how", "before", "after", "verdict", "why")
    return Table(title="Tuning", columns=columns, align=("<", "<", ">", ">", "<", "<"), rows=tuple(rows))


def _how(trial: Mapping[str, Any]) -> str:
    """Which of the trials of one step it is: its settings, lists of tensors counted, and the graph if another."""
    settings = dict(trial.get("settings", {}))
    words = [" ".join(str(settings.pop(key)) for key in ("how", "method", "percentile") if key in settings)]
    for key, value in settings.items():
        if key == "tensors":
            words.append(f"{len(value)} tensors")
        elif key in ("layers", "saturated"):
            words.append(f"{value} {key}")
        else:
            words.append(f"{key} {' '.join(map(str, value)) if isinstance(value, list | tuple) else value}")
    if trial.get("start", _SOURCE) != _SOURCE and trial["step"] != "equivalent_transformation":
        words.append(f"{trial['start']} graph")
    return ", ".join(filter(None, words))


def _mean_cell(decibels: Mapping[str, float] | None) -> str:
    return f"{sum(decibels.values()) / len(decibels):.2f} dB" if decibels else ""


def metric_table(metrics: Mapping[str, Any]) -> Table:
    """The product metric, float beside quantised, and what only a board can tell."""
    rows = []
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            before, after = value.get("float"), value.get("quantized")
            shown = ["" if number is None else f"{number:.4f}" for number in (before, after)]
            drop = "" if before is None or after is None else f"{before - after:+.4f}"
            rows.append((name, shown[0], shown[1], drop))
        else:
            rows.append((name, "", str(value), ""))
    columns = ("metric", "float", "quantised", "drop")
    return Table(title="Metrics", columns=columns, align=("<", ">", ">", ">"), rows=tuple(rows))


def artifact_table(artifacts: Iterable[Mapping[str, Any]]) -> Table:
    """Published files: path and size."""
    rows = [(str(entry["path"]), size_text(int(entry["bytes"]))) for entry in artifacts]
    return Table(title="Artifacts", columns=("file", "size"), align=("<", ">"), rows=tuple(rows))


def build_text(summary: Mapping[str, Any], *, verbose: bool = False) -> str:
    """What ends a build, from its summary (the object of ``build --json``): a line a target where there are many, else
    (or where ``verbose``) all tables of every target.
    """
    if len(summary["targets"]) > FULL_REPORTS and not verbose:
        return _compact_text(summary)
    parts = []
    for name, target in summary["targets"].items():
        tables = (
            stage_table(summary["tasks"], name),
            tuning_table(target.get("tuning", ())),
            gate_table(target["gates"]),
            metric_table(target["metrics"]),
            artifact_table(target["artifacts"]),
        )
        parts.append("\n\n".join([_heading(name, target), *(text for table in tables if (text := table.text()))]))
    return "\n\n\n".join(parts)


def _compact_text(summary: Mapping[str, Any]) -> str:
    """One table of all targets, how many stages had which outcome, and what may not be released."""
    targets, tasks = summary["targets"], summary["tasks"]
    counts = Counter(str(task["outcome"]) for task in tasks)
    lines = [
        target_table(targets, tasks).text(),
        "",
        "Stages: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())),
    ]
    trials = [name for name, target in targets.items() if not target["deployable"]]
    if trials:
        lines.append(f"{_NOT_RELEASABLE}: {', '.join(trials)}")
    return "\n".join([*lines, "All tables: npubake build --verbose, or name at most two targets."])


def target_table(targets: Mapping[str, Mapping[str, Any]], tasks: Sequence[Mapping[str, Any]]) -> Table:
    """A line a target; seconds: of this build, for all stages that it needed, shared ones included."""
    rows = []
    for name, target in targets.items():
        mine = [task for task in tasks if name in task["targets"]]
        seconds = sum(task["seconds"] for task in mine)
        facts = (_gates_cell(target), _metric_cell(target), _bundle_cell(target, mine))
        rows.append((name, str(target["lane"]), *facts, f"{seconds:.1f} s"))
    columns = ("target", "lane", "gates", "metric", "bundle", "time")
    return Table(title="Targets", columns=columns, align=("<", "<", "<", "<", ">", ">"), rows=tuple(rows))


def _gates_cell(target: Mapping[str, Any]) -> str:
    """Boundaries, not figures: how many passed, and which failed."""
    boundaries = dict.fromkeys(str(gate["boundary"]) for gate in target["gates"])
    failed = list(dict.fromkeys(str(gate["boundary"]) for gate in target["gates"] if not gate["passed"]))
    passed = f"{len(boundaries) - len(failed)} passed"
    return f"{passed}, FAILED: {', '.join(failed)}" if failed else passed


def _metric_cell(target: Mapping[str, Any]) -> str:
    """Float -> quantised; empty where there is no product metric or it was not come to."""
    measured = {name: value for name, value in target["metrics"].items() if isinstance(value, Mapping)}
    cells = []
    for name, value in measured.items():
        shown = [f"{value[kind]:.4f}" if value.get(kind) is not None else "?" for kind in ("float", "quantized")]
        cells.append(f"{name} {shown[0]} -> {shown[1]}")
    return ", ".join(cells)


def _bundle_cell(target: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> str:
    """Its size, or what failed before there was one."""
    sizes = [int(entry["bytes"]) for entry in target["artifacts"] if str(entry["path"]).endswith(".bundle")]
    failed = [str(task["role"]) for task in tasks if task["outcome"] == "failed"]
    return size_text(sizes[0]) if sizes else f"failed: {', '.join(failed)}" if failed else "none"


def _heading(name: str, target: Mapping[str, Any]) -> str:
    lane = f"lane {target['lane']} (from the {target['lane_decided_by']})"
    line = f"{name}: platform {target['platform']}, toolchain {target['toolchain']}, {lane}"
    return line if target["deployable"] else f"{line}\n{_NOT_RELEASABLE}"


def size_text(count: int) -> str:
    """Bytes in binary units, three significant digits: 1536 -> ``1.50 KiB``."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    if unit == "B":
        return f"{count} B"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}"
