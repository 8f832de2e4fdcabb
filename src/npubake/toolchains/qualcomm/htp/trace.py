"""Qualcomm toolchain: which operators became what in the compiler, and which it refused, with its words. Pure.

Two sources: ``qnn_op_trace.json`` (schema 2), and the log, which tells more: where the layout of a refused Conv was
changed no trace is written, and a function of ONNX that is expanded overwrites it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from npubake.errors import Fault, StageError
from npubake.toolchains.qualcomm.htp.operators import Operators

_SCHEMA = 2
_UNSUPPORTED = re.compile(r"\{ name: (?P<name>.*?), type: (?P<type>[^}]*?) \}")
_REFUSED = re.compile(r"backendValidateOpConfig\(\) failed for node `(?P<name>.*?)` of type `(?P<type>.*?)`")
_INSERTED = re.compile(r"Node '(?P<name>.*?)' OpType:(?P<type>\w+) with domain:\S* was inserted using the NHWC format")
_SAID = re.compile(r"QnnLogging\]\s*<E> (?P<said>.*)")
_BLAMED = re.compile(r"Failed to validate op (?P<name>.*) with error 0x")
_UNMADE = re.compile(r'"(?P<name>.*)" generated: could not create op')  # accepted first, and lost as the graph was made
_FAILED = re.compile(
    r"Validation FAILED for \d+ nodes in OrtNodeUnit \((?P<type>\w+)\) :(?P<nodes>.*?)REASON : (?P<why>.*)", re.DOTALL
)
_EMPTY = ("QnnBackend_validateOpConfig failed", "unexpected GraphHtpSettings")  # tell that, not why
_OWN = "QNNExecutionProvider_"  # subgraphs that the provider has made already


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A node that the compiler refused. node, op_type: the user's operator, or the compiler's name where it is none of
    the model; reasons: the compiler's words, the most telling first.
    """

    node: str
    op_type: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """onnx_nodes: what the compiler was given; graphs: pieces that it made; qnn_operators: how many of each kind;
    mappings: each QNN operator with the nodes that it stands for.
    """

    onnx_nodes: int
    graphs: int
    qnn_operators: Mapping[str, int]
    mappings: tuple[Mapping[str, Any], ...]
    unsupported: tuple[Unsupported, ...]

    def without(self, named: Sequence[str]) -> Trace:
        """The same where these nodes may stay on the CPU: they are not what failed."""
        return replace(self, unsupported=tuple(one for one in self.unsupported if one.node not in named))

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, **asdict(self)}


def read_trace(text: str, log: Sequence[str], operators: Operators) -> Trace:
    """text: of ``qnn_op_trace.json``, '' where none was written. Raises StageError for a schema that is not known."""
    facts = _facts(text)
    maps = [one for graph in facts["subgraph_traces"] for one in graph["op_mappings"]]
    kinds = [one["dst_qnn_op_type"] for one in maps]
    return Trace(
        onnx_nodes=facts["summary"]["total_onnx_nodes"],
        graphs=facts["summary"]["qnn_subgraphs"],
        qnn_operators={kind: kinds.count(kind) for kind in sorted(set(kinds))},
        mappings=tuple(_mapping(one, operators) for one in maps),
        unsupported=_unsupported(facts["unsupported_nodes"], log, operators),
    )


def _facts(text: str) -> dict[str, Any]:
    if not text:
        nothing = {"total_onnx_nodes": 0, "qnn_subgraphs": 0}
        return {"summary": nothing, "subgraph_traces": [], "unsupported_nodes": []}
    facts: dict[str, Any] = json.loads(text)
    if facts.get("schema_version") != _SCHEMA:
        what = f"the compiler's trace has schema {facts.get('schema_version')}; this version of npubake reads {_SCHEMA}"
        raise StageError(Fault(what=what, hint="use the locked version of onnxruntime-qnn"))
    return facts


def _mapping(one: Mapping[str, Any], operators: Operators) -> dict[str, Any]:
    found = [operators.find(source["name"]) for source in one["sources"] if source["type"] == "OP"]
    nodes = sorted({node.name or node.output[0] for node in found if node is not None})
    return {"qnn_operator": one["dst_qnn_op_type"], "name": one["dst_name"], "nodes": nodes}


def _unsupported(
    traced: Iterable[Mapping[str, Any]], log: Sequence[str], operators: Operators
) -> tuple[Unsupported, ...]:
    """Each operator once, in the model's order, with all that was said of it."""
    said: dict[tuple[str, str], list[str]] = {}

    def note(name: str, kind: str, reason: str) -> None:
        if name.startswith(_OWN):
            return
        node = operators.find(name)
        key = (node.name or node.output[0], node.op_type) if node is not None else (name, kind)
        reasons = said.setdefault(key, [])
        if reason and reason not in reasons:
            reasons.append(reason)

    kinds = _named(log)
    for name, reason in _blamed(log):
        note(name, kinds.get(name, ""), reason)
    for name, reason in _unmade(log):
        note(_begun_by(name, operators), "", reason)
    for one in traced:
        note(one["node_name"], one["op_type"], one["reason"])
    for name, kind in kinds.items():
        note(name, kind, "")
    place = {name: index for index, name in enumerate(operators.nodes)}
    ordered = sorted(said.items(), key=lambda item: place.get(item[0][0], len(place)))
    return tuple(Unsupported(node=node, op_type=kind, reasons=tuple(why)) for (node, kind), why in ordered)


def _named(log: Sequence[str]) -> dict[str, str]:
    """Nodes that the log calls unsupported, with their kinds."""
    found: dict[str, str] = {}
    for line in log:
        if "Unsupported nodes in QNN EP" in line:
            found |= {match["name"]: match["type"] for match in _UNSUPPORTED.finditer(line)}
        for pattern in (_REFUSED, _INSERTED):
            found |= {match["name"]: match["type"] for match in pattern.finditer(line) if match["name"] not in found}
    return found


def _blamed(log: Sequence[str]) -> list[tuple[str, str]]:
    """What was said of nodes to verbose loggers. QNN's validators give reasons first and name the node last; the
    provider names the nodes of a unit, of which one has the unit's type.
    """
    found, reasons = [], list[str]()
    for line in log:
        unit = _FAILED.search(line)
        if unit is not None:
            name = re.search(rf"Operator type: {unit['type']} Node name: (.*?) Node index", unit["nodes"])
            found += [(name[1], unit["why"].strip())] if name is not None else []
        match = _SAID.search(line)
        if match is None:
            continue
        blamed = _BLAMED.search(match["said"])
        if blamed is not None:
            found += [(blamed["name"], reason) for reason in reasons]
            reasons = []
        elif not match["said"].startswith(_EMPTY) and _UNMADE.search(match["said"]) is None:
            reasons.append(match["said"].strip())
    return found


def _unmade(log: Sequence[str]) -> list[tuple[str, str]]:
    """Nodes that validation took and of which the compiler then made nothing, with its words."""
    found = [_UNMADE.search(match["said"]) for line in log if (match := _SAID.search(line)) is not None]
    return [(match["name"], match.group()) for match in found if match is not None]


def _begun_by(name: str, operators: Operators) -> str:
    """The node that a name of the compiler's (``lstm_cell0_forward``) begins with; the name itself where none does."""
    if operators.find(name) is not None:
        return name
    return max((known for known in operators.users() if name.startswith(f"{known}_")), key=len, default=name)
