"""Report room: ``manifest.json``, what exactly an artifact is. Plain data in, JSON out; reads no file, knows no store.

Two parts stand apart: ``reproducible`` has the same bytes for the same recipe, tools and CPU class; ``circumstances``
holds times, hosts and what a particular build had to do. The form is ``schemas/manifest.schema.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from npubake.report.precision import Precision

MANIFEST_VERSION = 1
UNMEASURED = "unmeasured"  # until a board record is added
BOARD_METRICS = ("latency_ms", "fps", "power_w")
_OBSERVED = ("arch", "features")  # facts of a machine that decide float results; the rest is circumstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an artifact comes from. Digests are sha256; words that the recipe does not say are ''.

    recipe_files: digest of every file that the recipe was read from, by path below the project.
    """

    recipe: str
    recipe_files: Mapping[str, str]
    lock: str
    model: str
    export_command: str = ""
    calibration_script: str = ""
    licence_model: str = ""
    licence_data: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What it was made for. sdk, bsp, runtime_package: versions that the recipe states, or ''."""

    target: str
    platform: str
    soc: str
    march: str
    toolchain: str
    toolchain_version: str
    sdk: str = ""
    bsp: str = ""
    runtime_package: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationData:
    """archive: digest of the calibration archive; purpose: ``release`` or ``smoke``; preset: expanded preprocessing."""

    archive: str
    samples: int
    purpose: str
    preset: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """One task. outputs: ``{port: {digest, size}}``; tools: versions in its key; machine: where it ran; outcome,
    seconds: in the build that wrote the manifest.
    """

    stage: str
    role: str
    key: str
    outputs: Mapping[str, Mapping[str, Any]]
    tools: Mapping[str, str]
    outcome: str
    seconds: float
    machine: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One published file, by its path below the project. digest: sha256."""

    path: str
    digest: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """All that a manifest says. contract: ``compile``'s; verified: ``verify``'s record; gates: checks of all verdicts;
    metrics: product metric, ``{name: {float, quantized}}``; board: measured on a board, by ``BOARD_METRICS``;
    compiled: what a vendor's compiler and its emulator tell of the artifact (``report.compiled``), {} where neither is;
    runtime_options: the recipe's, as they are; tuning: ``tune``'s record of what it tried; fast: a --fast trial;
    finished: UTC time in ISO 8601; npubake: its version; host: the machine of this build.
    """

    origin: Origin
    aim: Aim
    precision: Precision
    calibration: CalibrationData
    tasks: tuple[TaskFacts, ...]
    artifacts: tuple[Artifact, ...]
    contract: Mapping[str, Any]
    verified: Mapping[str, Any]
    gates: tuple[Mapping[str, Any], ...]
    metrics: Mapping[str, Any]
    npubake: str
    finished: str
    seconds: float
    host: Mapping[str, Any]
    fast: bool = False
    board: Mapping[str, float] = field(default_factory=dict)
    runtime_options: Mapping[str, Any] = field(default_factory=dict)
    tuning: Mapping[str, Any] = field(default_factory=lambda: {"level": "none"})
    compiled: Mapping[str, Any] = field(default_factory=dict)


def build_manifest(build: Build) -> dict[str, Any]:
    """The manifest as JSON data, valid against its schema."""
    machines = _machines(build)
    return {
        "version": MANIFEST_VERSION,
        "reproducible": {
            "npubake": build.npubake,
            "target": asdict(build.aim),
            "origin": asdict(build.origin),
            "releasable": releasable(build),
            "precision": _plain(asdict(build.precision)),
            "tuning": _plain(build.tuning),
            "calibration": asdict(build.calibration),
            "interface": _interface(build.contract),
            **({"compiled": _plain(build.compiled)} if build.compiled else {}),
            "runtime_options": _plain(build.runtime_options),
            "verified": {
                "exact": build.verified["exact"],
                "tolerance": build.verified["tolerance"],
                "examples": len(build.verified["runs"]),
                "comparisons": build.verified["comparisons"],
            },
            "gates": list(build.gates),
            "metrics": {**build.metrics, **{name: build.board.get(name, UNMEASURED) for name in BOARD_METRICS}},
            "tools": _tools(build.tasks),
            "observed_on": _observed_on(build.tasks),
            "tasks": [
                {"stage": task.stage, "role": task.role, "key": task.key, "outputs": task.outputs}
                for task in build.tasks
            ],
            "artifacts": [asdict(artifact) for artifact in sorted(build.artifacts, key=lambda entry: entry.path)],
        },
        "circumstances": {
            "finished": build.finished,
            "seconds": round(build.seconds, 3),
            "machines": machines,
            "host": machines.index(dict(build.host)),
            "tasks": [
                {
                    "role": task.role,
                    "outcome": task.outcome,
                    "seconds": round(task.seconds, 3),
                    "machine": machines.index(dict(task.machine)),
                }
                for task in build.tasks
            ],
        },
    }


def _machines(build: Build) -> list[dict[str, Any]]:
    """Every machine once: the build's own first, then those where tasks ran whose results were restored."""
    machines: list[dict[str, Any]] = []
    for machine in (build.host, *(task.machine for task in build.tasks)):
        if dict(machine) not in machines:
            machines.append(dict(machine))
    return machines


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """Canonical text: ``reproducible`` first, else sorted keys, one-space indent, final newline; NaN is a bug of the
    caller.
    """
    plain = json.loads(json.dumps(manifest, sort_keys=True, allow_nan=False))
    ordered = {name: plain[name] for name in sorted(plain, key=lambda name: (name != "reproducible", name))}
    return json.dumps(ordered, indent=1, ensure_ascii=False) + "\n"


def releasable(build: Build) -> dict[str, Any]:
    """Whether the artifact may be released, and every reason why not."""
    reasons = []
    if build.fast:
        reasons.append("built with --fast: a trial on few examples")
    if build.calibration.purpose != "release":
        reasons.append(f"calibration.purpose is {build.calibration.purpose}")
    failed = sorted({str(gate["boundary"]) for gate in build.gates if not gate["passed"]})
    reasons += [f"gate {boundary} failed" for boundary in failed]
    return {"value": not reasons, "reasons": reasons}


def _interface(contract: Mapping[str, Any]) -> dict[str, Any]:
    """The platform's consequences: every input and output, and memory without the offsets, where it is planned."""
    kept = ("inputs", "outputs", "runtime_inputs", "notes")
    found = {name: contract[name] for name in kept}
    found["removed"] = [
        {name: entry[name] for name in ("side", "tensor", "op_type", "why")} for entry in contract["removed"]
    ]
    if "platform_tail" in contract:
        found["platform_tail"] = contract["platform_tail"]
    if "memory" in contract:
        found["memory"] = {name: value for name, value in contract["memory"].items() if name != "placements"}
    return found


def _tools(tasks: Sequence[TaskFacts]) -> dict[str, str]:
    """Versions of every tool that is in some task's key; a restored task may have been made with its own."""
    found: dict[str, set[str]] = {}
    for task in tasks:
        for name, version in task.tools.items():
            found.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(versions)) for name, versions in sorted(found.items())}


def _observed_on(tasks: Sequence[TaskFacts]) -> dict[str, Any]:
    """CPU facts of the machine whose float results became ranges."""
    observed = [task.machine for task in tasks if task.stage == "observe"]
    return {name: observed[0].get(name) for name in _OBSERVED} if observed else {}


def _plain(value: Any) -> Any:
    """Tuples as lists, recursively, so that what is validated is what is written."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
