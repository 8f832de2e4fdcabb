"""From a request to a plan: reads recipes, platforms, locks and the names of data; decodes nothing, runs nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from npubake import toolchains
from npubake.errors import BuildError, Fault, RecipeError, ToolchainError, UsageError
from npubake.nearest import did_you_mean
from npubake.pipeline.graph import needed_for
from npubake.pipeline.project import Project
from npubake.pipeline.settled import Seen
from npubake.pipeline.task import Task
from npubake.plan.road import CHECKED_FIRST, plan
from npubake.plan.subject import Subject
from npubake.platforms import platform_folder
from npubake.recipe import lock
from npubake.recipe.data import RANDOM, Listing, list_data
from npubake.recipe.labels import find_labels
from npubake.recipe.model_data import ModelData, find_model_data
from npubake.recipe.named import no_file
from npubake.recipe.quant_config import Stored
from npubake.recipe.recipe import Recipe
from npubake.recipe.targets import Catalogue, Target, load_catalogue, resolve
from npubake.stages import OPTIONAL_TOOLS, STAGES
from npubake.toolchains.vendor_sdk import sdk_version

if TYPE_CHECKING:
    from npubake.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A target that others are built without. subject: without its data."""

    subject: Subject
    error: BuildError


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request made ready. seen: what was read to plan it; locks: by recipe name; notes: what was written besides
    the build's own files; warnings: for people; refused: targets left out since the request goes on without them.
    """

    project: Project
    subjects: tuple[Subject, ...]
    tasks: tuple[Task, ...]
    seen: Seen
    locks: dict[str, lock.Applied]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    refused: tuple[Refused, ...] = ()


def prepare(
    root: Path, request: Request, *, write_lock: bool = True, lenient: bool = False, reading: bool = False
) -> Prepared:
    """Plan the request; its locks are written last, once nothing is refused, or with ``write_lock`` False not at all.

    lenient: targets whose toolchain is not installed are left out as ``refused``, even where no other is left; reading:
    they stay, since nothing will be run.

    Raises BuildError with the faults of all its toolchains, recipes, locks and data at once; with ``keep_going`` only
    where no target is without.
    """
    seen = Seen()
    _see_documents(root, seen)
    catalogue = load_catalogue(root)
    project = Project(root)
    found = _targets(catalogue, request)
    lacking = {} if reading else _lacking(found)
    bad_locks: dict[str, BuildError] = {}
    locks = _locks(found, project, request, seen, bad_locks)
    data = _DataSets(project, seen)
    subjects, refused = [], []
    for target in found:
        applied = locks[target.recipe.name]
        errors = [bad_locks[target.recipe.name]] if target.recipe.name in bad_locks else []
        errors += [lacking[target.name]] if target.name in lacking else []
        try:
            subject = _subject(target, applied, data, fast=request.fast)
        except BuildError as error:
            subject = Subject(target=target, preprocessing=applied.preprocessing, calibration=RANDOM, fast=request.fast)
            errors.append(error)
        if errors:
            refused.append(Refused(subject=subject, error=_joined(errors)))
        else:
            subjects.append(subject)
    _raise_refusals(subjects, refused, bad_locks, request, lenient=lenient)
    tasks = _until(plan(subjects, project.root), request.until)
    notes = tuple(_written([subject.target for subject in subjects], locks, seen)) if write_lock else ()
    return Prepared(
        project=project,
        subjects=tuple(subjects),
        tasks=tasks,
        seen=seen,
        locks=locks,
        notes=notes,
        warnings=tuple(_lock_warnings(locks, written=write_lock)),
        refused=tuple(refused),
    )


def _lacking(found: Sequence[Target]) -> dict[str, BuildError]:
    """Targets that need what is not installed, with what to install."""
    served = [
        toolchains.Served(
            target=target.name,
            toolchain=target.toolchain,
            options=target.recipe.toolchain_options.get(target.toolchain, {}),
        )
        for target in found
    ]
    return {name: ToolchainError(*faults) for name, faults in toolchains.missing(served).items()}


def _raise_refusals(
    subjects: Sequence[Subject],
    refused: Sequence[Refused],
    bad_locks: dict[str, BuildError],
    request: Request,
    *,
    lenient: bool,
) -> None:
    """Raise what was refused, unless the request goes on without it. refused: targets; bad_locks: by recipe name."""
    by_toolchain = lenient and all(isinstance(entry.error, ToolchainError) for entry in refused)
    if not refused or by_toolchain or (subjects and request.keep_going):
        return
    raise _joined([*bad_locks.values(), *(entry.error for entry in refused)])


def _joined(errors: Sequence[BuildError]) -> BuildError:
    """One error with the faults of all, each once: a toolchain's where nothing else is wrong."""
    faults = dict.fromkeys(fault for error in errors for fault in error.faults)
    kind = ToolchainError if all(isinstance(error, ToolchainError) for error in errors) else RecipeError
    return kind(*faults)


