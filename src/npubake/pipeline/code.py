"""Pipeline: digest of the source that a stage runs, in a development checkout: an edited stage runs again unasked.

Found by reading, never by importing: the stage's module and all modules of the package that it imports, also inside
functions and by import string. The engine (``pipeline``), ``errors`` and the stage table carry bytes but make none;
they are left out, and so are packages that are only passed through. In an installed wheel there is no digest: the
stage's version speaks.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import time
from pathlib import Path
from typing import Any

from npubake.pipeline.files import is_young, signature, write_atomic

_IMPORT_STRING = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+(?::\w+)?")


def is_checkout(package: Path) -> bool:
    """Whether ``package`` is the source of a development checkout: ``<project>/src/<package>``."""
    return package.parent.name == "src" and (package.parent.parent / "pyproject.toml").is_file()


class CodeDigests:
    """Digests of stages' source under ``package``, with what was read kept in ``cache`` by file signature."""

    def __init__(self, package: Path, cache: Path) -> None:
        self._package = package
        self._cache = cache
        name = package.name
        self._left_out = (f"{name}.pipeline", f"{name}.errors", f"{name}.stages")
        self._modules: dict[str, list[Any]] = _load(cache) if is_checkout(package) else {}
        self._seen: dict[str, tuple[str, list[str]]] = {}
        self._dirty = False
        self._active = is_checkout(package)

    def digest(self, run: str) -> str | None:
        """sha256 over the sources behind ``"module:function"``; None in an installed wheel or outside the package."""
        module = run.partition(":")[0]
        if not self._active or self._path(module) is None:
            return None
        reached = self._reach(module)
        lines = [f"{name} {self._read(name)[0]}" for name in sorted(reached)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def forget(self) -> None:
        """Look at the files again on the next question."""
        self._seen.clear()

    def save(self) -> None:
        """Keep what was read for the next process."""
        if self._dirty:
            write_atomic(self._cache, json.dumps(self._modules).encode(), "code")
            self._dirty = False

    def _reach(self, module: str) -> set[str]:
        reached, waiting = set(), [module]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self._read(name)[1]
        return reached

    def _read(self, module: str) -> tuple[str, list[str]]:
        """(sha256 of the module's file, modules of the package that it imports)."""
        if module not in self._seen:
            path = self._path(module)
            assert path is not None
            stamp = signature(path)
            known = self._modules.get(module)
            if known is None or known[0] != list(stamp):
                source = path.read_bytes()
                known = [list(stamp), hashlib.sha256(source).hexdigest(), self._imports(module, path, source)]
                if not is_young(stamp, time.time_ns()):
                    self._modules[module], self._dirty = known, True
            self._seen[module] = (known[1], known[2])
        return self._seen[module]

    def _imports(self, module: str, path: Path, source: bytes) -> list[str]:
        here = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names: set[str] = set()
        for node in ast.walk(ast.parse(source)):
            names |= self._named_modules(node, here)
        return sorted(name for name in names if not self._is_left_out(name) and name != module)

    def _named_modules(self, node: ast.AST, here: str) -> set[str]:
        if isinstance(node, ast.Import):
            return {alias.name for alias in node.names if self._path(alias.name)}
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = here.split(".")[: len(here.split(".")) - node.level + 1]
                base = ".".join([*parent, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if self._path(name)}
            return modules if modules == inner else modules | ({base} if self._path(base) else set())
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _IMPORT_STRING.fullmatch(node.value):
            name = node.value.partition(":")[0]
            return {name} if self._path(name) else set()
        return set()

    def _is_left_out(self, module: str) -> bool:
        if module == self._package.name or module == f"{self._package.name}.stages":
            return True
        return any(module == left or module.startswith(f"{left}.") for left in self._left_out[:2])

    def _path(self, module: str) -> Path | None:
        first, _, rest = module.partition(".")
        if first != self._package.name:
            return None
        stem = self._package.joinpath(*rest.split(".")) if rest else self._package
        for candidate in (stem.with_suffix(".py") if rest else stem / "__init__.py", stem / "__init__.py"):
            if candidate.is_file():
                return candidate
        return None


def _load(cache: Path) -> dict[str, list[Any]]:
    try:
        known = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        return {}  # a cache: without it the files are read
    return known if isinstance(known, dict) else {}
