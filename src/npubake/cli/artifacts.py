"""Command line room: ``new``, ``run`` and ``verify``, what concerns single files."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npubake import released
from npubake.cli import root
from npubake.errors import Fault, StageError, UsageError
from npubake.nearest import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    """``npubake run``: feed files to a built artifact; prints each output, or writes them with --out."""
    from npubake.toolchains.reference.running import load_deployable, run_files

    deployable = load_deployable(_artifact(arguments.directory, arguments.target))
    pairs = [word.partition("=") for word in arguments.inputs]
    empty = [word for word, (name, separator, file) in zip(arguments.inputs, pairs, strict=True)
             if not (name and (file or not separator))]  # fmt: skip
    if empty:
        hint = "Write FILE, or NAME=FILE with the model's input. Is a shell variable unset?"
        raise UsageError(*(Fault(what="no file, or no input, is named", where=repr(word), hint=hint) for word in empty))
    files = [(name, Path(file)) if separator else ("", Path(name)) for name, separator, file in pairs]
    outputs = run_files(deployable, files)
    if arguments.out:
        try:
            save_outputs(Path(arguments.out), outputs)
        except OSError as error:
            hint = "--out takes the path of a file that may be written."
            where = str(arguments.out)
            raise UsageError(Fault(what=f"cannot be written: {error.strerror}", where=where, hint=hint)) from error
    facts = {name: described(value) for name, value in outputs.items()}
    if arguments.json:
        print(json.dumps({"outputs": facts, "out": arguments.out}, indent=1))
        return 0
    for name, fact in facts.items():
        print(f"{name}: {fact['dtype']} {fact['shape']}, {_shown(fact['min'])} .. {_shown(fact['max'])}")
        if "values" in fact:
            print("  " + " ".join(map(_shown, fact["values"])))
    return 0


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
    from npubake.toolchains.reference.bundle import verify_bundle

    path = _artifact(arguments.directory, arguments.bundle)
    report = verify_bundle(path, digest=_recorded_digest(path))
    last = released.find(path.parent)
    astray = last.astray if last else ()
    if arguments.json:
        print(json.dumps({"bundle": str(path), **asdict(report), "astray": list(astray)}, indent=1, default=dict))
        return 0
    judged = "equal to the bit" if report.exact else f"within tolerance, largest difference {report.max_difference:.3g}"
    print(f"{path}: {len(report.entries)} entries whole, {report.runs} recorded runs {judged}")
    if astray:
        print(f"warning: {path.parent}: {released.astray_text(astray)}", file=sys.stderr)
    return 0


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
    """A file as it is given, else the bundle of a built target. Raises UsageError."""
    given = Path(named)
    if given.is_file():
        return given
    target = named.removeprefix("recipe=")
    try:
        place = root.find(directory)
    except UsageError as error:
        raise UsageError(Fault(what="no such file, and no project here", where=named), *error.faults) from error
    bundle = place / "build" / target / f"{target}.bundle"
    if bundle.is_file():
        return bundle
    built = sorted(path.parent.name for path in (place / "build").glob("*/*.bundle"))
    hint = f"Built targets: {', '.join(built)}." if built else f"'npubake build {target}' first."
    raise UsageError(Fault(what="neither a file nor a built target", where=named, hint=hint))