def _see_documents(root: Path, seen: Seen) -> None:
    folder = root / "recipes"
    platforms = platform_folder(root)
    for place in (folder, platforms):
        seen.add(place)
        for file in sorted(place.glob("*.yaml")):
            seen.add(file)


def _targets(catalogue: Catalogue, request: Request) -> tuple[Target, ...]:
    """The targets asked for; with no name, all of a project whose recipes can all be read."""
    if request.names:
        return resolve(request.names, catalogue, request.toolchain)
    if catalogue.broken:
        raise RecipeError(*(fault for error in catalogue.broken.values() for fault in error.faults))
    if not catalogue.recipes:
        raise UsageError(Fault(what="the project has no recipe", hint="'npubake new MODEL.onnx' writes one."))
    return resolve(list(catalogue.recipes), catalogue, request.toolchain)


def _locks(
    found: Sequence[Target], project: Project, request: Request, seen: Seen, refused: dict[str, BuildError]
) -> dict[str, lock.Applied]:
    """The lock that each recipe goes by; of a refused one, today's stands in for it, and ``refused`` has the error."""
    names = {name for stage in STAGES.values() for name in stage.tools if name not in OPTIONAL_TOOLS}
    tools = project.tools.versions(names)
    locks: dict[str, lock.Applied] = {}
    for target in found:
        recipe = target.recipe
        for file in recipe.files:
            seen.add(file)
        if recipe.name in locks:
            continue
        if lock.lock_path(recipe).exists():
            seen.add(lock.lock_path(recipe))
        try:
            locks[recipe.name] = lock.choose(recipe, tools, request.policy)
        except RecipeError as error:
            refused[recipe.name] = error
            locks[recipe.name] = lock.Applied(lock=lock.compute(recipe, tools))
    return locks


def _written(found: Sequence[Target], locks: dict[str, lock.Applied], seen: Seen) -> Iterable[str]:
    """Write the locks that are due; a line on each."""
    for recipe in {target.recipe.name: target.recipe for target in found}.values():
        applied = locks[recipe.name]
        if applied.due:
            path = lock.lock_path(recipe)
            lock.write(applied.lock, path)
            seen.wrote(path)
            yield f"wrote {path.name}" + (f": {applied.why}" if applied.why else "")


def _lock_warnings(locks: dict[str, lock.Applied], *, written: bool) -> Iterable[str]:
    for name, applied in locks.items():
        if applied.due and applied.why and not written:
            yield f"{name}.lock does not apply: {applied.why}; a build writes it anew"
        if applied.differences:
            changes = "; ".join(str(change) for change in applied.differences[:3])
            more = f" and {len(applied.differences) - 3} more" if len(applied.differences) > 3 else ""
            used = "the frozen preset is used; " if applied.frozen_wins else ""
            yield f"{name}.lock would differ ({changes}{more}); {used}--update-lock rewrites it"


