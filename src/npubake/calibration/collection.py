"""calibration: from listed source files to a sample set, every fault of the set at once. Paths in, a sample set out.

A *listing* is ``{kind, examples: [{input name or "": file name}], files: [{name, digest}]}``, made by the plan; ""
stands for the model's only input, or for a file that holds all inputs by name. An array of an npz with one more
dimension than an example needs (or, for tensors, another batch than the model's one) is a *stack* of examples. Where
there are more examples than asked for, they are taken evenly spaced in the listing's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npubake.calibration import arrays, images
from npubake.calibration.inputs import Request, Slot, frame_fault, make_slots, random_value
from npubake.calibration.preprocessing import Geometry
from npubake.calibration.refusals import Census, FaultList, check_pixels, check_prepared
from npubake.calibration.samples import Example, SampleWriter, Source
from npubake.calibration.sequences import length_fault, padding_faults
from npubake.errors import BuildError, Fault, RecipeError
from npubake.graph.summary import GraphSummary

Progress = Callable[[int, int], None]
RANDOM_SEED = 20240229
RANDOM_COUNT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """One example before it is read: its files by input, and its item in their stacks."""

    files: Mapping[str, str]
    item: int | None

    @property
    def where(self) -> str:
        item = "" if self.item is None else f"[{self.item}]"
        return ", ".join(sorted(f"{name}{item}" for name in set(self.files.values())))


class SourceFiles:
    """The listed files by name. The arrays of the file read last are kept, so that a stack is read once."""

    def __init__(self, listing: Mapping[str, Any], paths: Sequence[Path]) -> None:
        entries = listing["files"]
        self.kind: str = listing["kind"]
        self.examples: list[dict[str, str]] = listing["examples"]
        self._paths = {entry["name"]: path for entry, path in zip(entries, paths, strict=True)}
        self.digests: dict[str, str] = {entry["name"]: entry["digest"] for entry in entries}
        self._last: tuple[str, dict[str, NDArray[Any]]] = ("", {})

    def bytes(self, name: str) -> bytes:
        return self._paths[name].read_bytes()

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        if self._last[0] != name:
            self._last = (name, arrays.read_arrays(self.bytes(name), name=name))
        return self._last[1]


class _Collector:
    """Reads examples into stored form; adds faults to a list instead of stopping at the first."""

    def __init__(self, slots: Mapping[str, Slot], files: SourceFiles, faults: FaultList, request: Request) -> None:
        self.slots = slots
        self.files = files
        self.faults = faults
        self.census = _census(slots)
        self.padded: bool = request.preset.get("sequence", {}).get("padded", True)

    def units(self, examples: Sequence[Mapping[str, str]]) -> Iterator[_Unit]:
        """The listed examples, stacks spread out."""
        for example in examples:
            size = self._stack_size(example)
            for item in [None] if size is None else range(size):
                yield _Unit(files=example, item=item)

    def _stack_size(self, example: Mapping[str, str]) -> int | None:
        """Examples in the npz stacks of one listed example; None where it is one example, 0 where it is refused."""
        sizes: set[int | None] = set()
        for key, name in example.items():
            if PurePosixPath(name).suffix.lower() == ".npz":
                try:
                    named = self._by_input(key, self.files.arrays(name))
                except BuildError as error:
                    self.faults.add(*error.faults)
                    return 0
                sizes |= {len(value) if self.slots[target].stacked(value) else None for target, value in named.items()}
        if len(sizes) > 1:
            where = _Unit(files=example, item=None).where
            sizes_text = ", ".join(sorted("one" if size is None else str(size) for size in sizes))
            self.faults.add(
                Fault(
                    what=f"its arrays hold different numbers of examples: {sizes_text}",
                    where=where,
                    hint="each example needs all inputs, taken from the same moment",
                )
            )
            return 0
        if sizes == {0}:
            hint = "remove the file, or find out why nothing was stored"
            self.faults.add(
                Fault(what="its arrays hold no example", where=_Unit(files=example, item=None).where, hint=hint)
            )
        return sizes.pop() if sizes else None

    def _by_input(self, key: str, found: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The arrays of one file by model input; where one is wanted and one is there, its name does not matter."""
        wanted = [key] if key else list(self.slots)
        named = {name: found[name] for name in wanted if name in found}
        if not named and len(wanted) == 1 and len(found) == 1:
            named = {wanted[0]: next(iter(found.values()))}
        return named

    def read(self, unit: _Unit) -> Example | None:
        """One example, or None where something in it is refused."""
        before = len(self.faults.faults)
        stored: dict[str, NDArray[Any]] = {}
        geometry: dict[str, Geometry] = {}
        sources: dict[str, Source] = {}
        for key, name in unit.files.items():
            if key and key not in self.slots:
                self.faults.add(_unknown_input(key, list(self.slots), unit.where))
                continue
            source = Source(name=name, digest=self.files.digests[name], item=unit.item)
            for target, value in self._values(key, name, unit.item).items():
                fault, stored[target], placed = self._store(self.slots[target], value, source.where)
                if fault is not None:
                    self.faults.add(fault)
                if placed is not None:
                    geometry[target] = placed
                sources[target] = source
        missing = [name for name in self.slots if name not in sources]
        if missing and len(self.faults.faults) == before:
            self.faults.add(
                Fault(
                    what=f"nothing for the input {', '.join(map(repr, missing))}",
                    where=unit.where,
                    hint="one example holds all inputs: a JSON list names a file for each",
                )
            )
        if len(self.faults.faults) == before:
            axes = {name: slot.axes for name, slot in self.slots.items()}
            self.faults.add(*padding_faults(stored, axes, padded=self.padded, where=unit.where))
        if len(self.faults.faults) != before:
            return None
        return Example(stored=stored, geometry=geometry, sources=sources)

    def _values(self, key: str, name: str, item: int | None) -> dict[str, NDArray[Any]]:
        """What one file gives, by input: decoded pixels of an image, or arrays as they are in the file."""
        suffix = PurePosixPath(name).suffix.lower()
        try:
            if suffix in images.SUFFIXES:
                return self._decoded(key, name)
            if suffix not in arrays.SUFFIXES:
                accepted = ", ".join((*images.SUFFIXES, *arrays.SUFFIXES))
                what = f"a file of a kind that is not read: {suffix or 'no suffix'}"
                raise RecipeError(Fault(what=what, where=name, hint=f"accepted: {accepted}"))
            named = self._by_input(key, self.files.arrays(name))
        except BuildError as error:
            self.faults.add(*error.faults)
            return {}
        if item is None:
            return named
        return {target: value[item] if self.slots[target].stacked(value) else value for target, value in named.items()}

    def _decoded(self, key: str, name: str) -> dict[str, NDArray[Any]]:
        takers = [slot for slot in self.slots.values() if slot.preset and key in ("", slot.name)]
        if len(takers) != 1 or takers[0].preset is None:
            raise RecipeError(
                Fault(
                    what="an image where the preset takes prepared tensors",
                    where=name,
                    hint="choose a preset that decodes images, or give npy files",
                )
            )
        pixels = images.decode_image(self.files.bytes(name), name=name, channels=takers[0].preset.channels)
        return {takers[0].name: pixels}

    def _store(self, slot: Slot, value: NDArray[Any], where: str) -> tuple[Fault | None, NDArray[Any], Geometry | None]:
        """(fault, stored form, geometry) of one input's value."""
        if slot.preset is None:
            fault = length_fault(value, slot.axes, slot.form.shape, where=where, name=slot.name)
            fault = fault or check_prepared(value, slot.form, where=where, name=slot.name)
            return fault, value if fault else value.reshape(slot.form.shape).astype(slot.form.dtype, copy=False), None
        fault = check_pixels(value, slot.preset.channels, where=where, name=slot.name)
        if fault is not None:
            return fault, value, None
        pixels = value.reshape(*value.shape[:2], slot.preset.channels)
        self.census.count(pixels)
        fault = frame_fault(slot, (pixels.shape[0], pixels.shape[1]), where)
        if fault is not None:
            return fault, value, None
        return (None, *slot.preset.spatial(pixels))


