"""Command line room: ``new``, ``run`` and ``verify``, what concerns single files."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npubake import released
from npubake.cli import root
from npubake.errors import Fault, StageError, UsageError
from npubake.nearest import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npubake.toolchains.answers import Detected

_ARTIFACTS = (".bundle", ".npub")
_RECORD = "verify.json"  # of a bundle: no board takes it, and each build writes it before its bundle
_SHOWN_VALUES = 10


def run_new(arguments: argparse.Namespace) -> int:
    """``npubake new``: write ``recipes/<name>.yaml`` for an ONNX file, and the schema that its first line names."""
    from npubake.document.schema import schema_text
    from npubake.graph.describing import tensor_facts
    from npubake.recipe.new import SCHEMA, ModelDescription, TensorDescription, recipe_name, recipe_text

    model = Path(arguments.model)
    place = _recipes_folder(Path(arguments.directory).resolve())
    name = recipe_name(arguments.name or model.stem)
    path = place / f"{name}.yaml"
    if path.exists() and not arguments.force:
        hint = "Give another --name, or --force to overwrite it."
        raise UsageError(Fault(what="the recipe exists already", where=str(path), hint=hint))
    _know_platforms(arguments.platform or (), place.parent)
    inputs, outputs = (
        tuple(TensorDescription(name=name, shape=shape, dtype=dtype) for name, shape, dtype in facts)
        for facts in tensor_facts(model)
    )
    described = ModelDescription(path=os.path.relpath(model.resolve(), place), inputs=inputs, outputs=outputs)
    text = recipe_text(name, described, arguments.platform or ("generic",))
    schema = place.parent / SCHEMA
    written = {path: text} if schema.exists() else {schema: schema_text("recipe"), path: text}
    for file, content in written.items():
        _write(file, content)
    if arguments.json:
        print(json.dumps({"recipe": str(path), "name": name}))
    else:
        for file in written:
            print(f"wrote {file}")
        print(f"next: put calibration data where it says, then npubake check {name}")
    return 0


def _write(path: Path, text: str) -> None:
    """Raises UsageError where that is not allowed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "Make the folder writable, or work in another one."
        raise UsageError(Fault(what=f"cannot be written: {error.strerror}", where=str(path), hint=hint)) from error


def _know_platforms(names: Iterable[str], project: Path) -> None:
    """Raises UsageError, all at once, for names of no platform."""
    from npubake.platforms import load_platforms

    known = load_platforms(project)
    faults = [
        Fault(what=f"there is no platform {name!r}", where="--platform", hint=did_you_mean(name, known))
        for name in names
        if name not in known
    ]
    if faults:
        raise UsageError(*faults)


def _recipes_folder(start: Path) -> Path:
    try:
        return root.find(str(start)) / "recipes"
    except UsageError:
        return start / "recipes"  # the first recipe begins a project here


def run_run(arguments: argparse.Namespace) -> int:
    """``npubake run``: feed files to a built artifact; prints what it answers, or writes it with --out and --draw."""
    from npubake.toolchains import answers, opening

    artifact = _artifact(arguments.directory, arguments.target)
    done = opening.run(artifact, _input_files(arguments.inputs), arguments.example)
    pictures = list(done.fed.pictures.values())
    picture = pictures[0] if len(pictures) == 1 else None
    detected = answers.detections(done.outputs, picture)
    if arguments.draw:
        if detected is None or picture is None:
            what = "there is no picture to draw into" if picture is None else "the outputs are no detector's"
            raise UsageError(Fault(what=what, where="--draw", hint="Feed one picture to a detector, or leave it out."))
        _written("--draw", arguments.draw, lambda path: answers.draw(picture, detected, path))
    if arguments.out:
        _written("--out", arguments.out, lambda path: save_outputs(path, done.outputs))
    tops = {name: top for name, value in done.outputs.items() if (top := answers.strongest(value))}
    for note in done.fed.notes:
        print(f"note: {note}", file=sys.stderr)
    facts = {name: described(value) for name, value in done.outputs.items()}
    if arguments.json:
        for name, top in tops.items():
            facts[name]["top"] = [{"index": index, "value": value} for index, value in top]
        found = None if detected is None else [asdict(entry) for entry in detected]
        place = "picture" if picture else "frame"
        answer = {} if found is None else {"detections": found, "boxes_in": place}
        print(json.dumps({"outputs": facts, **answer, "out": arguments.out, "notes": done.fed.notes}, indent=1))
        return 0
    for name, fact in facts.items():
        print(f"{name}: {fact['dtype']} {fact['shape']}, {_shown(fact['min'])} .. {_shown(fact['max'])}")
        if name in tops:
            print("".join(f"  {index}: {_shown(value)}\n" for index, value in tops[name]), end="")
        elif "values" in fact:
            print("  " + " ".join(map(_shown, fact["values"])))
    if detected is not None:
        _show_detections(detected, "picture" if picture else "model's frame")
    return 0


def _input_files(words: Sequence[str]) -> list[tuple[str, Path]]:
    """(input name or '', path) of each word. Raises UsageError."""
    pairs = [word.partition("=") for word in words]
    empty = [word for word, (name, separator, file) in zip(words, pairs, strict=True)
             if not (name and (file or not separator))]  # fmt: skip
    if empty:
        hint = "Write FILE, or NAME=FILE with the model's input. Is a shell variable unset?"
        raise UsageError(*(Fault(what="no file, or no input, is named", where=repr(word), hint=hint) for word in empty))
    return [(name, Path(file)) if separator else ("", Path(name)) for name, separator, file in pairs]