class _DataSets:
    """Listings of data folders, each made once a build; every folder read is noted."""

    def __init__(self, project: Project, seen: Seen) -> None:
        self._project = project
        self.seen = seen
        self._made: dict[Path, Listing] = {}

    def listing(self, path: Path, where: str) -> Listing:
        """The listing of ``path``. Raises RecipeError."""
        if path not in self._made:
            self._note(path)
            self._made[path] = list_data(path, self._project.digests.digest, where)
        return self._made[path]

    def loaded(self, recipe: Recipe, faults: list[Fault]) -> dict[str, Path]:
        """The files that ``quant_config.load`` names; what is wrong with one is added to ``faults``."""
        load, found = recipe.quant_config.load, dict[str, Path]()
        for name, stored in (("samples", load.samples), ("scales", load.scales)) if load is not None else ():
            path = f"$.quant_config.load.{name}"
            if stored is not None:
                file = self._stored(stored, recipe.where(path), path)
                if isinstance(file, Fault):
                    faults.append(file)
                else:
                    found[name] = file
        return found

    def _stored(self, stored: Stored, where: str, path: str) -> Path | Fault:
        if stored.path is None:
            blob = self._project.store.blob_path(stored.digest)
            hint = "Name a file, or build again what made it; a manifest lists the digests of its artifacts."
            missing = Fault(what=f"the store holds nothing under {stored.digest}", where=where, path=path, hint=hint)
            return blob if blob.is_file() else missing
        fault = no_file(stored.path, where, path)
        if fault is not None:
            return fault
        self.seen.add(stored.path)
        digest = self._project.digests.digest(stored.path)
        if stored.digest not in ("", digest):
            what = f"{stored.path} has the sha256 {digest}, another one is stated"
            return Fault(what=what, where=where, path=path, hint="It is another file than the one that was meant.")
        return stored.path

    def _note(self, path: Path) -> None:
        if not path.is_dir():
            if path.exists():
                self.seen.add(path)
            return
        for folder, _, _ in os.walk(path):
            self.seen.add(Path(folder))


def _subject(target: Target, applied: lock.Applied, data: _DataSets, *, fast: bool) -> Subject:
    """A target with its data. Raises RecipeError with the faults of its files and of both data sets."""
    recipe, faults = target.recipe, _file_faults(target.recipe)
    weights = ModelData() if faults else find_model_data(recipe.model.path, recipe.where("$.model.path"))
    faults += weights.faults
    loaded = data.loaded(recipe, faults)

    def tried(make: Callable[[], Listing]) -> Listing:
        try:
            return make()
        except RecipeError as error:
            faults.extend(error.faults)
            return RANDOM

    source, metric = recipe.calibration.data, recipe.metric
    calibration = RANDOM if source is None else tried(lambda: data.listing(source, recipe.where("$.calibration.data")))
    validation: Listing | None = None
    if metric is not None:
        validation = tried(lambda: data.listing(metric.data, recipe.where("$.metric.data")))
    if faults:
        raise RecipeError(*faults)
    labels: tuple[Path, ...] = ()
    if metric is not None and validation is not None:
        labels = find_labels(metric.data, validation, metric.name, metric.labels)
    return Subject(
        target=target,
        preprocessing=applied.preprocessing,
        calibration=calibration,
        validation=validation,
        labels=labels,
        weights=tuple(weights.files.values()),
        loaded_samples=loaded.get("samples"),
        loaded_scales=loaded.get("scales"),
        fast=fast,
        sdk_version=sdk_version(target.toolchain, recipe.toolchain_options.get(target.toolchain, {}), data.seen.add),
    )


def _file_faults(recipe: Recipe) -> list[Fault]:
    """Single files that the recipe names and that cannot be read, each at its line."""
    named = {"$.model.path": recipe.model.path, "$.model.baseline": recipe.model.baseline}
    found = [no_file(file, recipe.where(place), place) for place, file in named.items() if file is not None]
    return [fault for fault in found if fault is not None]


def _until(tasks: tuple[Task, ...], stage: str) -> tuple[Task, ...]:
    """The tasks that ``stage`` needs, itself included, and the ``check`` of its targets before all that comes after it;
    '' for all. Raises UsageError for an unknown stage.
    """
    if not stage:
        return tasks
    wanted = [task for task in tasks if stage in (task.stage.name, task.name)]
    if not wanted:
        known = list(dict.fromkeys(task.stage.name for task in tasks))
        hint = did_you_mean(stage, known)
        raise UsageError(Fault(what=f"there is no stage {stage!r}", where="--until", hint=hint))
    late = {target for task in wanted if task.stage.name not in CHECKED_FIRST for target in task.targets}
    checks = [task for task in tasks if task.stage.name == "check" and late.intersection(task.targets)]
    return needed_for(tasks, [task.id for task in (*wanted, *checks)])
