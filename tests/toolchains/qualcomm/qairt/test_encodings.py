"""Encodings of the SDK: grids against ONNX's DequantizeLinear, forms against AIMET's specification and files."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from npubake.errors import StageError
from npubake.quant.parameters import GroupParameters, QuantizationParameters, TensorParameters, WeightParameters
from npubake.toolchains.qualcomm.qairt.encodings import (
    VERSIONS,
    Encodings,
    EncodingsVersion,
    check_encodings,
    encodings_text,
    float_encoding,
    of_parameters,
    of_record,
    tensor_encoding,
    weight_encoding,
)
from npubake.toolchains.qualcomm.qairt.encodings_schema import faults

# The first entries of AIMET's own example of encodings (Docs/api_docs/quantization_encoding_specification.rst, 2.2).
AIMET_EXAMPLE = {"bitwidth": 8, "max": 2.6086959838867188, "min": -2.109158515930176, "offset": -114}
AIMET_SCALE = 0.018501389771699905
TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16, "int16": TensorProto.INT16}
WIDTHS = {"uint8": 8, "int8": 8, "uint16": 16, "int16": 16}


def both(encodings: Encodings) -> list[dict[str, Any]]:
    return [json.loads(encodings_text(encodings, version)) for version in VERSIONS]


def dequantised(codes: np.ndarray[Any, Any], dtype: str, scale: float, zero_point: int) -> np.ndarray[Any, Any]:
    """All codes of a type by ONNX's reference evaluator."""
    constants = [
        helper.make_tensor("scale", TensorProto.FLOAT, [], [scale]),
        helper.make_tensor("zero", TYPES[dtype], [], [zero_point]),
    ]
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["real"])],
        "grid",
        [helper.make_tensor_value_info("codes", TYPES[dtype], [len(codes)])],
        [helper.make_tensor_value_info("real", TensorProto.FLOAT, [len(codes)])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    onnx.checker.check_model(model)
    answered: Any = ReferenceEvaluator(model).run(None, {"codes": codes.astype(dtype)})
    return np.asarray(answered[0])


@pytest.mark.parametrize(
    ("dtype", "zero_point"),
    [("uint8", 0), ("uint8", 113), ("uint8", 128), ("int8", 0), ("int8", -5), ("int16", 0), ("uint16", 32768)],
)
def test_the_grid_of_an_encoding_is_that_of_dequantize_linear(dtype: str, zero_point: int) -> None:
    """The reader's formula, scale * (q + offset) over q = 0 .. 2**bits - 1, gives ONNX's value of every code."""
    scale = float(np.float32(0.0371))
    info = np.iinfo(dtype)
    wanted = dequantised(np.arange(info.min, info.max + 1), dtype, scale, zero_point)
    encodings = Encodings(activations=(tensor_encoding("t", dtype, scale, zero_point),), weights=())
    old, new = both(encodings)
    entry = old["activation_encodings"]["t"][0]
    codes = np.arange(2 ** entry["bitwidth"])
    assert entry["bitwidth"] == WIDTHS[dtype]
    np.testing.assert_allclose(entry["scale"] * (codes + entry["offset"]), wanted, rtol=1e-6)
    assert entry["min"] == pytest.approx(wanted.min(), rel=1e-6)
    assert entry["max"] == pytest.approx(wanted.max(), rel=1e-6)
    (newer,) = new["activation_encodings"]
    np.testing.assert_allclose(newer["scale"][0] * (codes + newer["offset"][0]), wanted, rtol=1e-6)


def test_the_example_of_aimets_specification_is_made_again() -> None:
    """Its scale and zero point (114) in, its min, max and offset out."""
    made = tensor_encoding("20", "uint8", AIMET_SCALE, 114)
    old, _ = both(Encodings(activations=(made,), weights=()))
    (entry,) = old["activation_encodings"]["20"]
    assert {name: entry[name] for name in AIMET_EXAMPLE} == pytest.approx(AIMET_EXAMPLE, rel=1e-6)
    assert entry["is_symmetric"] == "False"


def test_a_weight_per_channel_reads_as_in_a_file_that_aimet_wrote() -> None:
    """AIMET 2.42, int8 symmetric: PER_CHANNEL, is_sym, offset -128 in every channel."""
    weights = WeightParameters(initializer="w1", dtype="int8", axis=0, scales=(0.5, 0.25, 0.125), divisors=())
    old, new = both(Encodings(activations=(), weights=(weight_encoding(weights),)))
    (entry,) = new["param_encodings"]
    assert entry == {
        "name": "w1",
        "bw": 8,
        "dtype": "INT",
        "enc_type": "PER_CHANNEL",
        "is_sym": True,
        "scale": [0.5, 0.25, 0.125],
        "offset": [-128, -128, -128],
    }
    assert [channel["scale"] for channel in old["param_encodings"]["w1"]] == [0.5, 0.25, 0.125]
    assert {channel["min"] for channel in old["param_encodings"]["w1"]} == {-64.0, -32.0, -16.0}
    assert {channel["is_symmetric"] for channel in old["param_encodings"]["w1"]} == {"True"}


def test_int4_and_zero_points_of_weights() -> None:
    four = WeightParameters(initializer="a", dtype="int4", axis=0, scales=(1.0,), divisors=())
    moved = WeightParameters(initializer="b", dtype="int8", axis=0, scales=(1.0, 1.0), divisors=(), zero_points=(3, -7))
    _, new = both(Encodings(activations=(), weights=(weight_encoding(four), weight_encoding(moved))))
    first, second = new["param_encodings"]
    assert (first["bw"], first["offset"], first["is_sym"]) == (4, [-8], True)
    assert (second["offset"], second["is_sym"]) == ([-131, -121], False)


def test_blocks_of_input_channels_go_only_into_the_newer_form() -> None:
    """Scale of a block = the channel's scale times the block's multiplier, the channels first."""
    blocked = WeightParameters(
        initializer="w", dtype="int4", axis=0, scales=(1.0, 0.5), divisors=(), group_size=32, multipliers=(1, 2, 3, 4)
    )
    encodings = Encodings(activations=(), weights=(weight_encoding(blocked),))
    (entry,) = json.loads(encodings_text(encodings, "1.0.0"))["param_encodings"]
    assert (entry["enc_type"], entry["block_size"], entry["scale"]) == ("PER_BLOCK", 32, [1.0, 2.0, 1.5, 2.0])
    with pytest.raises(StageError) as refused:
        encodings_text(encodings, "0.6.1")
    assert refused.value.faults[0].where == "w"


def _parameters() -> QuantizationParameters:
    activation = TensorParameters(dtype="uint8", scale=0.5, zero_point=3, low=-1.5, high=126.0)
    wide = TensorParameters(dtype="int16", scale=0.25, zero_point=0, low=-8192.0, high=8191.75)
    weights = WeightParameters(initializer="w", dtype="int8", axis=0, scales=(0.1, 1 / 3), divisors=(1, 1))
    return QuantizationParameters(
        graph_digest="0",
        lane="a8w8",
        tensors={"x": activation, "y": wide, "inside": wide},
        groups={"g": GroupParameters(precision="int8", accumulator_output=False, why="lane a8w8")},
        weights={"g": weights},
        inner=("inside",),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_parameters_become_a_file_that_keeps_the_specification(version: EncodingsVersion) -> None:
    text = encodings_text(of_parameters(_parameters(), {"f": "float16", "x": "float32"}), version)
    content = json.loads(text)
    check_encodings(content)
    assert content["version"] == version
    assert content["quantizer_args"]["activation_bitwidth"] == 16  # as many of 8 as of 16 bits: the wider
    assert "inside" not in text  # it never leaves its kernel
    if version == "0.6.1":
        assert list(content["activation_encodings"]) == ["f", "x", "y"]
        assert content["activation_encodings"]["f"] == [{"bitwidth": 16, "dtype": "float"}]
        assert content["activation_encodings"]["y"][0]["offset"] == -32768
        assert content["param_encodings"]["w"][1]["scale"] == float(np.float32(1 / 3))
    else:
        assert [entry["name"] for entry in content["activation_encodings"]] == ["f", "x", "y"]


def test_a_record_of_adapt_gives_what_parameters_do_not_have() -> None:
    """Ranges of adapt's own beside ours; a constant is among the weights, what is left alone is float."""
    record = {
        "tensors": {
            "x": {"dtype": "uint8", "scale": 0.5, "zero_point": 3, "by": "parameters"},
            "y": {"dtype": "uint16", "scale": 0.25, "zero_point": 32768, "by": "parameters"},
            "soft": {"dtype": "uint8", "scale": 1 / 256, "zero_point": 0, "by": "fixed"},
            "slope": {"dtype": "uint8", "scale": 0.01, "zero_point": 0, "by": "constant"},
            "w": {"dtype": "int8", "scale": 9.0, "zero_point": 0, "by": "constant"},
        },
        "coverage": {"activations": 4, "quantized": 3, "float": [{"tensor": "left", "why": "override"}]},
    }
    found = of_record(record, _parameters(), ["w", "slope", "unused"])
    assert [entry.name for entry in found.activations] == ["left", "soft", "x", "y"]
    assert [(entry.name, len(entry.scales)) for entry in found.weights] == [("slope", 1), ("w", 2)]
    assert {entry.name: entry.offsets for entry in found.activations}["y"] == (-32768,)
    assert found.activations[0] == float_encoding("left", "float16")


DAMAGED: list[tuple[str, Any, str]] = [
    ("0.6.1", ("activation_encodings", "x", 0, "offset"), "offset is missing"),
    ("0.6.1", ("activation_encodings", "x", 0, "is_symmetric"), "is_symmetric is missing"),
    ("1.0.0", ("activation_encodings", 0, "bw"), "bw is missing"),
    ("1.0.0", ("param_encodings", 0, "enc_type"), "enc_type is missing"),
    ("1.0.0", ("param_encodings",), "has to be a list"),
]


@pytest.mark.parametrize(("version", "place", "what"), DAMAGED)
def test_what_departs_from_the_specification_is_named(version: EncodingsVersion, place: Any, what: str) -> None:
    content = json.loads(encodings_text(of_parameters(_parameters(), {}), version))
    inside: Any = content
    for step in place[:-1]:
        inside = inside[step]
    del inside[place[-1]]
    with pytest.raises(StageError) as refused:
        check_encodings(content)
    assert any(what in fault.what for fault in refused.value.faults)


@pytest.mark.parametrize(("name", "value"), [("min", 0.0), ("scale", 0.0), ("bitwidth", 33), ("offset", True)])
def test_a_grid_that_contradicts_itself_is_found(name: str, value: Any) -> None:
    content = json.loads(encodings_text(of_parameters(_parameters(), {}), "0.6.1"))
    content["activation_encodings"]["x"][0][name] = value
    assert [where for where, _ in faults(content)] == ["activation_encodings.x[0]"] * len(list(faults(content)))
    assert list(faults(content))


def test_another_version_is_no_version() -> None:
    assert [where for where, _ in faults({"version": "2.0.0"})] == ["version"]
