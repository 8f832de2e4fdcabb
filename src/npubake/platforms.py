"""Platform room: facts about a deployable target, each with its source. Reads platform files only; knows no recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from npubake.document.reader import read_document
from npubake.document.schema import validate
from npubake.document.tree import Node, json_path
from npubake.errors import Fault, PlatformError
from npubake.nearest import did_you_mean

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
    """One platform. Byte counts are bytes; lists of the file are tuples. The first of ``toolchains`` is the default.

    file: of several SoCs that share a binary (``combine``) that of the first.
    """

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

_OF_QUALCOMM = ("soc_model", "vtcm_bytes", "lanes")  # its toolchain makes nothing without them
# Facts that a file may leave out, and what then holds.
_UNSTATED: Mapping[str, Mapping[str, Any]] = {
    "activation_granularities": {"value": ["per_tensor"], "source": "not stated", "status": "inferred"},
    **{name: {"value": None, "source": "not a Qualcomm platform", "status": "stated"} for name in _OF_QUALCOMM},
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
        document.faults.extend(_unstated_faults(root))
    if document.faults or root is None:
        raise PlatformError(*document.faults)
    return _platform(root.plain(), path)


def _unstated_faults(root: Node) -> Iterator[Fault]:
    """Facts without which the qualcomm toolchain can make nothing for the platform."""
    data = root.plain() if isinstance(root.value, dict) else {}
    if "qualcomm" not in (data.get("toolchains") or ()):
        return
    for name in _OF_QUALCOMM:
        fact = data.get(name)
        if fact is None or (isinstance(fact, dict) and "value" in fact and fact["value"] is None):
            node = root.find((name,)) if fact is not None else root.find(("toolchains",))
            what = f"the fact {name!r} of a platform that toolchain qualcomm serves is not stated"
            hint = "State it, with its source: see qcs9075.yaml."
            yield Fault(what=what, where=str(node.mark), path=json_path((name,)), hint=hint)


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


# Facts of several SoCs that one binary is for: what holds for all of them. Others must be the same.
_LISTED = ("soc", "march", "soc_model")
_SMALLEST = ("max_core_num", "vtcm_bytes")
_COMMON = ("precisions", "activation_granularities", "lanes")
_TRUST: tuple[Status, ...] = ("stated", "inferred", "conflict")


def combine(name: str, known: Mapping[str, Platform]) -> Platform:
    """The platform called ``name``: one of ``known``, or several of one toolchain that share a binary, joined by ``+``.

    Of several the compiler's names are comma lists in the order of their SoC ids; numbers are the smallest, precisions
    and lanes those that all have; other facts must be equal. Raises PlatformError with every fault; none has a place.
    """
    if "+" not in name and name in known:
        return known[name]
    faults = list(_part_faults(name, known))
    if faults:
        raise PlatformError(*faults)
    parts = [known[part] for part in name.split("+")]
    faults = list(_pair_faults(name, parts))
    if faults:
        raise PlatformError(*faults)
    return Platform(
        name=name,
        title=" and ".join(part.title for part in parts),
        vendor=parts[0].vendor,
        toolchains=("qualcomm",),
        file=parts[0].file,
        **{fact: _combined(fact, parts) for fact in FACTS},
    )


def _part_faults(name: str, known: Mapping[str, Platform]) -> Iterator[Fault]:
    parts = name.split("+")
    for part in dict.fromkeys(parts):
        if part not in known:
            yield Fault(what=f"there is no platform {part!r}", hint=did_you_mean(part, known))
        elif len(parts) > 1 and "qualcomm" not in known[part].toolchains:
            able = " and ".join(sorted(other for other, found in known.items() if "qualcomm" in found.toolchains))
            what = f"{part} cannot share a binary with others: toolchain qualcomm alone makes one for several SoCs"
            yield Fault(what=what, hint=f"Make {part} a platform of its own." + (f" It is for {able}." if able else ""))
        if parts.count(part) > 1:
            yield Fault(what=f"{part!r} stands in {name!r} more than once", hint="Name each SoC once.")


def _pair_faults(name: str, parts: Sequence[Platform]) -> Iterator[Fault]:
    """What keeps platforms that exist from sharing a binary, or from being called so."""
    ids = [int(part.soc_model.value or 0) for part in parts]
    if len(set(ids)) < len(ids):
        yield Fault(what=f"{name!r} names one SoC twice: soc_model {ids[0]}", hint="Name each SoC once.")
        return
    ordered = [part.name for _, part in sorted(zip(ids, parts, strict=True), key=lambda pair: pair[0])]
    if "+".join(ordered) != name:
        hint = f"Write {'+'.join(ordered)!r}: in the order of their SoC ids, so that one binary has one name."
        yield Fault(what=f"{name!r} is not in order", hint=hint)
    for fact in FACTS:
        stated = {part.name: getattr(part, fact).value for part in parts}
        if fact in _COMMON:
            if not _shared(list(stated.values())):
                yield Fault(what=f"{_told(stated)}: they have no {fact} in common", hint="Make two targets of them.")
        elif fact not in (*_LISTED, *_SMALLEST) and len(set(stated.values())) > 1:
            yield Fault(what=f"{fact} differs: {_told(stated)}", hint="Make two targets of them.")


def _combined(name: str, parts: Sequence[Platform]) -> Fact[Any]:
    facts: list[Fact[Any]] = [getattr(part, name) for part in parts]
    values = [fact.value for fact in facts]
    if name in _LISTED:
        value: Any = ",".join(values)
    elif name in _SMALLEST:
        value = min(values)
    else:
        value = _shared(values) if name in _COMMON else values[0]
    sources = list(dict.fromkeys(fact.source for fact in facts))
    if len(sources) > 1:
        sources = [f"{part.name}: {fact.source}" for part, fact in zip(parts, facts, strict=True)]
    return Fact(
        value=value,
        source="; ".join(sources),
        status=max((fact.status for fact in facts), key=_TRUST.index),
        note=" ".join(dict.fromkeys(fact.note for fact in facts if fact.note)),
    )


def _shared(values: Sequence[Sequence[str] | None]) -> tuple[str, ...]:
    """What stands in all, in the order of the first."""
    first, *others = [value or () for value in values]
    return tuple(item for item in first if all(item in other for other in others))


def _told(stated: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} has {value}" for name, value in stated.items())
