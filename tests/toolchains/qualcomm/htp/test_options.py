"""The closed table of provider options: what reaches the compiler, and what is refused before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npubake.errors import PlatformError, RecipeError
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.htp.options import PURPOSE, SOCS, provider_options

IQ9075 = HtpPlatform(
    name="qcs9075", soc_models=(77,), arch=("v73",), vtcm_bytes=8 << 20, precisions=("int8",), lanes=("a8w8",)
)
BOTH = replace(IQ9075, name="qcs9075+qcs8275", soc_models=(77, 82), arch=("v73", "v75"))
QCS6490 = replace(IQ9075, name="qcs6490", soc_models=(93,), arch=("v68",), vtcm_bytes=2 << 20)


def test_that_each_option_is_of_the_table_and_none_is_htp_arch() -> None:
    asked = provider_options(IQ9075, CompilerOptions(optimization=2, vtcm_mb=4))
    assert set(asked) == set(PURPOSE)
    assert "htp_arch" not in PURPOSE
    assert asked["soc_model"] == "77"
    assert asked["htp_graph_finalization_optimization_mode"] == "2"
    assert asked["vtcm_mb"] == "4"


def test_that_all_vector_memory_is_no_option() -> None:
    assert "vtcm_mb" not in provider_options(IQ9075, CompilerOptions())


def test_that_several_socs_are_a_list_with_commas() -> None:
    assert provider_options(BOTH, CompilerOptions())["soc_model"] == "77,82"


WRONG_PLATFORMS: dict[str, tuple[HtpPlatform, dict[str, Any], str]] = {
    "an id without HTP": (IQ9075, {"soc_models": (14,)}, "$.soc_model"),
    "another architecture": (IQ9075, {"arch": ("v75",)}, "$.march"),
    "more vector memory": (QCS6490, {"vtcm_bytes": 8 << 20}, "$.vtcm_bytes"),
    "an order that changes bytes": (BOTH, {"soc_models": (82, 77), "arch": ("v75", "v73")}, "$.soc_model"),
    "the same SoC twice": (BOTH, {"soc_models": (77, 77), "arch": ("v73", "v73")}, "$.soc_model"),
    "one architecture of two": (BOTH, {"arch": ("v73",)}, "$.soc_model"),
}


@pytest.mark.parametrize("name", WRONG_PLATFORMS)
def test_that_a_platform_that_the_compiler_knows_otherwise_is_refused(name: str) -> None:
    platform, changes, path = WRONG_PLATFORMS[name]
    with pytest.raises(PlatformError) as refused:
        provider_options(replace(platform, **changes), CompilerOptions())
    assert [fault.path for fault in refused.value.faults] == [path]


def test_that_every_fault_of_a_platform_is_told_at_once() -> None:
    with pytest.raises(PlatformError) as refused:
        provider_options(replace(BOTH, soc_models=(14, 82), arch=("v66", "v73")), CompilerOptions())
    assert [fault.path for fault in refused.value.faults] == ["$.soc_model", "$.march"]


def test_that_options_beyond_the_soc_are_refused_together() -> None:
    with pytest.raises(RecipeError) as refused:
        provider_options(QCS6490, CompilerOptions(optimization=4, vtcm_mb=3))
    paths = [fault.path.rpartition(".")[2] for fault in refused.value.faults]
    assert paths == ["optimization", "vtcm_mb"]
    assert "1 to 2" in refused.value.faults[1].hint


@pytest.mark.parametrize("model", SOCS)
def test_that_each_soc_of_the_table_is_taken(model: int) -> None:
    soc = SOCS[model]
    platform = replace(IQ9075, soc_models=(model,), arch=(soc.arch,), vtcm_bytes=soc.vtcm_mb << 20)
    assert provider_options(platform, CompilerOptions())["soc_model"] == str(model)
