"""What AIMET cannot heed is refused at its place, all places at once; what it heeds is not."""

from __future__ import annotations

from typing import Any

import pytest

from npubake.toolchains.qualcomm.aimet.refusals import aimet_faults

FINE: dict[str, Any] = {"lane": "a8w8", "platform": {"march": "v73,v75"}}


def paths(**params: Any) -> list[str]:
    return [fault.path for fault in aimet_faults({**FINE, **params})]


def test_what_aimet_heeds() -> None:
    asked = ["calibration.method", "weights.bits"]
    assert paths(asked=asked, calibration={"method": "minmax"}, weights={"bits": 16}) == []
    assert paths(lane="w4a16", calibration={"method": "mse"}) == []


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"lane": "fp16_a8w8"}, "$.toolchain_options.qualcomm.quantiser"),
        ({"platform": {"march": "v99"}}, "$.toolchain_options.qualcomm.quantiser"),
        ({"calibration": {"method": "percentile"}}, "$.quant_config.calibration.method"),
        ({"calibration": {"granularity": "per_channel"}}, "$.quant_config.calibration.granularity"),
        ({"asked": ["calibration.asymmetric"]}, "$.quant_config.calibration.asymmetric"),
        ({"asked": ["weights.granularity"], "weights": {"group_size": 8}}, "$.quant_config.weights.granularity"),
        ({"asked": ["weights.symmetric"]}, "$.quant_config.weights.symmetric"),
        ({"asked": ["equivalent_transformation"]}, "$.quant_config.equivalent_transformation"),
        ({"asked": ["hessian"]}, "$.quant_config.hessian"),
        ({"asked": ["tuning.level"]}, "$.quant_config.tuning.level"),
        ({"asked": ["load.scales"]}, "$.quant_config.load.scales"),
        ({"bits": {"op_types": {"Softmax": "int16"}}}, "$.quant_config.bits.op_types.Softmax"),
        ({"bits": {"roles": {"head": "int16"}}}, "$.quant_config.bits.roles.head"),
        (
            {"layer_overrides": [{"match": {"op_types": ["Conv"]}, "set": {"weights": "int16"}}]},
            "$.layer_overrides[0].set.weights",
        ),
    ],
)
def test_one_thing_that_it_cannot_heed(params: dict[str, Any], path: str) -> None:
    assert paths(**params) == [path]


def test_all_at_once() -> None:
    overrides = [{"match": {}, "set": {"activation": "int16", "mod": True}}, {"match": {}, "set": {"fuse": False}}]
    assert paths(asked=["mod", "bias_correction"], layer_overrides=overrides) == [
        "$.quant_config.mod",
        "$.quant_config.bias_correction",
        "$.layer_overrides[0].set.activation",
        "$.layer_overrides[0].set.mod",
        "$.layer_overrides[1].set.fuse",
    ]
