"""The size table of `make check`: the largest files and functions of src, and a limit that makes growth a decision.

Aim: 300 lines a file, 40 a function, 5 parameters. The limits leave room for one more case, not for a habit.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parent.parent / "src"
FILE_LINES, FUNCTION_LINES, PARAMETERS = 320, 50, 6


class Function(NamedTuple):
    """One function's place and size."""

    lines: int
    parameters: int
    where: str


def functions(path: Path) -> list[Function]:
    """Every function of one file, nested ones included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    place = path.relative_to(SOURCE)
    return [
        Function(
            lines=(node.end_lineno or node.lineno) - node.lineno + 1,
            parameters=len(node.args.args)
            + len(node.args.kwonlyargs)
            - (node.args.args[:1] != [] and node.args.args[0].arg in ("self", "cls")),
            where=f"{place}:{node.lineno} {node.name}",
        )
        for node in nodes
    ]


def main() -> int:
    """Prints the table; 1 if anything is over a limit."""
    files = sorted(SOURCE.rglob("*.py"))
    sizes = sorted(((len(path.read_text(encoding="utf-8").splitlines()), path) for path in files), reverse=True)
    found = sorted((function for path in files for function in functions(path)), reverse=True)
    for lines, path in sizes[:5]:
        print(f"{lines:5d} lines  {path.relative_to(SOURCE)}")
    for function in found[:5]:
        print(f"{function.lines:5d} lines  {function.where}")
    if found:
        median, tail = found[len(found) // 2].lines, found[len(found) // 10].lines
        print(f"{len(files)} files, {len(found)} functions: median {median} lines, 90th percentile {tail}")
    over = [f"{path}: {lines} lines" for lines, path in sizes if lines > FILE_LINES]
    over += [f"{f.where}: {f.lines} lines" for f in found if f.lines > FUNCTION_LINES]
    over += [f"{f.where}: {f.parameters} parameters" for f in found if f.parameters > PARAMETERS]
    print("\n".join(f"over the limit: {line}" for line in over), end="\n" if over else "")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
