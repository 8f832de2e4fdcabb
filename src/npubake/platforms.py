"""Platform room: facts about a deployable target, each with its source. Reads platform files only; knows no recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from npubake.document.reader import read_document
from npubake.document.schema import validate
from npubake.document.tree import json_path
from npubake.errors import Fault, PlatformError

T = TypeVar("T")
Status = Literal["stated", "inferred", "conflict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(Generic[T]):
    """One value with where it was read. status: inferred and conflict say how far it can be trusted; see note."""

    value: T
    source: str
    status: Status
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One platform. Byte counts are bytes; lists of the file are tuples. The first of ``toolchains`` is the default."""

    name: str
    title: str
    vendor: str
    toolchains: tuple[str, ...]
    file: Path
    soc: Fact[str]
    march: Fact[str | None]
    max_core_num: Fact[int]
    lane: Fact[str]
    precisions: Fact[tuple[str, ...]]
    activation_granularities: Fact[tuple[str, ...]]
    nv12_stride_bytes: Fact[int]
    tensor_unit_bytes: Fact[int]
    tail: Fact[str]
    tae_float: Fact[bool | None]
    max_l2m_bytes: Fact[int | None]
    ucp_ips: Fact[tuple[str, ...] | None]
    soc_model: Fact[str | None]
    vtcm_bytes: Fact[int | None]
    lanes: Fact[tuple[str, ...] | None]

    def facts(self) -> dict[str, Fact[Any]]:
        """Every fact by name, in the order of the file format."""
        return {name: getattr(self, name) for name in FACTS}

    def values(self, *names: str) -> dict[str, Any]:
        """The plain JSON values of the facts ``names``: what a stage that reads them takes as ``platform`` parameter.

        A stage asks for what it reads and no more, so that another fact's change leaves its key alone.
        """
        chosen = {name: getattr(self, name).value for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()}


FACTS: tuple[str, ...] = tuple(entry.name for entry in fields(Platform) if str(entry.type).startswith("Fact["))


# Facts that a file may leave out, and what then holds.
_UNSTATED: Mapping[str, Mapping[str, Any]] = {
    "activation_granularities": {"value": ["per_tensor"], "source": "not stated", "status": "inferred"},
    "soc_model": {"value": None, "source": "not stated", "status": "inferred"},
    "vtcm_bytes": {"value": None, "source": "not stated", "status": "inferred"},
    "lanes": {"value": None, "source": "not stated", "status": "inferred"},
}


def platform_folder(project: Path) -> Path:
    """The project's ``platforms/``, else the one shipped with the package (or at the root of a checkout)."""
    package = Path(__file__).resolve().parent
    candidates = (project / "platforms", package / "platform_files", package.parent.parent / "platforms")
    for folder in candidates:
        if next(folder.glob("*.yaml"), None) is not None:
            return folder
    raise PlatformError(Fault(what="no platform files", where=str(candidates[0]), hint="Reinstall npubake."))


def load_platforms(project: Path) -> dict[str, Platform]:
    """All platforms by name, sorted. Raises PlatformError with the faults of every file at once."""
    found: dict[str, Platform] = {}
    faults: list[Fault] = []
    for path in sorted(platform_folder(project).glob("*.yaml")):
        try:
            platform = load_platform(path)
        except PlatformError as error:
            faults.extend(error.faults)
        else:
            found[platform.name] = platform
    if faults:
        raise PlatformError(*faults)
    return found


def load_platform(path: Path) -> Platform:
    """Read and check one platform file. Raises PlatformError with every fault."""
    document = read_document(path)
    root = document.root
    if root is not None:
        validate(document, root, "platform")
        named = root.find(("name",))
        if isinstance(named.value, str) and named.value != path.stem:
            what = f"the name {named.value!r} is not the file's, {path.stem!r}"
            document.faults.append(
                Fault(what=what, where=str(named.mark), path=json_path(("name",)), hint="Make both the same.")
            )
    if document.faults or root is None:
        raise PlatformError(*document.faults)
    return _platform(root.plain(), path)


def _platform(data: Mapping[str, Any], path: Path) -> Platform:
    facts = {}
    for name in FACTS:
        stated = data[name] if name in data else _UNSTATED[name]
        value = stated["value"]
        facts[name] = Fact(**{**stated, "value": tuple(value) if isinstance(value, list) else value})
    return Platform(
        name=data["name"],
        title=data["title"],
        vendor=data["vendor"],
        toolchains=tuple(data["toolchains"]),
        file=path,
        **facts,
    )
