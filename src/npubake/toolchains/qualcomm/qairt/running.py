"""Qualcomm toolchain, SDK road: runs the SDK's tools in a folder of their own. Bytes in, bytes out.

Names are fixed, paths relative, the environment that of ``toolchains.process`` and the SDK's folders. All they
print is kept, with the folder's, the SDK's and the machine's marks taken out, so that the log of a build is its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npubake.errors import Fault, StageError
from npubake.toolchains import process
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.qairt import backend_config, commands
from npubake.toolchains.qualcomm.qairt.commands import Command, Conversion
from npubake.toolchains.qualcomm.qairt.encodings import EncodingsVersion, check_encodings, encodings_text
from npubake.toolchains.qualcomm.qairt.raw_files import LIST
from npubake.toolchains.qualcomm.qairt.sdk import EXTENSIONS, HOST, Sdk

_MADE = f"{commands.BINARY_FOLDER}/{commands.BINARY}.bin"
TIMEOUT = 3600.0  # seconds of one tool; conversions of large models take minutes
# What differs between two runs of the same tool: clocks, processes, addresses, durations.
_PASSING = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?"), "<time>"),
    (re.compile(r"\bpid:?\s*\d+"), "pid"),
    (re.compile(r"\b0x[0-9a-fA-F]{6,}\b"), "<address>"),
    (re.compile(r"\b\d+(\.\d+)?\s?(ms|us|sec|seconds|s)\b"), "<duration>"),
)


@dataclass(slots=True, kw_only=True)
class Workshop:
    """A folder in which the tools of one SDK run. log: all that they printed so far, normalised."""

    sdk: Sdk
    folder: Path
    log: list[str] = field(default_factory=list)
    watch: Callable[[], None] = lambda: None

    def write(self, path: str, data: bytes) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def run(self, command: Command, makes: str = "") -> None:
        """One tool. makes: what has to be there afterwards. Raises StageError with what the tool said."""
        words = [word.replace("{sdk}", str(self.sdk.root), 1) if word.startswith("{sdk}/") else word
                 for word in command.words]  # fmt: skip
        line = [str(self.sdk.tool(command.tool)), *words]
        ended = process.run(
            line, folder=self.folder, timeout=TIMEOUT, environment=self.sdk.environment(), watch=self.watch
        )
        said = self._normalised(ended.text)
        self.log += [f"$ {command.tool} {' '.join(command.words)}", *said.splitlines(), f"{ended.how}"]
        if ended.status:
            raise StageError(self._fault(command, f"ended with {ended.how}", said))
        if makes and not (self.folder / makes).exists():
            raise StageError(self._fault(command, f"ended well but wrote no {makes}", said))

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def _normalised(self, text: str) -> str:
        for mark, name in ((str(self.sdk.root), "{sdk}"), (str(self.folder), "."), (str(Path.home()), "~")):
            text = text.replace(mark, name)
        for pattern, name in _PASSING:
            text = pattern.sub(name, text)
        return text

    def _fault(self, command: Command, what: str, said: str) -> Fault:
        words = [line for line in said.splitlines() if line.strip()]
        errors = [line for line in words if "error" in line.lower()][-8:]
        shown = "\n".join(errors or words[-12:]) or "it printed nothing"
        hint = f"{command.tool} of QAIRT SDK {self.sdk.version} said:\n{shown}"
        return Fault(what=f"{command.tool} {what}", where=command.tool, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is compiled. model: bytes of the float ONNX model; version: of the file of encodings."""

    model: bytes
    conversion: Conversion
    version: EncodingsVersion
    platform: HtpPlatform
    options: CompilerOptions


