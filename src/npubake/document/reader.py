"""Document room: bytes of a YAML file -> one positioned tree, or every fault of its text at once. Reads the file only.

PyYAML's composer gives nodes with marks; values are made here, not by a YAML constructor, so that duplicate keys,
loops and alias bombs are seen before any data exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npubake.document.scalars import control_trap, read_scalar
from npubake.document.tree import Mark, Node, json_path
from npubake.document.tree import Path as Place
from npubake.errors import Fault

MAX_BYTES = 1 << 20  # a recipe of 1 MiB is a mistake: the largest known ones stay under 20 kB
MAX_NODES = 100_000  # after aliases are expanded; an alias bomb passes it at once
MAX_DEPTH = 64
_TAB_INDENT = re.compile(r"^( *)\t", re.MULTILINE)
_CONTROL = re.compile("[^\\x09\\x0A\\x0D\\x20-\\x7E\\x85\\xA0-\\uD7FF\\uE000-\\uFFFD\\U00010000-\\U0010ffff]")
_SAVE_AS_UTF8 = "Save the file as UTF-8."


@dataclass(slots=True)
class Document:
    """What was read. root: None where nothing could be made of the text; faults: with the path each stands at."""

    file: str
    root: Node | None = None
    faults: list[Fault] = field(default_factory=list)
    faulty: set[Place] = field(default_factory=set)


def read_document(path: Path) -> Document:
    """Read one YAML file whose root is a mapping. Never raises for what stands in the file: see ``faults``."""
    document = Document(file=str(path))
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_BYTES else b""
    except OSError as error:
        reason = "it is a folder" if path.is_dir() else (error.strerror or "unreadable").lower()
        document.faults.append(Fault(what=f"cannot be read: {reason}", where=str(path), hint="Check the path."))
        return document
    if size > MAX_BYTES:
        document.faults.append(
            Fault(
                what=f"the file has {size} bytes; at most {MAX_BYTES} are read",
                where=str(path),
                hint="Is this the right file? Recipes and platform files are small.",
            )
        )
        return document
    read_text(data, document)
    return document


def read_text(data: bytes, document: Document) -> None:
    """Fill ``document`` from the bytes of its file."""
    text = _decode(data, document)
    if text is None:
        return
    roots = _compose(text, document)
    if roots is None:
        return
    if len(roots) > 1:
        mark = _mark(document.file, roots[1].start_mark)
        document.faults.append(
            Fault(
                what=f"the file holds {len(roots)} YAML documents; one is read",
                where=str(mark),
                hint="Remove the '---' line and what follows it, or move it to a file of its own.",
            )
        )
    if not roots or (roots[0].id == "scalar" and roots[0].tag.endswith(":null")):
        document.faults.append(
            Fault(what="the file is empty", where=f"{document.file}:1:1", hint="Start with the line 'version: 1'.")
        )
        return
    document.root = _Builder(document).build(roots[0])


def _decode(data: bytes, document: Document) -> str | None:
    for start, name in ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")):
        if data.startswith(start):
            document.faults.append(
                Fault(what=f"the file is {name}, not UTF-8", where=f"{document.file}:1:1", hint=_SAVE_AS_UTF8)
            )
            return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        document.faults.append(
            Fault(
                what=f"byte 0x{data[error.start]:02x} is not UTF-8",
                where=f"{document.file}:{before.count(bytes([10])) + 1}:{column}",
                hint=_SAVE_AS_UTF8,
            )
        )
        return None
    control = _CONTROL.search(text)
    if control is not None:
        line, column = _line_column(text, control.start())
        document.faults.append(
            Fault(
                what=f"control character U+{ord(control.group()):04X}",
                where=f"{document.file}:{line}:{column}",
                hint="Remove it; a file full of them is binary or UTF-16: save it as UTF-8 text.",
            )
        )
        return None
    return text


def _line_column(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _mark(file: str, mark: Any) -> Mark:
    return Mark(file=file, line=mark.line + 1, column=mark.column + 1)


def _compose(text: str, document: Document) -> list[Any] | None:
    """The roots of all documents in ``text``; None after a syntax error."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return list(yaml.compose_all(text, Loader=loader))
    except RecursionError:
        document.faults.append(
            Fault(what="nested too deeply", where=document.file, hint=f"At most {MAX_DEPTH} levels are read.")
        )
    except yaml.MarkedYAMLError as error:
        document.faults.extend(_tab_faults(text, document.file) or [_syntax_fault(error, document.file)])
    return None