def _written(option: str, place: str, write: Callable[[Path], None]) -> None:
    """Raises UsageError where the file cannot be written."""
    try:
        write(Path(place))
    except (OSError, ValueError) as error:
        hint = f"{option} takes the path of a file that may be written, with a suffix that says its format."
        reason = getattr(error, "strerror", None) or error
        raise UsageError(Fault(what=f"cannot be written: {reason}", where=place, hint=hint)) from error


def _show_detections(detected: Sequence[Detected], place: str) -> None:
    print(f"{len(detected)} detections above 0.25, boxes x1 y1 x2 y2 in pixels of the {place}")
    for entry in detected:
        print(f"  class {entry.label}  {entry.score:.3f}  " + " ".join(f"{value:.1f}" for value in entry.box))


def save_outputs(path: Path, outputs: Mapping[str, NDArray[Any]]) -> None:
    """An npz that ``numpy.load`` reads; any name of an output may stand in it (``numpy.savez`` takes no ``file``)."""
    from npubake.calibration.archive import ArchiveWriter

    with ArchiveWriter(path) as archive:
        for name, value in outputs.items():
            archive.array(f"{name}.npy", value)


def described(value: NDArray[Any]) -> dict[str, Any]:
    """dtype, shape and range of an output as JSON can hold them; the values too where they are few."""
    facts = {
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "min": _number(value.min()) if value.size else None,
        "max": _number(value.max()) if value.size else None,
    }
    return {**facts, "values": [_number(each) for each in value.ravel()]} if value.size <= _SHOWN_VALUES else facts


def _number(value: Any) -> float | int | str:
    """A number as JSON can hold it: NaN and infinities by name."""
    plain: float | int = value.item()
    return plain if math.isfinite(plain) else str(plain)


def _shown(value: float | int | str | None) -> str:
    return f"{value:.6g}" if isinstance(value, float | int) else str(value)


def run_verify(arguments: argparse.Namespace) -> int:
    """``npubake verify``: every byte of a bundle, then its model on the recorded inputs."""
    from npubake.toolchains import opening

    path = _artifact(arguments.directory, arguments.bundle)
    report = opening.verify(path, _recorded_digest(path))
    last = released.find(path.parent)
    astray = last.astray if last else ()
    if last:
        _refuse_loose(path, report.entries, last)
    if arguments.json:
        print(json.dumps({"bundle": str(path), **asdict(report), "astray": list(astray)}, indent=1, default=dict))
        return 0
    judged = "equal to the bit" if report.exact else f"within tolerance, largest difference {report.max_difference:.3g}"
    runs = report.unexecuted or f"{report.runs} recorded runs {judged}"
    print(f"{path}: {len(report.entries)} entries whole, {runs}")
    if astray:
        print(f"warning: {path.parent}: {released.astray_text(astray)}", file=sys.stderr)
    return 0


def _refuse_loose(bundle: Path, entries: Mapping[str, str], last: released.Released) -> None:
    """Raises StageError where what a board takes lies beside the good bundle with other bytes: it would be deployed.

    entries: the bundle's, sha256 by name; a file beside it may have another name.
    """
    inside = {digest: name for name, digest in entries.items() if name != _RECORD}
    loose = {bundle.parent / Path(path).name: inside.get(last.artifacts[path]) for path in last.astray}
    what = "not what the bundle holds: it was changed, or a later build was cut short"
    hint = "The bundle, a zip file, is whole: take {} from it, or build the target again."
    faults = [
        Fault(what=what, where=str(place), hint=hint.format(name))
        for place, name in loose.items()
        if name and place.is_file()
    ]
    if faults:
        raise StageError(*faults)


def _recorded_digest(bundle: Path) -> str:
    """sha256 by the manifest beside a built bundle; '' where there is none. Raises StageError for a damaged one."""
    manifest = bundle.parent / "manifest.json"
    if not manifest.is_file():
        return ""
    try:
        artifacts = json.loads(manifest.read_bytes())["reproducible"]["artifacts"]
        return next((entry["digest"] for entry in artifacts if Path(entry["path"]).name == bundle.name), "")
    except (OSError, ValueError, TypeError, KeyError) as error:
        hint = "Build the target again, or verify a copy of the bundle elsewhere."
        raise StageError(Fault(what=f"the manifest cannot be read: {error}", where=str(manifest), hint=hint)) from error


def _artifact(directory: str, named: str) -> Path:
    """A file as it is given, else the bundle of a built target, or of a folder. Raises UsageError."""
    given = Path(named)
    if given.is_file():
        if given.suffix not in _ARTIFACTS and not zipfile.is_zipfile(given):
            hint = "Name the bundle or the package that it belongs to, or the target."
            raise UsageError(Fault(what="neither a bundle nor a package", where=named, hint=hint))
        return given
    if given.is_dir() and len(bundles := list(given.glob("*.bundle"))) == 1:
        return bundles[0]
    target = named.removeprefix("recipe=")
    try:
        place = root.find(directory)
    except UsageError as error:
        raise UsageError(Fault(what="no such file, and no project here", where=named), *error.faults) from error
    bundle = place / "build" / target / f"{target}.bundle"
    if bundle.is_file():
        return bundle
    built = sorted(path.parent.name for path in (place / "build").glob("*/*.bundle"))
    hint = f"'npubake build {target}' first." + (f" Built targets: {', '.join(built)}." if built else "")
    if of_recipe := [name for name in built if name.startswith(f"{target}_")]:
        hint = f"Say which target: {', '.join(of_recipe)}."
    raise UsageError(Fault(what="neither a file nor a built target", where=named, hint=hint))
