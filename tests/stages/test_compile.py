"""compile: the contract follows the platform; wrong requests are refused; the bytes repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from npubake.errors import StageError
from npubake.platforms import load_platforms
from npubake.toolchains.reference.package_file import Package
from tests.toolchains.digits import GRAY, J6E, J6P, ROOT, calibrated, compiled, quantised


def test_platforms_differ_where_the_documents_say(tmp_path: Path) -> None:
    contracts = {}
    for platform in (J6E, J6P):
        params = {"tail": platform["tail"], "runtime_input": GRAY}
        road = quantised(calibrated().branch(tmp_path / str(platform["name"])), params)
        contracts[platform["name"]] = compiled(road, {"platform": platform}).record("compile.contract")
    e, p = contracts["j6e"], contracts["j6p"]
    assert [e["inputs"][0]["stride"], p["inputs"][0]["stride"]] == [[896, 896, 32, 1], [1792, 1792, 64, 1]]
    assert [e["outputs"][0]["dtype"], p["outputs"][0]["dtype"]] == ["int32", "float32"]
    assert [e["outputs"][0]["aligned_byte_size"], p["outputs"][0]["aligned_byte_size"]] == [64, 256]
    assert len(e["outputs"][0]["scale"]) == 10
    assert p["outputs"][0]["scale"] is None
    assert [e["platform"]["march"], p["platform"]["march"]] == ["nash-e", "nash-p"]
    assert [e["memory"]["fits_l2m"], p["memory"]["fits_l2m"]] == [None, True]


PLATFORMS = load_platforms(ROOT)
# name -> (nv12 stride, minimum unit, tail, L2M cap): vendor document "Platform differences", written out here again.
TOLD = {
    "j6e": (32, 64, "int32", None),
    "j6m": (32, 64, "int32", None),
    "j6b": (32, 128, "float32", None),
    "j6h": (64, 256, "float32", 25165824),
    "j6p": (64, 256, "float32", 25165824),
}


@pytest.mark.parametrize("name", TOLD)
def test_platform_files_reach_the_contract(tmp_path: Path, name: str) -> None:
    stride, unit, tail, cap = TOLD[name]
    names = ("soc", "march", "nv12_stride_bytes", "tensor_unit_bytes", "tail", "max_l2m_bytes")
    facts = {"name": name, **PLATFORMS[name].values(*names)}
    road = quantised(calibrated().branch(tmp_path), {"tail": facts["tail"], "runtime_input": GRAY})
    contract = compiled(road, {"platform": facts}).record("compile.contract")
    assert contract["inputs"][0]["stride"][2] == stride
    assert contract["outputs"][0]["aligned_byte_size"] == -(-40 // unit) * unit
    assert contract["outputs"][0]["dtype"] == tail
    assert contract["memory"]["l2m_cap_bytes"] == cap
    assert contract["platform"]["march"] == f"nash-{name[-1]}"


def test_float_input_without_runtime_type(tmp_path: Path) -> None:
    road = compiled(quantised(calibrated().branch(tmp_path), {}), {"platform": J6P})
    (entry,) = road.record("compile.contract")["inputs"]
    assert (entry["kind"], entry["plane"], entry["dtype"]) == ("tensor", "", "float32")
    assert (entry["stride"], entry["aligned_byte_size"]) == ([3136, 3136, 112, 4], 3328)


def test_options_and_versions_are_in_the_package(tmp_path: Path) -> None:
    road = quantised(calibrated().branch(tmp_path), {})
    options = {"input_no_padding": True, "output_no_padding": True, "max_l2m_bytes": 6 * 2**20, "core_num": 2}
    sdk = {"version": "3.7.0", "bsp": "4.0.2", "runtime_package": "ucp 3.15.8"}
    road = compiled(road, {"platform": J6P, "options": options, "sdk": sdk})
    contract = Package.open(road.files["compile.deployable"]).contract
    assert contract["platform"]["bsp"] == "4.0.2"
    assert contract["core_num"] == 2
    assert contract["memory"]["l2m_requested_bytes"] == 6 * 2**20
    assert contract["inputs"][0]["aligned_byte_size"] == 3136
    assert contract["outputs"][0]["aligned_byte_size"] == 40


@pytest.mark.parametrize(("platform", "size"), [(J6E, 2**20), (J6P, 25165825)])
def test_l2m_beyond_the_platform_is_refused(tmp_path: Path, platform: dict[str, object], size: int) -> None:
    road = quantised(calibrated().branch(tmp_path), {"tail": platform["tail"]})
    with pytest.raises(StageError) as caught:
        compiled(road, {"platform": platform, "options": {"max_l2m_bytes": size}})
    assert "L2M" in caught.value.faults[0].what


def test_int32_tail_left_in_float_is_refused(tmp_path: Path) -> None:
    """quantize made it for a float32 platform, compile is for J6E: the tail is read back and does not fit."""
    road = quantised(calibrated().branch(tmp_path), {"tail": "float32"})
    with pytest.raises(StageError) as caught:
        compiled(road, {"platform": J6E})
    assert "tail" in caught.value.faults[0].what


def test_bytes_repeat(tmp_path: Path) -> None:
    roads = [quantised(calibrated().branch(tmp_path / name), {"runtime_input": GRAY}) for name in ("a", "b")]
    packages = [compiled(road, {"platform": J6P}).files["compile.deployable"].read_bytes() for road in roads]
    assert packages[0] == packages[1]
