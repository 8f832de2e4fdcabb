"""Qualcomm toolchain: what the compiler says, in words that name the user's node, the reason and what to do. Pure.

``explain_nodes``: nodes that it refused; ``explain_failure``: a compile that failed, nodes first; ``explain_text``: any
words of the runtime, for the emulator. The raw log is always in the last fault, or beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx

from npubake.errors import Fault
from npubake.toolchains.qualcomm.facts import HtpPlatform
from npubake.toolchains.qualcomm.htp.operators import Operators
from npubake.toolchains.qualcomm.htp.refusal_table import FORMS, REASONS, REPLACEMENTS, SESSIONS, Row, on_the_spot
from npubake.toolchains.qualcomm.htp.trace import Trace, Unsupported

_LOG_LINES = 12  # of the raw log's end that a fault shows
_NOISE = ("File mapped weights feature", "EPContext encryption config", "unexpected GraphHtpSettings")
_SHOWN_SIZES = ("needs", "has")
_MIB = 1 << 20


def explain_failure(
    error: str, log: Sequence[str], trace: Trace, operators: Operators, platform: HtpPlatform
) -> tuple[Fault, ...]:
    """Every fault of a compile that failed. error: what onnxruntime raised."""
    nodes = explain_nodes(trace.unsupported, operators, platform)
    text = "\n".join([error, *log])
    row = next((row for row in SESSIONS if row.pattern.search(text)), None)
    told = _told(row, text) if row is not None and not nodes else None
    if told is not None:
        because, do = told
        return (Fault(what=f"the HTP compiler refuses the model: {because}", where=platform.name, hint=_hint(do, log)),)
    if nodes:
        rest = [line for line in log if "LogNodeSupport] Validation FAILED" not in line]  # what the nodes' faults say
        return (*nodes[:-1], _with_log(nodes[-1], rest))
    what = f"the HTP compiler failed: {_first_line(error)}"
    return (Fault(what=what, where=platform.name, hint=_hint("no known message: report it with this log", log)),)


def explain_text(text: str) -> tuple[str, str] | None:
    """(what it means, what to do) of any message of the compiler or the runtime; None where no row knows it."""
    for row in SESSIONS:
        if row.pattern.search(text):
            return _told(row, text)
    return None


def explain_refusal(error: str, log: Sequence[str], where: str) -> Fault:
    """Why the emulator does not take an artifact. error: what onnxruntime raised; where: the artifact's file."""
    told = explain_text("\n".join([error, *log]))
    if told is None:
        hint = "the binary was changed or is of another SDK; compile it again with the SDK that is installed"
        what = f"the emulator refuses the artifact: {_first_line(error)}"
        return Fault(what=what, where=where, hint=_hint(hint, log, "emulator"))
    hint = _hint(told[1], [*log, _first_line(error)], "emulator")
    return Fault(what=f"the emulator refuses the artifact: {told[0]}", where=where, hint=hint)


def explain_nodes(unsupported: Sequence[Unsupported], operators: Operators, platform: HtpPlatform) -> tuple[Fault, ...]:
    """One fault a node."""
    return tuple(_node(one, operators, platform) for one in unsupported)


def log_text(log: Sequence[str]) -> str:
    """The log as it is kept: every line."""
    return "".join(f"{line}\n" for line in log)


def _node(one: Unsupported, operators: Operators, platform: HtpPlatform) -> Fault:
    node = operators.nodes.get(one.node)
    because, do = _because(one, node, operators)
    soc = f"{platform.name} (HTP {', '.join(platform.arch)})"
    return Fault(what=f"node {one.node} ({one.op_type}) cannot run on {soc} because {because}", where=one.node, hint=do)


def _because(one: Unsupported, node: onnx.NodeProto | None, operators: Operators) -> tuple[str, str]:
    for row in REASONS:  # the table's order: the most telling first
        for reason in one.reasons:
            told = _told(row, reason) if row.pattern.search(reason) else None
            if told is None:
                continue
            because, do = told
            if "Cannot get shape" in reason and node is not None:
                because += _open_sizes(node, operators)
            if one.op_type in REPLACEMENTS and "has no operator" in because:
                do = f"write it as {REPLACEMENTS[one.op_type]}; {do.partition('; ')[2]}"
            return because, on_the_spot(one.op_type, do)
    held = _held(node, operators)
    said = f" ({one.reasons[0]})" if one.reasons else ""
    hint = FORMS.get(one.op_type, "give it another precision in the recipe (layer_overrides), or replace it")
    return f"the HTP refuses this combination of types and sizes{held}{said}", hint


def _held(node: onnx.NodeProto | None, operators: Operators) -> str:
    """The types of what a node reads, for a reason that names none."""
    if node is None:
        return ""
    types = [operators.stored(name) or operators.types.get(name, "float") for name in node.input if name]
    return f": inputs {', '.join(types)}"


def _open_sizes(node: onnx.NodeProto, operators: Operators) -> str:
    """Which sizes of the model's inputs are open."""
    named = {
        f"{name}: {size}"
        for name, sizes in operators.shapes.items()
        for size in sizes
        if isinstance(size, str) or size == 0
    }
    return f" ({', '.join(sorted(named)[:4])})" if node.input and named else ""


def _told(row: Row, text: str) -> tuple[str, str]:
    match = row.pattern.search(text)
    assert match is not None
    words = {name: _size(name, value) for name, value in match.groupdict().items() if value is not None}
    return row.because.format_map(_Words(words)), row.do


class _Words(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def _size(name: str, value: str) -> str:
    """A number of bytes as MiB; other words as they are."""
    if name in _SHOWN_SIZES and (value.startswith("0x") or int(value) >= _MIB):
        return f"{int(value, 0) / _MIB:.1f} MiB"
    return value


def _with_log(fault: Fault, log: Sequence[str]) -> Fault:
    return Fault(what=fault.what, where=fault.where, path=fault.path, hint=_hint(fault.hint, log))


def _hint(do: str, log: Sequence[str], whose: str = "compiler") -> str:
    told = dict.fromkeys(
        line for line in log if not any(word in line for word in _NOISE)
    )  # the compiler is asked twice
    said = list(told)[-_LOG_LINES:]
    return do if not said else do + f"\nthe end of the {whose}'s log:\n" + "\n".join(line[:300] for line in said)


def _first_line(error: str) -> str:
    return re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", error).partition("\n")[0] or "it gave no reason"
