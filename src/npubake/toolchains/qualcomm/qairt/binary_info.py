"""Qualcomm toolchain, SDK road: the JSON that qnn-context-binary-utility writes, as the same ``Metadata`` that the
wheel's reader gives, so that the same checks judge both.

Its form (dumps of public context binaries, and Qualcomm's own scripts in ai-hub-apps that read them): ``info`` with
``buildId``, ``coreApiVersion``, ``backendApiVersion``, ``contextBlobVersion``, ``contextBlobSize``, ``graphs``, each
with ``info``: ``graphName``, ``graphInputs`` and ``graphOutputs``, each with ``info``: ``name``, ``dimensions``,
``dataType`` and ``quantizeParams.scaleOffset``. ``socModel`` and ``dspArch`` stand in a block whose depth differs
between versions: they are looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npubake.errors import Fault, StageError
from npubake.toolchains.qualcomm.htp.metadata import DTYPES, Graph, Metadata, Part, Tensor

_PREFIX = "QNN_DATATYPE_"


def metadata_of(content: Any, tools: Mapping[str, str]) -> Metadata:
    """Of the utility's JSON. tools: versions of what made the binary.

    Raises StageError, naming the place, for a form that is not the one described above.
    """
    info = content.get("info") if isinstance(content, dict) else None
    if not isinstance(info, dict):
        raise _strange("info")
    soc, arch = (next(_looked_for(content, name), None) for name in ("socModel", "dspArch"))
    if not isinstance(soc, int) or not isinstance(arch, int):
        raise _strange("socModel" if not isinstance(soc, int) else "dspArch")
    part = Part(
        soc_model=soc,
        arch=f"v{arch}",
        build_id=str(_of(info, "buildId", "info")),
        core_api=_version(info.get("coreApiVersion")),
        backend_api=_version(info.get("backendApiVersion")),
        blob_version=_version(info.get("contextBlobVersion")),
        blob_bytes=int(info.get("contextBlobSize", 0)),
        graphs=tuple(_graph(entry) for entry in _of(info, "graphs", "info")),
    )
    return Metadata(parts=(part,), tools=dict(tools))


def _graph(entry: Mapping[str, Any]) -> Graph:
    info = entry.get("info", entry)
    name = str(_of(info, "graphName", "graphs"))
    sides = {
        side: tuple(_tensor(tensor, f"{name}.{key}") for tensor in _of(info, key, name))
        for side, key in (("inputs", "graphInputs"), ("outputs", "graphOutputs"))
    }
    return Graph(name=name, inputs=sides["inputs"], outputs=sides["outputs"])


def _tensor(entry: Mapping[str, Any], where: str) -> Tensor:
    info = entry.get("info", entry)
    kind = str(_of(info, "dataType", where)).removeprefix(_PREFIX)
    if kind not in DTYPES:
        raise StageError(Fault(what=f"{kind} is no data type of QNN that is known", where=where, hint=_HINT))
    quantised = info.get("quantizeParams") or {}
    grid = quantised.get("scaleOffset") if isinstance(quantised, dict) else None
    fixed = kind[1:].startswith("FIXED")
    if fixed and not isinstance(grid, dict):
        raise _strange(f"{where}.quantizeParams.scaleOffset")
    return Tensor(
        name=str(_of(info, "name", where)),
        dtype=DTYPES[kind],
        qnn_dtype=kind,
        shape=tuple(int(size) for size in _of(info, "dimensions", where)),
        scale=float(grid["scale"]) if fixed and grid else None,
        offset=int(grid["offset"]) if fixed and grid else None,
    )


def _version(value: Any) -> str:
    """``{major, minor, patch}`` or text."""
    if isinstance(value, dict):
        return ".".join(str(value.get(part, 0)) for part in ("major", "minor", "patch"))
    return str(value or "")


def _of(info: Mapping[str, Any], name: str, where: str) -> Any:
    if not isinstance(info, Mapping) or name not in info:
        raise _strange(f"{where}.{name}")
    return info[name]


def _looked_for(content: Any, name: str) -> Iterator[Any]:
    if isinstance(content, dict):
        if name in content:
            yield content[name]
        for value in content.values():
            yield from _looked_for(value, name)
    elif isinstance(content, list):
        for value in content:
            yield from _looked_for(value, name)


_HINT = "what this SDK's utility writes is new here: send its JSON with a report"


def _strange(place: str) -> StageError:
    what = f"the JSON of qnn-context-binary-utility has no {place}"
    return StageError(Fault(what=what, where="qnn-context-binary-utility", hint=_HINT))
