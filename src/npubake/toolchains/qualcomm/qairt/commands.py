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
SOURCE, WEIGHTS = f"{GRAPH}.cpp", f"{GRAPH}.bin"
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
    """What is converted. inputs: name -> shape, in the graph's order; outputs: names; encodings: None for a float
    artifact; io: what the binary takes and gives; lines: inputs of pictures as [N, H, W, C]; pictures: all that take
    bytes of one, whatever ``io`` says.
    """

    converter: Converter
    version: str
    inputs: Mapping[str, Sequence[int]]
    encodings: Encodings | None
    io: str
    outputs: Sequence[str] = ()
    pictures: Sequence[str] = ()
    lines: Sequence[str] = ()

    @property
    def kept_types(self) -> tuple[str, ...] | None:
        """Inputs and outputs whose type of the source model the binary keeps; () for all of them, None for none."""
        if self.io != "float":
            return None
        if self.encodings is None or not self.pictures:
            return ()  # a picture's type is uint8 there, too
        return tuple(name for name in (*self.inputs, *self.outputs) if name not in self.pictures)


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
    for name in asked.lines if flags.input_layouts else ():
        words += [word for flag in flags.input_layouts for word in (flag, name, "NHWC")]
    words += ["--target_backend", "HTP", "--float_bitwidth", "16"]
    words += ["--quantization_overrides", ENCODINGS] if quantised else []
    kept = () if asked.kept_types is None else ("--preserve_io_datatype", *asked.kept_types)
    words += kept
    commands = [Command(tool="qairt-converter", words=tuple(words))]
    if quantised:
        paths = ("--input_dlc", FLOAT_DLC, "--output_dlc", DLC)
        rest = (flags.float_fallback, "--target_backend", "HTP", "--dump_encoding_json", *kept)
        commands.append(Command(tool="qairt-quantizer", words=(*paths, *_widths(asked), *rest)))
    return commands


def _to_library(asked: Conversion) -> list[Command]:
    words = ["--input_network", MODEL, "--output_path", SOURCE]
    for name, shape in asked.inputs.items():
        words += ["--input_dim", name, _dims(shape)]
    for name in asked.lines:
        words += ["--input_layout", name, "NHWC"]
    # The older converter makes layouts channels-last unless told not to.
    words += ["--preserve_io"] if asked.kept_types == () else ["--preserve_io", "layout"]
    words += ["--preserve_io", "datatype", *asked.kept_types] if asked.kept_types else []
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
