"""Qualcomm toolchain, SDK road: the command lines from an ONNX file to a context binary, and to its run. Pure.

File names are fixed and relative to one folder, so that the same inputs give the same command lines everywhere: a
graph's name is its file's, and enters the binary. Two roads: to a DLC (``qairt``: qairt-converter, qairt-quantizer),
and older, to C++ and a library of it (``qnn``: qnn-onnx-converter, qnn-model-lib-generator). Both end in
qnn-context-binary-generator. With encodings no input list is given: a list would have the converter calibrate what has
no encoding, without a word (AIMET issue 4071); the float fallback counts it, and the count is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npubake.toolchains.qualcomm.qairt import backend_config
from npubake.toolchains.qualcomm.qairt.encodings import Encodings
from npubake.toolchains.qualcomm.qairt.flags import flags_of
from npubake.toolchains.qualcomm.qairt.raw_files import LIST
from npubake.toolchains.qualcomm.qairt.sdk import BACKEND, DLC_LOADER, HOST, Converter

GRAPH = "model"
MODEL, ENCODINGS = f"{GRAPH}.onnx", f"{GRAPH}.encodings"
FLOAT_DLC, DLC = f"float/{GRAPH}.dlc", f"{GRAPH}.dlc"
SOURCE, WEIGHTS, NET = f"{GRAPH}.cpp", f"{GRAPH}.bin", f"{GRAPH}_net.json"
LIBRARIES = "libs"
BINARY = "model_ctx_qnn"
BINARY_FOLDER, RUN_FOLDER, INFO = "context", "ran", "model_ctx_qnn.json"
BIAS_BITS = 32  # 8 by the tools' default, which no int32 accumulator is


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One tool and its words. ``{sdk}`` at the start of a word stands for the SDK's folder."""

    tool: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What is converted. inputs: name -> shape, in the graph's order; encodings: None for a float artifact; io: what
    the binary takes and gives.
    """

    converter: Converter
    version: str
    inputs: Mapping[str, Sequence[int]]
    encodings: Encodings | None
    io: str


def conversion(asked: Conversion) -> tuple[Command, ...]:
    """From ``model.onnx`` to ``context/model_ctx_qnn.bin``, in this order. Raises ToolchainError for a version of the
    SDK that the table of flags does not cover.
    """
    steps = _to_dlc(asked) if asked.converter == "qairt" else _to_library(asked)
    return (*steps, _generate(asked))


def read_back() -> Command:
    """The binary's own facts, as JSON."""
    binary = f"{BINARY_FOLDER}/{BINARY}.bin"
    return Command(tool="qnn-context-binary-utility", words=("--context_binary", binary, "--json_file", INFO))


def net_run(*, native: bool = True) -> Command:
    """The binary on every line of the list, in the x86 emulator. native: files in the graph's own types, else float32,
    which the tool converts.
    """
    words = {
        "--retrieve_context": f"{BINARY_FOLDER}/{BINARY}.bin",
        "--backend": library(BACKEND),
        "--input_list": LIST,
        "--output_dir": RUN_FOLDER,
        "--config_file": backend_config.OUTER,
    }
    own_types = ("--use_native_input_files", "--use_native_output_files") if native else ()
    return Command(tool="qnn-net-run", words=(*_flat(words), *own_types))


def library(name: str) -> str:
    """A library of the SDK, as a word of a command."""
    return f"{{sdk}}/lib/{HOST}/{name}"


def _to_dlc(asked: Conversion) -> list[Command]:
    flags, quantised = flags_of(asked.version), asked.encodings is not None
    words = ["--input_network", MODEL, "--output_path", FLOAT_DLC if quantised else DLC]
    for name, shape in asked.inputs.items() if flags.input_shape else ():
        words += [flags.input_shape, name, _dims(shape)]
    words += ["--target_backend", "HTP", "--float_bitwidth", "16"]
    words += ["--quantization_overrides", ENCODINGS] if quantised else []
    words += ["--preserve_io_datatype"] if asked.io == "float" else []
    commands = [Command(tool="qairt-converter", words=tuple(words))]
    if quantised:
        paths = ("--input_dlc", FLOAT_DLC, "--output_dlc", DLC)
        kept = ("--preserve_io_datatype",) if asked.io == "float" else ()
        rest = (flags.float_fallback, "--target_backend", "HTP", "--dump_encoding_json", *kept)
        commands.append(Command(tool="qairt-quantizer", words=(*paths, *_widths(asked), *rest)))
    return commands


def _to_library(asked: Conversion) -> list[Command]:
    words = ["--input_network", MODEL, "--output_path", SOURCE]
    for name, shape in asked.inputs.items():
        words += ["--input_dim", name, _dims(shape)]
    # The older converter makes layouts channels-last unless told not to.
    words += ["--preserve_io"] if asked.io == "float" else ["--preserve_io", "layout"]
    if asked.encodings is not None:
        words += ["--quantization_overrides", ENCODINGS, "--float_fallback", *_widths(asked)]
    else:
        words += ["--float_bitwidth", "16"] if flags_of(asked.version).qairt else ["--float_bw", "16"]
    generate = ("-c", SOURCE, "-b", WEIGHTS, "-o", LIBRARIES, "-t", HOST)
    return [
        Command(tool="qnn-onnx-converter", words=tuple(words)),
        Command(tool="qnn-model-lib-generator", words=generate),
    ]


def _widths(asked: Conversion) -> tuple[str, ...]:
    """Widths of what has no encoding, of biases and of the float fallback."""
    assert asked.encodings is not None
    flags = flags_of(asked.version)
    widths = {
        flags.act_bits: asked.encodings.activation_bits,
        flags.weight_bits: asked.encodings.weight_bits,
        flags.bias_bits: BIAS_BITS,
        "--float_bitwidth" if flags.qairt else "--float_bw": 16,
    }
    return _flat({name: str(width) for name, width in widths.items()})


def _generate(asked: Conversion) -> Command:
    if asked.converter == "qairt":
        model = {"--model": library(DLC_LOADER), "--dlc_path": DLC}
    else:
        model = {"--model": f"{LIBRARIES}/{HOST}/lib{GRAPH}.so"}
    words = {
        **model,
        "--backend": library(BACKEND),
        "--output_dir": BINARY_FOLDER,
        "--binary_file": BINARY,
        "--config_file": backend_config.OUTER,
    }
    return Command(tool="qnn-context-binary-generator", words=_flat(words))


def _flat(words: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for pair in words.items() for word in pair)


def _dims(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))
