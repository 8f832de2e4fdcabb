"""calibration: the sample set, examples in one deterministic npz. Arrays and paths only; nothing is decoded here.

Entries: ``00000/<input>.npy`` in stored form (for an image input uint8 [H, W, C], RGB or grey, before the linear step;
otherwise the prepared tensor in the model's shape and dtype), then ``samples.json``. One example is in memory
at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from npubake.calibration.archive import ArchiveReader, ArchiveWriter
from npubake.calibration.preprocessing import Geometry, LinearStep

HEAD = "samples.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputForm:
    """One model input. shape, dtype: the model's; linear: the step from stored pixels, None for a prepared tensor."""

    shape: tuple[int, ...]
    dtype: str
    linear: LinearStep | None

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "dtype": self.dtype, "linear": self.linear and asdict(self.linear)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InputForm:
        linear = data["linear"] and LinearStep.from_json(data["linear"])
        return cls(shape=tuple(data["shape"]), dtype=data["dtype"], linear=linear)

    def prepare(self, stored: NDArray[Any]) -> NDArray[Any]:
        """What the model is fed: the linear step of stored pixels (uint8 or float, 0..255), or the tensor itself."""
        return stored.reshape(self.shape) if self.linear is None else self.linear.apply(stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where one input of one example came from: a listed file, its digest, and its item where that is a stack."""

    name: str
    digest: str
    item: int | None = None

    @property
    def where(self) -> str:
        return self.name if self.item is None else f"{self.name}[{self.item}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example in stored form. geometry: of each image input; sources: by input."""

    stored: Mapping[str, NDArray[Any]]
    geometry: Mapping[str, Geometry]
    sources: Mapping[str, Source]


class SampleWriter:
    """A context manager that writes a sample set example by example; ``finish`` writes the head."""

    def __init__(self, path: Path, inputs: Mapping[str, InputForm]) -> None:
        self._archive = ArchiveWriter(path)
        self._inputs = dict(inputs)
        self._examples: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._archive.__exit__(kind, error, at)

    @property
    def count(self) -> int:
        return len(self._examples)

    def add(self, example: Example) -> None:
        for name in self._inputs:
            self._archive.array(f"{self.count:05d}/{name}.npy", example.stored[name])
        self._examples.append(
            {
                "sources": {name: asdict(source) for name, source in example.sources.items()},
                "geometry": {name: geometry.to_json() for name, geometry in example.geometry.items()},
            }
        )

    def finish(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write and return the head: version, inputs, examples, and the caller's facts (preset, random, ...)."""
        head = {
            "version": 1,
            "inputs": {name: form.to_json() for name, form in self._inputs.items()},
            "examples": self._examples,
            **facts,
        }
        self._archive.json(HEAD, head)
        return head


class SampleSet:
    """A sample set open for reading; a context manager. StageError where the file is damaged or something else."""

    def __init__(self, archive: ArchiveReader, head: Mapping[str, Any]) -> None:
        self._archive = archive
        self.head = head
        self._forms = {name: InputForm.from_json(form) for name, form in head["inputs"].items()}

    @classmethod
    def open(cls, path: Path) -> SampleSet:
        archive = ArchiveReader(path)
        return cls(archive, archive.json(HEAD))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._archive.close()

    @property
    def count(self) -> int:
        return len(self.head["examples"])

    @property
    def inputs(self) -> Mapping[str, InputForm]:
        return self._forms

    @property
    def random(self) -> bool:
        """True where the examples are random numbers (purpose ``smoke``)."""
        return bool(self.head["random"])

    @property
    def linear(self) -> Mapping[str, LinearStep]:
        """The linear step of every image input."""
        return {name: form.linear for name, form in self._forms.items() if form.linear is not None}

    def read_stored(self, index: int) -> dict[str, NDArray[Any]]:
        """The example before the linear step: uint8 [H, W, C] for image inputs."""
        return {name: self._archive.array(f"{index:05d}/{name}.npy") for name in self._forms}

    def read(self, index: int) -> dict[str, NDArray[Any]]:
        """The example as the model is fed: float32 in the model's shape (integer inputs keep their dtype)."""
        return {name: self._forms[name].prepare(stored) for name, stored in self.read_stored(index).items()}

    def geometry(self, index: int) -> dict[str, Geometry]:
        """Geometry of every image input of the example."""
        entries = self.head["examples"][index]["geometry"]
        return {name: Geometry.from_json(entry) for name, entry in entries.items()}

    def sources(self, index: int) -> dict[str, Source]:
        return {name: Source(**entry) for name, entry in self.head["examples"][index]["sources"].items()}

    def describe(self, index: int) -> str:
        """The example in a message: its number and its files."""
        names = sorted({source.where for source in self.sources(index).values()})
        return f"example {index} ({', '.join(names)})" if names else f"example {index}"
