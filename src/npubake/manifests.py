"""The manifest of each whole target, written beside its artifacts from what the build did. Reads the store."""

from __future__ import annotations

import json
import shutil
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from npubake import released
from npubake.errors import Fault, StoreError
from npubake.outcome import product_metrics, read_json, target_summary
from npubake.pipeline.files import write_atomic
from npubake.pipeline.machine import machine
from npubake.pipeline.runrecord import RunRecord, TaskResult
from npubake.plan.subject import Subject
from npubake.preparation import Prepared
from npubake.report import manifest as form
from npubake.report.compiled import Compilation, compiled_block
from npubake.report.precision import Precision
from npubake.toolchains import licence

ASIDE = (
    "failed",
    "until",
)  # folders of build/<target>/ for what is not of its manifest; the next whole build removes them


def write_manifests(prepared: Prepared, record: RunRecord) -> list[Path]:
    """Write ``build/<target>/manifest.json`` of every target that was built whole; its paths.

    A manifest that would differ in circumstances alone (times, hosts) is left as it is. Raises StoreError.
    """
    written = []
    for subject in prepared.subjects:
        if target_summary(prepared, subject, record)["manifest"] is None:
            continue
        path = prepared.project.root / "build" / subject.name / "manifest.json"
        manifest = form.build_manifest(_build(prepared, subject, record))
        known = _read(path)
        if known is None or known["reproducible"] != json.loads(json.dumps(manifest["reproducible"])):
            try:
                write_atomic(path, form.manifest_text(manifest).encode(), "manifest")
            except OSError as error:
                what = f"the manifest cannot be written: {error.strerror}"
                hint = "Free space, make the folder writable, or move away what stands there; then build again."
                raise StoreError(Fault(what=what, where=str(path), hint=hint)) from error
            _remove_left_over(prepared.project.root, subject, known, manifest)
        for name in ASIDE:
            shutil.rmtree(path.parent / name, ignore_errors=True)
        written.append(path)
    return written


def set_aside(prepared: Prepared, record: RunRecord) -> dict[str, str]:
    """Where a target with a manifest was not built whole, its folder stays what the manifest says: what this build
    published there and is not the manifest's goes to ``failed/`` or (a build that was to end early) ``until/``, and the
    last good files come back from the store. Old path -> new path. Raises StoreError.
    """
    moved: dict[str, str] = {}
    for subject in prepared.subjects:
        folder = prepared.project.root / "build" / subject.name
        last = released.find(folder)
        if last is None or target_summary(prepared, subject, record)["manifest"] is not None:
            continue
        mine = [result for result in record.results if subject.name in result.task.targets]
        aside = folder / ASIDE[0 if any(result.outcome in ("failed", "skipped") for result in mine) else 1]
        made = {artifact.path: artifact.digest for artifact in _artifacts(subject, mine)}
        foreign = [
            path
            for path, digest in made.items()
            if last.artifacts.get(path) != digest and (folder.parent.parent / path).is_file()
        ]
        try:
            shutil.rmtree(aside, ignore_errors=True)
            for path in foreign:
                moved[path] = _put_right(prepared, folder, aside, path, last.artifacts.get(path))
        except OSError as error:
            hint = "Free space, or make the folder writable; then build again."
            what = f"the last good files cannot be put back: {error.strerror}"
            raise StoreError(Fault(what=what, where=str(folder), hint=hint)) from error
    return moved


