"""Reference toolchain: feeds files to a built artifact. Paths in, arrays out; what ``npubake run`` calls.

An image goes through the preprocessing block of the build (resize, pad, crop), then as the board would feed it: encoded
for the runtime, or through the linear step where the model takes floats. An array is fed as it is: a runtime tensor,
uint8 pixels [H, W, C], or the model's own float tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from npubake.calibration.images import SUFFIXES, decode_image
from npubake.calibration.preprocessing import Preprocessing
from npubake.errors import Fault, UsageError
from npubake.graph.array_files import UnreadableArrayError, read_npy, read_npz
from npubake.toolchains.reference import bundle, canonical_zip
from npubake.toolchains.reference.executor import Arrays, Executor, run_values
from npubake.toolchains.reference.package_file import Package


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployable:
    """A package, and the expanded preprocessing that belongs to it (None: not known, images cannot be fed)."""

    package: Package
    preset: Mapping[str, Any] | None


def load_deployable(path: Path, preset: Mapping[str, Any] | None = None) -> Deployable:
    """A package or a bundle file; a bundle brings its preprocessing along. Raises StageError where it is damaged."""
    data = path.read_bytes()
    entries = canonical_zip.read(data, path.name)
    if bundle.PACKAGE not in entries:
        return Deployable(package=Package.from_bytes(data, path.name), preset=preset)
    entries = bundle.read_bundle(data, path.name)
    package = Package.from_bytes(entries[bundle.PACKAGE], f"{path.name}: {bundle.PACKAGE}")
    return Deployable(package=package, preset=preset or bundle.preprocessing(entries, path.name))


def run_files(deployable: Deployable, files: Sequence[tuple[str, Path]], *, threads: int = 1) -> Arrays:
    """Outputs, as real values, of one example. files: (input name, image, .npy or .npz); the name may be '' where the
    model has one input, and is not used for .npz, whose entries carry their names.

    Raises UsageError, all faults at once, for files that cannot be fed; StageError for arrays that do not fit.
    """
    executor = Executor(deployable.package, threads=threads)
    owners = list(dict.fromkeys(entry["model_input"] for entry in executor.contract["inputs"]))
    known = {*owners, *(entry["name"] for entry in executor.contract["inputs"])}
    values: Arrays = {}
    faults: list[Fault] = []
    for given, path in files:
        name = given or (owners[0] if len(owners) == 1 else "")
        try:
            found = _read(path, name, deployable, executor)
        except UsageError as error:
            faults += error.faults
            continue
        for key in found:
            if key in values:
                hint = "one example is run at a time; NAME=FILE says which input a file is for"
                faults.append(Fault(where=path.name, what=f"a second file for the input {key!r}", hint=hint))
            if key not in known:
                hint = f"write NAME={path.name} with one of {', '.join(sorted(known))}"
                faults.append(
                    Fault(where=path.name, what=f"there is no input {key!r}" if key else "which input?", hint=hint)
                )
        values |= found
    if faults:
        raise UsageError(*faults)
    return run_values(executor, values)


def _read(path: Path, name: str, deployable: Deployable, executor: Executor) -> Arrays:
    suffix = path.suffix.lower()
    if not path.is_file():
        hint = "name an image, .npy or .npz; relative paths count from the current folder"
        raise UsageError(Fault(where=str(path), what="there is no such file", hint=hint))
    if suffix in SUFFIXES:
        return {name: _image(path, name, deployable, executor)}
    if suffix not in (".npy", ".npz"):
        hint = f"an image ({', '.join(SUFFIXES)}), .npy or .npz"
        raise UsageError(Fault(where=path.name, what=f"{suffix or 'no suffix'} is not read", hint=hint))
    try:
        data = path.read_bytes()
        return {name: read_npy(data)} if suffix == ".npy" else read_npz(data)
    except (OSError, UnreadableArrayError) as error:
        hint = "write plain numbers: np.save, or np.savez with an array for each input"
        raise UsageError(Fault(where=path.name, what=f"it is no intact {suffix} file: {error}", hint=hint)) from error


def _image(path: Path, name: str, deployable: Deployable, executor: Executor) -> NDArray[Any]:
    """Pixels in the model's frame, or what the linear step makes of them where the model takes floats."""
    block = None if deployable.preset is None else Preprocessing.from_expanded(deployable.preset)
    if block is None:
        hint = "feed an .npy file, or name the bundle or the target, which know their preprocessing"
        raise UsageError(Fault(where=path.name, what="no image preprocessing is known for this artifact", hint=hint))
    pixels, _ = block.spatial(decode_image(path.read_bytes(), name=path.name, channels=block.channels))
    return pixels if name in executor.images else block.linear.apply(pixels)
