"""Pipeline: what a stage is: a small value that says what it reads, what it makes, where its ``run`` stands. No I/O.

``run`` is named by an import string, so that planning never imports onnx, onnxruntime or numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step with typed ports.

    inputs, outputs: port name -> artifact type. An input type that ends in ``*`` takes any number of artifacts, one
    that ends in ``?`` none or one. tools: names of installed distributions whose versions enter the key.
    run: ``"module:function"``; the function takes one ``Job`` and writes every output.
    version: raised whenever the same inputs would give other bytes.
    """

    name: str
    version: int
    run: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a stage's ``run`` may see: parameters, input files (read only), output paths to write, a thread count.

    Nothing else: no environment, clock, network or working directory. The same inputs must give the same bytes for
    any ``threads``. ``progress(done, total)`` may be called at any time.
    """

    params: Mapping[str, Any]
    inputs: Mapping[str, tuple[Path, ...]]
    outputs: Mapping[str, Path]
    threads: int = 1
    progress: Callable[[int, int], None] = lambda _done, _total: None

    def input(self, port: str) -> Path:
        """The one artifact of ``port``."""
        (path,) = self.inputs[port]
        return path

    def optional(self, port: str) -> Path | None:
        """The artifact of an optional port, or None."""
        paths = self.inputs.get(port, ())
        return paths[0] if paths else None