def convert(shop: Workshop, request: Request) -> bytes:
    """Run the whole road; the context binary's bytes. Raises StageError where a tool fails."""
    prepare(shop, request.platform, request.options)
    shop.write(commands.MODEL, request.model)
    if request.conversion.encodings is not None:
        text = encodings_text(request.conversion.encodings, request.version)
        check_encodings(json.loads(text))
        shop.write(commands.ENCODINGS, text.encode())
    for folder in ("float", commands.BINARY_FOLDER):
        (shop.folder / folder).mkdir()
    steps = commands.conversion(request.conversion)
    for command, made in zip(steps, products(request.conversion), strict=True):
        shop.run(command, made)
    binary = shop.read(_MADE)
    _require_repeatable(shop, steps[-1], binary)
    return binary


def _require_repeatable(shop: Workshop, generate: Command, binary: bytes) -> None:
    """Run the generator again from the same DLC or library; its time stamps stay out of this. Raises StageError."""
    (shop.folder / _MADE).unlink()
    shop.run(generate, _MADE)
    again = shop.read(_MADE)
    if again != binary:
        digests = " and ".join(hashlib.sha256(data).hexdigest() for data in (binary, again))
        apart = sum(one != other for one, other in zip(binary, again, strict=False)) + abs(len(binary) - len(again))
        what = f"two runs of {generate.tool} on the same model differ in {apart} bytes: sha256 {digests}"
        hint = "the generator of this SDK is not deterministic here: report the model; another SDK, or road: wheel"
        raise StageError(Fault(what=what, where=generate.tool, hint=hint))


def products(asked: Conversion) -> tuple[str, ...]:
    """The file that each command of ``commands.conversion`` has to leave."""
    binary = f"{commands.BINARY_FOLDER}/{commands.BINARY}.bin"
    if asked.converter == "qnn":
        return commands.SOURCE, f"{commands.LIBRARIES}/{HOST}/lib{commands.GRAPH}.so", binary
    return (commands.DLC, binary) if asked.encodings is None else (commands.FLOAT_DLC, commands.DLC, binary)


def prepare(shop: Workshop, platform: HtpPlatform, options: CompilerOptions) -> None:
    """The backend's two configuration files."""
    inner = backend_config.inner_text(platform, options, commands.GRAPH, shop.sdk.version)
    shop.write(backend_config.OUTER, backend_config.outer_text(str(shop.sdk.library(EXTENSIONS))).encode())
    shop.write(backend_config.INNER, inner.encode())


def read_back(shop: Workshop) -> Any:
    """The JSON of qnn-context-binary-utility of the binary in the shop. Raises StageError."""
    shop.run(commands.read_back(), commands.INFO)
    try:
        return json.loads(shop.read(commands.INFO))
    except ValueError as error:
        what = f"qnn-context-binary-utility wrote no JSON: {error}"
        raise StageError(Fault(what=what, where="qnn-context-binary-utility")) from error


def run_examples(shop: Workshop, files: Iterable[tuple[str, bytes]], text: str) -> None:
    """qnn-net-run over a list. files: raw files by path; text: the list."""
    for path, data in files:
        shop.write(path, data)
    shop.write(LIST, text.encode())
    shop.run(commands.net_run(), f"{commands.RUN_FOLDER}/Result_0")


def result_file(shop: Workshop, index: int, names: Sequence[str]) -> bytes:
    """What qnn-net-run wrote for one output of one example; native files may carry ``_native`` in their name. names:
    spellings of the output. Raises StageError with what is there instead.
    """
    folder = shop.folder / commands.RUN_FOLDER / f"Result_{index}"
    for name in names:
        for file in (f"{name}_native.raw", f"{name}.raw"):
            if (folder / file).is_file():
                return (folder / file).read_bytes()
    there = ", ".join(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else "nothing"
    what = f"qnn-net-run wrote no file of output {names[0]!r} of example {index}; there is {there}"
    raise StageError(Fault(what=what, where="qnn-net-run"))


def tool_versions(sdk: Sdk, converter: str) -> Mapping[str, str]:
    """For the manifest: the SDK's version, which is that of QNN in it, and the road taken."""
    return {"qairt_sdk": sdk.version, "qnn": sdk.version, "converter": converter}
