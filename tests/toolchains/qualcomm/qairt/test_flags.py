"""Versions of the SDK and their spellings: rows that ascend, what each says, and what is refused."""

from __future__ import annotations

import pytest

from npubake.errors import ToolchainError
from npubake.toolchains.qualcomm.qairt.commands import Conversion, conversion
from npubake.toolchains.qualcomm.qairt.encodings import Encodings, tensor_encoding
from npubake.toolchains.qualcomm.qairt.flags import LAST, TABLE, flags_of
from npubake.toolchains.qualcomm.qairt.sdk import Converter

ENCODINGS = Encodings(activations=(tensor_encoding("x", "uint8", 0.5, 3),), weights=())
VERSIONS = ("2.10.0", "2.21.3.240401", "2.22.0", "2.29.0.241129", "2.33.0", "2.39.0.250926", "2.42.0", "2.51.0.260929")
# Spellings that a version refuses or ignores -> the first version that does; sources as of the table's rows.
RETIRED = {
    "--act_bw": (2, 22),
    "--weight_bw": (2, 22),
    "--bias_bw": (2, 22),
    "--desired_input_shape": (2, 37),
    "--quant_scheme": (2, 42),
}


def test_rows_ascend_and_each_has_a_source() -> None:
    assert [row.since for row in TABLE] == sorted({row.since for row in TABLE})
    assert all(row.source for row in TABLE)
    assert TABLE[-1].since <= LAST


# From Qualcomm's documents of 2.29 and 2.39, and the manual of the first versions.
@pytest.mark.parametrize(
    ("version", "shape", "bits", "soc"),
    [
        ("2.18.0.240101", "", "--act_bw", "soc_id"),
        ("2.29.0.241129", "--desired_input_shape", "--act_bitwidth", "soc_id"),
        ("2.33.0", "", "--act_bitwidth", "soc_model"),
        ("2.39.0.250926", "--source_model_input_shape", "--act_bitwidth", "soc_model"),
    ],
)
def test_spellings_of_known_versions(version: str, shape: str, bits: str, soc: str) -> None:
    found = flags_of(version)
    assert (found.input_shape, found.act_bits, found.soc) == (shape, bits, soc)


@pytest.mark.parametrize("version", ["2.9.0", "2.52.0.261201", "3.0.0", "1.60.0"])
def test_a_version_outside_the_table_is_refused(version: str) -> None:
    with pytest.raises(ToolchainError) as refused:
        flags_of(version)
    assert version in refused.value.faults[0].what
    assert "2.10 to 2.51" in refused.value.faults[0].hint


@pytest.mark.parametrize("version", ["", "2", "latest", "v2.39", "2.x.1", "²2.1"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ToolchainError):
        flags_of(version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("converter", ["qairt", "qnn"])
@pytest.mark.parametrize("io", ["quantized", "float"])
def test_no_command_line_holds_a_spelling_that_its_version_gave_up(version: str, converter: Converter, io: str) -> None:
    if converter == "qairt" and not flags_of(version).qairt:
        return
    asked = Conversion(converter=converter, version=version, inputs={"x": (1, 3)}, encodings=ENCODINGS, io=io)
    words = {word for command in conversion(asked) for word in command.words}
    numbers = tuple(map(int, version.split(".")[:2]))
    assert not [flag for flag, since in RETIRED.items() if flag in words and numbers >= since]
    assert "" not in words
