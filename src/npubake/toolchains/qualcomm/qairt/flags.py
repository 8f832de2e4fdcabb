"""Qualcomm toolchain, SDK road: how each version of the SDK spells what we ask of its tools. A table; no I/O.

A version outside the table is refused: a flag that a tool does not know ends a conversion after minutes, and a key that
a configuration does not know is ignored without a word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from npubake.errors import Fault, ToolchainError

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The spelling of one range of versions. since: its first version, (major, minor); source: where that was read.

    input_shape: of qairt-converter, '' where no source says which of two spellings holds (it is optional for ONNX
    models of fixed shapes, and all of ours are); input_layouts: of qairt-converter, of the source's input and of the
    binary's, () where no source has them (optional as well: the axes of an input stay what they are); act_bits,
    weight_bits, bias_bits: of qnn-onnx-converter and qairt-quantizer; float_fallback: of qairt-quantizer; soc: the key
    of a device's SoC in the backend's configuration; qairt: whether qairt-converter and qairt-quantizer are there.
    """

    since: Version
    source: str
    input_shape: str
    input_layouts: tuple[str, ...]
    act_bits: str
    weight_bits: str
    bias_bits: str
    float_fallback: str
    soc: str
    qairt: bool


_FIRST = Flags(
    since=(2, 10),
    source="QNN manual of the 2.1x series: qnn-onnx-converter [--bias_bw] [--act_bw] [--weight_bw]",
    input_shape="",
    input_layouts=(),
    act_bits="--act_bw",
    weight_bits="--weight_bw",
    bias_bits="--bias_bw",
    float_fallback="",
    soc="soc_id",
    qairt=False,
)
_QAIRT = replace(
    _FIRST,
    since=(2, 22),
    source="docs of 2.29: 'the 2.21 release introduces a new conversion tool'; --desired_input_shape. Parser of "
    "qairt-quantizer: --act_bitwidth, --weights_bitwidth, --bias_bitwidth, --enable_float_fallback",
    input_shape="--desired_input_shape",
    act_bits="--act_bitwidth",
    weight_bits="--weights_bitwidth",
    bias_bits="--bias_bitwidth",
    float_fallback="--enable_float_fallback",
    qairt=True,
)
_BETWEEN = replace(
    _QAIRT,
    since=(2, 30),
    source="between the documents of 2.29 and 2.37: the spelling of the shape changed somewhere here",
    input_shape="",
    soc="soc_model",
)
_LAYOUTS = replace(
    _BETWEEN,
    since=(2, 37),
    source="docs of 2.39 (qairt-converter --source_model_input_shape; --desired_input_shape is deprecated) and "
    "80-87189-2 (devices: soc_model); tutorials of 2.37 spell the shape alike. 2.42 dropped --quant_scheme, which "
    "is never written here",
    input_shape="--source_model_input_shape",
    input_layouts=("--source_model_input_layout", "--desired_input_layout"),
)
# Ascending; each row says what changed. The last one holds up to LAST.
TABLE: tuple[Flags, ...] = (_FIRST, _QAIRT, _BETWEEN, _LAYOUTS)
LAST: Version = (2, 51)  # the newest that was looked at


def flags_of(version: str) -> Flags:
    """The row of ``version`` (``2.39.0.250926``). Raises ToolchainError for one that the table does not cover."""
    asked = major_minor(version)
    rows = [row for row in TABLE if row.since <= asked]
    if not rows or asked > LAST:
        first, last = (".".join(map(str, each)) for each in (TABLE[0].since, LAST))
        what = f"QAIRT SDK {version} is not one whose flags are known"
        hint = f"known are {first} to {last}; install one of these, or take road: wheel, which needs no SDK"
        raise ToolchainError(Fault(what=what, where="qualcomm", hint=hint))
    return rows[-1]


def major_minor(version: str) -> Version:
    """The first two numbers. Raises ToolchainError where the text is no version."""
    parts = version.split(".")[:2]
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        hint = "a version looks like 2.39.0.250926"
        raise ToolchainError(Fault(what=f"{version!r} is no version of an SDK", where="qualcomm", hint=hint))
    return tuple(int(part) for part in parts)