def _unknown_input(key: str, known: list[str], where: str) -> Fault:
    return Fault(what=f"the model has no input {key!r}", where=where, hint="its inputs: " + ", ".join(known))


def collect(
    files: SourceFiles, graph: GraphSummary, request: Request, output: Path, progress: Progress
) -> dict[str, Any]:
    """Write the sample set to ``output`` and return its head. RecipeError with all faults of the set."""
    slots = make_slots(graph, request)
    if not files.examples:
        if request.smoke:
            return random_set(slots, request, output)
        raise RecipeError(
            Fault(
                what="the data set holds no example", hint="give representative data; random data needs purpose: smoke"
            )
        )
    faults = FaultList()
    collector = _Collector(slots, files, faults, request)
    if request.first:
        units = list(collector.units(files.examples[:1]))[:1]
    else:
        units = _evenly(list(collector.units(files.examples)), request.count, faults)
    with SampleWriter(output, {name: slot.form for name, slot in slots.items()}) as writer:
        for done, unit in enumerate(units):
            example = collector.read(unit)
            if example is not None and not faults.faults:
                writer.add(example)
            progress(done + 1, len(units))
        if not request.first:
            faults.add(*collector.census.faults(request.letterboxed))
        faults.refuse()
        return writer.finish({"preset": dict(request.preset), "random": False, "kind": files.kind})


def _census(slots: Mapping[str, Slot]) -> Census:
    boxes = [slot.preset for slot in slots.values() if slot.preset and slot.preset.resize_kind == "letterbox"]
    return Census(frame=boxes[0].size if boxes else None, fill=boxes[0].fill if boxes else 0)


def _evenly(units: list[_Unit], count: int | None, faults: FaultList) -> list[_Unit]:
    if count is None:
        return units
    if len(units) < count:
        if units:  # none: their files are refused already
            what = f"{len(units)} examples where {count} are asked for"
            faults.add(Fault(what=what, hint="add data, or ask for fewer samples"))
        return units
    return [units[index * len(units) // count] for index in range(count)]


def random_set(slots: Mapping[str, Slot], request: Request, output: Path) -> dict[str, Any]:
    """Seeded random examples, for purpose ``smoke`` only; the head says ``random: true``."""
    generator = np.random.Generator(np.random.PCG64(RANDOM_SEED))
    with SampleWriter(output, {name: slot.form for name, slot in slots.items()}) as writer:
        for _ in range(request.count or RANDOM_COUNT):
            stored = {name: random_value(generator, slot) for name, slot in slots.items()}
            writer.add(Example(stored=stored, geometry={}, sources={}))
        facts = {"preset": dict(request.preset), "random": True, "seed": RANDOM_SEED, "kind": "random"}
        return writer.finish(facts)
