"""A lane and an SoC in AIMET's words, and its configurations without what the compiler does not fuse."""

from __future__ import annotations

from typing import Any

import pytest

from npubake.errors import StageError
from npubake.toolchains.qualcomm.aimet.settings import fused_by_htp, fused_pairs, oldest, settings_of

# Of AIMET's htp_quantsim_config_v73.json, one of each kind.
CONFIGURATION: dict[str, Any] = {
    "defaults": {"hw_version": "V73"},
    "supergroup_pass_list": ["LayerNormalization", "RMSNormalization", "MatmulAdd"],
    "supergroups": [
        {"op_list": ["Conv", "BatchNormalization", "Relu"]},
        {"op_list": ["Conv", "BatchNormalization", "HardSwish"]},
        {"op_list": ["Conv", "Transpose", "Relu"]},
        {"op_list": ["Conv", "LeakyRelu"]},
        {"op_list": ["Conv", "PRelu"]},
        {"op_list": ["Gemm", "Relu"]},
    ],
}


@pytest.mark.parametrize(
    ("lane", "weights", "activations"),
    [("a8w8", "int8", "int8"), ("a16w8", "int8", "int16"), ("a16w16", "int16", "int16"), ("w4a16", "int4", "int16")],
)
def test_types_of_a_lane(lane: str, weights: str, activations: str) -> None:
    found = settings_of({"lane": lane, "march": "v73"})
    assert (found.weights, found.activations, found.scheme) == (weights, activations, "min_max")


def test_weight_bits_and_method_of_the_recipe_win() -> None:
    found = settings_of({"lane": "a16w8", "march": "v68", "weight_bits": 16, "method": "mse"})
    assert (found.weights, found.scheme, found.architecture) == ("int16", "tf_enhanced", "v68")


@pytest.mark.parametrize(
    ("march", "found"), [("v73", "v73"), ("v75,v73", "v73"), ("v73, v68", "v68"), ("v8,v81", "v8")]
)
def test_the_oldest_architecture_counts(march: str, found: str) -> None:
    assert oldest(march) == found


def test_all_that_aimet_does_not_know_is_refused_at_once() -> None:
    with pytest.raises(StageError) as caught:
        settings_of({"lane": "fp16", "march": "v99", "method": "entropy"})
    assert [fault.where for fault in caught.value.faults] == ["fp16", "entropy", "v99"]


def test_only_what_the_compiler_fuses_stays_a_supergroup() -> None:
    kept = fused_by_htp(CONFIGURATION)
    assert [group["op_list"][-1] for group in kept["supergroups"]] == ["Relu", "Relu"]
    assert kept["supergroup_pass_list"] == ["MatmulAdd"]
    assert kept["defaults"] == CONFIGURATION["defaults"]
    assert fused_pairs(kept) == [("Conv", "Relu"), ("Gemm", "Relu"), ("MatMul", "Add")]
    assert len(CONFIGURATION["supergroups"]) == 6  # untouched
