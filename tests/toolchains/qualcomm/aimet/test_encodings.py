"""Encodings of AIMET: the grid against the example of its own specification, both schemas alike, faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from npubake.errors import StageError
from npubake.toolchains.qualcomm.aimet.encodings import Encoding, read_encodings

# AIMET, Docs/api_docs/quantization_encoding_specification.rst, 2.2: the first entry of the example.
MINIMUM, MAXIMUM, SCALE, OFFSET = -2.109158515930176, 2.6086959838867188, 0.018501389771699905, -114


def legacy(**activation: Any) -> str:
    entry = {"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "max": MAXIMUM, "min": MINIMUM, "offset": OFFSET}
    channel = {"bitwidth": 8, "dtype": "int", "is_symmetric": "True", "max": 0.5, "min": -0.504, "offset": -128}
    channels = [{**channel, "scale": 0.004}, {**channel, "scale": 0.002}]
    return json.dumps(
        {
            "version": "0.6.1",
            "activation_encodings": {"t": [{**entry, "scale": SCALE, **activation}]},
            "param_encodings": {"w": channels},
        }
    )


def newer(**activation: Any) -> str:
    tensor = {"name": "t", "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR", "is_sym": False}
    channels = {"name": "w", "bw": 8, "dtype": "INT", "enc_type": "PER_CHANNEL", "is_sym": True}
    return json.dumps(
        {
            "version": "1.0.0",
            "activation_encodings": [{**tensor, "scale": [SCALE], "offset": [OFFSET], **activation}],
            "param_encodings": [{**channels, "scale": [0.004, 0.002], "offset": [-128, -128]}],
        }
    )


@pytest.mark.parametrize("text", [legacy(), newer()], ids=["0.6.1", "1.0.0"])
def test_the_zero_point_spans_the_range_that_the_specification_states(text: str) -> None:
    found = read_encodings(text).activations["t"]
    (zero,) = found.zero_points(signed=False)
    assert SCALE * (0 - zero) == pytest.approx(MINIMUM, rel=1e-6)
    assert SCALE * (255 - zero) == pytest.approx(MAXIMUM, rel=1e-6)
    (signed,) = found.zero_points(signed=True)
    assert SCALE * (-128 - signed) == pytest.approx(MINIMUM, rel=1e-6)
    assert not found.symmetric


def test_both_schemas_say_the_same() -> None:
    first, second = read_encodings(legacy()), read_encodings(newer())
    assert first.activations == second.activations
    assert first.parameters == second.parameters


def test_a_symmetric_weight_has_zero_at_the_middle_of_the_signed_codes() -> None:
    found = read_encodings(newer()).parameters["w"]
    assert found.per_channel
    assert found.scales == (0.004, 0.002)
    assert found.zero_points(signed=True) == (0, 0)
    assert found.zero_points(signed=False) == (128, 128)


def test_sixteen_bits() -> None:
    wide = Encoding(bits=16, symmetric=False, scales=(1.0,), offsets=(-32768,))
    assert wide.zero_points(signed=False) == (32768,)
    assert wide.zero_points(signed=True) == (0,)


@pytest.mark.parametrize("text", [legacy(dtype="float", bitwidth=16), newer(dtype="FLOAT", bw=16)])
def test_a_float_encoding_is_no_integer_one(text: str) -> None:
    found = read_encodings(text)
    assert found.left_in_float == ("t",)
    assert found.activations == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("{}", "cannot be read"),
        (newer().replace("1.0.0", "2.0.0"), "2.0.0"),
        (newer(enc_type="LPBQ"), "LPBQ"),
        (newer().replace('"bw"', '"bits"'), "bw"),
    ],
)
def test_what_is_no_known_file_is_refused(text: str, said: str) -> None:
    with pytest.raises(StageError) as caught:
        read_encodings(text)
    assert said in str(caught.value)
