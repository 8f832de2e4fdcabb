"""Qualcomm toolchain: a model in the compiler's forms into a context binary that was looked at. Bytes in and out.

Two compiles in two clean folders, side by side, must give equal bytes; what the binary says of itself must be what was
asked for. Where the compiler refuses, it is asked once more with its verbose log, for the reasons that it then gives.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from npubake.errors import Fault, StageError
from npubake.toolchains.process import ProcessDied, fixed_folder, run_module
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.htp import checks
from npubake.toolchains.qualcomm.htp.context_archive import is_archive, without_time
from npubake.toolchains.qualcomm.htp.estimates import read_estimates
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, LOG, MODEL, WRAPPER
from npubake.toolchains.qualcomm.htp.metadata import Graph, Metadata, read_metadata
from npubake.toolchains.qualcomm.htp.operators import Operators
from npubake.toolchains.qualcomm.htp.options import PROFILE, TRACE_FILE, TRACE_FOLDER, provider_options
from npubake.toolchains.qualcomm.htp.trace import Trace, read_trace
from npubake.toolchains.qualcomm.htp.translation import explain_failure, explain_nodes, log_text

COMPILER = "npubake.toolchains.qualcomm.htp.htp_compiler"
_PACKAGES = ("numpy", "onnxruntime", "onnxruntime_qnn")
# Without this the compiler writes what its heap held (docs/decisions/0019).
_DIFFERENT = (
    "does the machine let a process switch off address randomisation ('setarch -R true')? Rules of containers may not: "
    "allow the system call personality; else the compiler is not deterministic for this model: report it"
)
_TIMEOUT = 3600.0  # seconds; a detector takes two, and the compiler's own limit is an hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One compile. model: in the forms that the compiler takes; platform, options: of the recipe."""

    model: bytes
    platform: HtpPlatform
    options: CompilerOptions

    @property
    def strict(self) -> bool:
        """Whether every node must be compiled."""
        return not self.options.cpu_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """wrapper: ONNX bytes that name the binary; log: of the compiler, without times or addresses; edges: what the
    application feeds and reads; cpu_nodes: operators that were left on the CPU.
    """

    wrapper: bytes
    binary: bytes
    metadata: Metadata
    trace: Trace
    log: str
    edges: Graph
    cpu_nodes: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """The metadata as JSON, and what it is not told of: ``edges``, ``cpu_nodes``."""
        return {**self.metadata.to_json(), "edges": asdict(self.edges), "cpu_nodes": list(self.cpu_nodes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one compile left. error: what was raised, or ''; wrapper, binary: b'' where there is none."""

    error: str
    log: tuple[str, ...]
    tools: Mapping[str, str]
    wrapper: bytes
    binary: bytes
    trace: str
    profile: str


def compile_model(asked: Asked, record: Mapping[str, Any], threads: int = 1) -> Compiled:
    """Compile twice, compare, read back, check. record: ``adapt``'s.

    Raises PlatformError and RecipeError for what cannot be asked, StageError where the compiler refuses, where two
    compiles differ, and with every way in which the artifact is not what was planned.
    """
    operators = Operators.of(onnx.load_model_from_string(asked.model))
    checks.refuse_unknown_nodes(asked.options.cpu_nodes, operators)
    _raise(checks.weights_without_zero_point(onnx.load_model_from_string(asked.model)))
    with ThreadPoolExecutor(max_workers=min(2, max(1, threads))) as pool:
        first, second = pool.map(lambda _: attempt(asked), range(2))
    if first.error:
        raise StageError(*refusal(asked, operators, first))
    refuse_difference(first, second)
    return _looked_at(first, asked, operators, record)


def attempt(asked: Asked, *, reasons: bool = False) -> Attempt:
    """One compile in a clean folder. reasons: keep also what the compiler tells verbose loggers only."""
    request = {
        "provider": provider_options(asked.platform, asked.options),
        "strict": asked.strict,
        "reasons": reasons,
    }
    seen = () if reasons else _PACKAGES  # what is asked for its reasons is not delivered: its bytes may be any
    with fixed_folder() as folder:
        (folder / MODEL).write_bytes(asked.model)
        try:
            answer = run_module(COMPILER, request, folder=folder, timeout=_TIMEOUT, packages=seen)
        except ProcessDied as died:  # the vendor's libraries crash on some models
            answer = {"error": died.faults[0].what, "tools": {}}
        binary = _left(folder / BINARY)
        return Attempt(
            error=answer["error"],
            log=tuple(json.loads(line) for line in _left(folder / LOG).decode().splitlines()),
            tools=answer["tools"],
            wrapper=_left(folder / WRAPPER),
            binary=without_time(binary) if is_archive(binary) else binary,
            trace=_left(folder / TRACE_FOLDER / TRACE_FILE).decode(),
            profile=_left(folder / PROFILE).decode(),
        )


def refusal(asked: Asked, operators: Operators, failed: Attempt) -> tuple[Fault, ...]:
    """Why the compiler refused, node by node. Asks it again: it gives its reasons to verbose loggers only."""
    told = attempt(asked, reasons=True)
    log = told.log if told.error else failed.log
    trace = read_trace(failed.trace, log, operators).without(asked.options.cpu_nodes)
    return explain_failure(failed.error, log, trace, operators, asked.platform)


def refuse_difference(first: Attempt, second: Attempt) -> None:
    """Raises StageError where two compiles of the same model are not the same bytes, or only one succeeded."""
    if second.error:
        what = f"the same model compiled once and then failed: {second.error}"
        raise StageError(Fault(what=what, hint="is memory or disk space short? build again"))
    faults = []
    for name, ours, theirs in ((WRAPPER, first.wrapper, second.wrapper), (BINARY, first.binary, second.binary)):
        digests = [hashlib.sha256(data).hexdigest() for data in (ours, theirs)]
        if digests[0] != digests[1]:
            what = f"two compiles of the same model differ: sha256 {digests[0]} and {digests[1]}"
            faults.append(Fault(what=what, where=name, hint=_DIFFERENT))
    _raise(faults)


def _looked_at(made: Attempt, asked: Asked, operators: Operators, record: Mapping[str, Any]) -> Compiled:
    missing = [name for name, data in ((WRAPPER, made.wrapper), (BINARY, made.binary)) if not data]
    _raise([Fault(what="the compiler wrote no such file", where=name) for name in missing])
    wrapper = onnx.load_model_from_string(made.wrapper)
    trace = read_trace(made.trace, made.log, operators)
    estimates = read_estimates(made.profile) if len(asked.platform.soc_models) == 1 else {}  # they name no SoC
    metadata = replace(read_metadata(made.binary), tools=made.tools, estimates=estimates)
    named, edges = asked.options.cpu_nodes, checks.application_edges(metadata, wrapper, record)
    _raise(
        [
            *explain_nodes(trace.without(named).unsupported, operators, asked.platform),
            *checks.wrapper_faults(wrapper, operators, named),
            *checks.metadata_faults(metadata, asked.platform),
            *checks.graph_faults(metadata, named),
            *checks.edge_faults(edges, record),
        ]
    )
    return Compiled(
        wrapper=made.wrapper,
        binary=made.binary,
        metadata=metadata,
        trace=trace,
        log=log_text(made.log),
        edges=edges,
        cpu_nodes=tuple(checks.left_on_cpu(wrapper, operators)),
    )


def _left(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _raise(faults: list[Fault]) -> None:
    if faults:
        raise StageError(*faults)