def _tab_faults(text: str, file: str) -> list[Fault]:
    faults = []
    for match in _TAB_INDENT.finditer(text):
        line, column = _line_column(text, match.end() - 1)
        faults.append(
            Fault(
                what="a tab in the indentation",
                where=f"{file}:{line}:{column}",
                hint="YAML indents with spaces only; let the editor insert spaces for tabs.",
            )
        )
    return faults


def _syntax_fault(error: Any, file: str) -> Fault:
    mark = error.problem_mark or error.context_mark
    where = str(_mark(file, mark)) if mark is not None else file
    problem = error.problem or "cannot be read"
    since = f" ({error.context})" if error.context else ""
    if "undefined alias" in problem:
        hint = "An alias (*name) needs an anchor (&name) above it; put text that starts with * in quotes."
    elif "cannot start any token" in problem:
        hint = "Text that starts with @, `, % or a tab needs quotes."
    else:
        hint = "Look at the line above too: a missing quote, bracket or colon shows one line later."
    return Fault(what=f"not YAML: {problem}{since}", where=where, hint=hint)


class _Builder:
    """Makes the tree of one document from the composer's nodes; collects faults; counts what aliases expand to."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._count = 0
        self._open: set[int] = set()
        self._full = False

    def build(self, node: Any) -> Node:
        return self._node(node, (), None)

    def _fault(self, mark: Mark, path: Place, what: str, hint: str) -> None:
        self._document.faults.append(Fault(what=what, where=str(mark), path=json_path(path), hint=hint))
        self._document.faulty.add(path)

    def _node(self, node: Any, path: Place, key: Mark | None) -> Node:
        mark = _mark(self._document.file, node.start_mark)
        self._count += 1
        if not self._may_enter(node, path, key or mark):
            return Node(value=None, mark=mark, key=key)
        if node.id == "scalar":
            value, trap = read_scalar(node.value, node.tag, not node.style)
            trap = trap or (control_trap(value) if isinstance(value, str) else None)
            if trap is not None:
                self._fault(mark, path, trap.what, trap.hint)
            return Node(value=value, mark=mark, key=key)
        if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!"):
            self._fault(mark, path, f"the tag {node.tag!r} is not read here", "Remove the tag.")
        self._open.add(id(node))
        built: list[Node] | dict[str, Node]
        if node.id == "sequence":
            built = [self._node(child, (*path, index), None) for index, child in enumerate(node.value)]
        else:
            built = self._mapping(node, path)
        self._open.discard(id(node))
        return Node(value=built, mark=mark, key=key)

    def _may_enter(self, node: Any, path: Place, mark: Mark) -> bool:
        if self._full:
            return False
        if id(node) in self._open:
            self._fault(mark, path, "an anchor that contains itself", "A YAML alias must not stand inside its anchor.")
            return False
        if self._count > MAX_NODES:
            self._full = True
            self._fault(
                mark,
                path,
                f"aliases expand to more than {MAX_NODES} values",
                "This is the pattern of an alias bomb; write the values out, or use 'extends'.",
            )
            return False
        if len(path) > MAX_DEPTH:
            self._full = True
            self._fault(mark, path, "nested too deeply", f"At most {MAX_DEPTH} levels are read.")
            return False
        return True

    def _mapping(self, node: Any, path: Place) -> dict[str, Node]:
        built: dict[str, Node] = {}
        for key_node, value_node in node.value:
            mark = _mark(self._document.file, key_node.start_mark)
            name = self._key(key_node, mark, path)
            if name is None:
                continue
            if name in built:
                first = built[name].key
                self._fault(
                    mark,
                    (*path, name),
                    f"the key {name!r} is given twice",
                    f"It stands at line {first.line if first else '?'} already; YAML would keep only the last one.",
                )
                continue
            built[name] = self._node(value_node, (*path, name), mark)
        return built

    def _key(self, node: Any, mark: Mark, path: Place) -> str | None:
        if node.id != "scalar":
            self._fault(
                mark, (*path, "?"), f"a {node.id} as a key", "Keys are text; text that starts with [ or { needs quotes."
            )
            return None
        if node.tag.endswith(":merge") and not node.style:
            self._fault(
                mark, (*path, "<<"), "the merge key '<<' is not read", "Use 'extends' to build one recipe on another."
            )
            return None
        value, trap = read_scalar(node.value, node.tag, not node.style)
        if isinstance(value, str) and trap is None:
            return value
        words = trap.what if trap else f"the key {node.value!r} is not text"
        self._fault(
            mark,
            (*path, str(node.value)),
            f"{words} (as a key)" if trap else words,
            f'Put it in quotes: "{node.value}".',
        )
        return str(node.value)