def _put_right(prepared: Prepared, folder: Path, aside: Path, path: str, good: str | None) -> str:
    """Move one file aside, and restore the one that the manifest names; its new path below the project."""
    root = prepared.project.root
    place = aside / (root / path).relative_to(folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    (root / path).replace(place)
    if good is not None:
        prepared.project.store.restore(good, root / path)  # what the store has lost stays away, and ``status`` tells it
    return place.relative_to(root).as_posix()


def _read(path: Path) -> dict[str, Any] | None:
    """The manifest that stands there, if it is one that npubake wrote and nobody touched."""
    try:
        text = path.read_text(encoding="utf-8")
        known = json.loads(text)
    except (OSError, ValueError):
        return None
    whole = isinstance(known, dict) and set(known) == {"version", "reproducible", "circumstances"}
    return known if whole and form.manifest_text(known) == text else None


def _remove_left_over(root: Path, subject: Subject, known: dict[str, Any] | None, manifest: dict[str, Any]) -> None:
    """Remove what the last build of the target published and this one does not, so that nothing stale stands beside."""
    if known is None:
        return
    folder = root / "build" / subject.name
    now = {artifact["path"] for artifact in manifest["reproducible"]["artifacts"]}
    for artifact in known["reproducible"]["artifacts"]:
        path = root / artifact["path"]
        if artifact["path"] not in now and path.resolve().is_relative_to(folder.resolve()):
            path.unlink(missing_ok=True)


def _build(prepared: Prepared, subject: Subject, record: RunRecord) -> form.Build:
    results = [result for result in record.results if subject.name in result.task.targets]
    made = {result.task.name: result for result in results}
    recipe = subject.target.recipe
    facts = _Facts(prepared=prepared, subject=subject, made=made)
    verdicts = [read_json(prepared, result, "verdict") for result in results if result.task.stage.name == "gate"]
    checks = [check for verdict in verdicts for check in verdict]
    decided, contract = facts.decided(), facts.record("compile", "contract")
    return form.Build(
        origin=_origin(prepared, subject, made["import"]),
        aim=_aim(subject, contract),
        precision=facts.precision(),
        tuning=(decided or {}).get("tuning", {"level": "none"}),
        calibration=form.CalibrationData(
            archive=made["samples"].outputs["archive"].digest,
            samples=_examples(prepared, made["samples"]),
            purpose=recipe.calibration.purpose,
            preset=subject.preprocessing.expanded(),
        ),
        tasks=tuple(_task(result) for result in results),
        artifacts=tuple(_artifacts(subject, results)),
        contract=contract,
        runtime_options=recipe.runtime_options,
        verified=facts.record("verify", "record"),
        gates=tuple(checks),
        compiled=facts.compiled(checks),
        metrics=product_metrics(prepared, results),
        npubake=version("npubake"),
        finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=record.seconds,
        host=machine(),
        fast=subject.fast,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the stages of one whole target say of it. made: results by role.

    The roads differ: toolchain reference lowers (``quantize``), others adapt and compile with a vendor's compiler; a
    lane in float, or another quantiser, has neither ``calibrate`` nor ``tune``.
    """

    prepared: Prepared
    subject: Subject
    made: Mapping[str, TaskResult]

    def record(self, role: str, port: str) -> dict[str, Any]:
        """JSON of an output of the task of that role."""
        return dict(read_json(self.prepared, self.made[role], port))

    def decided(self) -> dict[str, Any] | None:
        """The record of what decided the integers."""
        role = next((role for role in ("tune", "calibrate") if role in self.made), None)
        return None if role is None else self.record(role, "record")

    def precision(self) -> Precision:
        decided, by = self.decided(), self.subject.target.lane.decided_by
        if "adapt" not in self.made:
            assert decided is not None
            return Precision.from_record(decided, by, self.record("quantize", "record"))
        groups = {group["name"]: group["kind"] for group in self.record("optimize", "graph")["groups"]}
        return Precision.from_adapted(self.record("adapt", "record"), by, decided, groups)

    def compiled(self, checks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What a vendor's compiler and emulator tell; {} on a road without them."""
        if "adapt" not in self.made:
            return {}
        model = self.subject.target.recipe.model
        contract = self.record("compile", "contract")
        made = Compilation(
            contract=contract,
            adapted=self.record("adapt", "record"),
            metadata=self.record("compile", "metadata"),
            verified=self.record("verify", "record"),
            baseline=None if model.baseline is None else model.baseline_cosine,
            licence=licence(contract),
        )
        return compiled_block(made, checks)


def _examples(prepared: Prepared, samples: TaskResult) -> int:
    """How many examples the sample set holds: as asked for, or, where it was loaded, as its archive says."""
    if "count" in samples.task.params:
        return int(samples.task.params["count"])
    with zipfile.ZipFile(prepared.project.store.blob_path(samples.outputs["archive"].digest)) as archive:
        return len(json.loads(archive.read("samples.json"))["examples"])


def _origin(prepared: Prepared, subject: Subject, imported: TaskResult) -> form.Origin:
    recipe, root, digest = subject.target.recipe, prepared.project.root, prepared.project.digests.digest
    dictionary = imported.record.dictionary if imported.record else {}
    return form.Origin(
        recipe=recipe.name,
        recipe_files={_below(file, root): digest(file) for file in recipe.files},
        lock=prepared.locks[recipe.name].digest,
        model=dictionary["inputs"]["model"][0],
        export_command=recipe.model.export_command,
        calibration_script=recipe.calibration.script_version,
        licence_model=recipe.licence.model,
        licence_data=recipe.licence.data,
    )


def _below(path: Path, root: Path) -> str:
    resolved = path.resolve()
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else resolved.name


def _aim(subject: Subject, contract: Mapping[str, Any]) -> form.Aim:
    """toolchain_version: of what made the artifact, as its contract says; an SDK is no package that is installed."""
    target, platform = subject.target, subject.target.platform
    sdk = target.options.sdk
    return form.Aim(
        target=subject.name,
        platform=platform.name,
        soc=platform.soc.value,
        march=platform.march.value or "",
        toolchain=target.toolchain,
        toolchain_version=contract["toolchain"]["version"],
        sdk=sdk.version,
        bsp=sdk.bsp,
        runtime_package=sdk.runtime,
    )


def _task(result: TaskResult) -> form.TaskFacts:
    assert result.record is not None
    assert result.key is not None
    return form.TaskFacts(
        stage=result.task.stage.name,
        role=result.task.name,
        key=result.key,
        outputs={port: {"digest": blob.digest, "size": blob.size} for port, blob in result.outputs.items()},
        tools=result.record.dictionary.get("tools", {}),
        outcome=result.outcome,
        seconds=result.seconds,
        machine=result.record.machine,
    )


def _artifacts(subject: Subject, results: Sequence[TaskResult]) -> list[form.Artifact]:
    folder = f"build/{subject.name}/"
    return [
        form.Artifact(path=item.path, digest=result.outputs[item.port].digest, bytes=result.outputs[item.port].size)
        for result in results
        for item in result.task.publish
        if result.outputs and item.path.startswith(folder)
    ]
