"""The folder of an SDK: how its version is found, what is missing; the log of its tools. Folders of fake tools."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from npubake.errors import StageError, ToolchainError
from npubake.toolchains.qualcomm.qairt.commands import Command
from npubake.toolchains.qualcomm.qairt.running import Workshop
from npubake.toolchains.qualcomm.qairt.sdk import HOST, VARIABLE, find_sdk, taken
from npubake.toolchains.vendor_sdk import sdk_version
from tests.toolchains.qualcomm.qairt.fake_sdk import make_sdk

SDK_OPTIONS = {"road": "sdk", "sdk": {"converter": "qairt"}}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("version: 2.39.0.250926\n", "2.39.0.250926"),
        ("product: qairt\nversion: '2.31.0'\n", "2.31.0"),
        ('version: "v2.45.0.260326154327"\n', "2.45.0.260326154327"),
    ],
)
def test_the_version_is_that_of_its_description(tmp_path: Path, text: str, version: str) -> None:
    sdk = make_sdk(tmp_path / "2.22.0.240425")
    (sdk / "sdk.yaml").write_text(text)
    found = find_sdk("qairt", {VARIABLE: str(sdk)})
    assert (found.version, found.stated) == (version, sdk / "sdk.yaml")


def test_without_a_description_the_folders_name_says_it(tmp_path: Path) -> None:
    """As the archive unpacks it; also through a link of another name."""
    sdk = make_sdk(tmp_path / "qairt" / "2.29.0.241129")
    (sdk / "sdk.yaml").unlink()
    (tmp_path / "current").symlink_to(sdk)
    assert find_sdk("qnn", {VARIABLE: str(tmp_path / "current")}).version == "2.29.0.241129"


def test_the_older_sdks_have_one_converter(tmp_path: Path) -> None:
    sdk = make_sdk(tmp_path / "sdk", "2.18.0.240101")
    assert find_sdk("qnn", {VARIABLE: str(sdk)}).version == "2.18.0.240101"
    with pytest.raises(ToolchainError) as refused:
        find_sdk("qairt", {VARIABLE: str(sdk)})
    assert "converter: qnn" in refused.value.faults[0].hint


def test_everything_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    sdk = make_sdk(tmp_path / "sdk")
    (sdk / "bin" / HOST / "qnn-net-run").chmod(0o644)
    (sdk / "lib" / HOST / "libQnnModelDlc.so").unlink()
    with pytest.raises(ToolchainError) as refused:
        find_sdk("qairt", {VARIABLE: str(sdk)})
    assert len(refused.value.faults) == 2


def test_a_target_of_the_other_road_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = make_sdk(tmp_path / "sdk")
    monkeypatch.setenv(VARIABLE, str(sdk))
    noted: list[Path] = []
    assert taken({"road": "wheel"}) is None
    assert sdk_version("qualcomm", {}, noted.append) == ""
    assert sdk_version("reference", SDK_OPTIONS, noted.append) == ""
    assert noted == []
    assert sdk_version("qualcomm", SDK_OPTIONS, noted.append) == "2.39.0.250926"
    assert noted == [sdk / "sdk.yaml"]


def test_a_log_holds_no_clock_process_or_path(tmp_path: Path) -> None:
    """So that two builds of one recipe publish one log."""
    sdk = find_sdk("qairt", {VARIABLE: str(make_sdk(tmp_path / "sdk"))})
    tool = sdk.tool("qairt-converter")
    tool.write_text(
        f"#!{sys.executable}\nimport os, time\nstart = time.strftime('%Y-%m-%d %H:%M:%S')\n"
        "print(f'{start},{os.getpid() % 1000:03d} - INFO - pid:{os.getpid()} at {os.getcwd()}')\n"
        f"print(hex(id(os) | 1 << 40), f'took {{time.perf_counter():.3f}}s, 3 tensors {sdk.root}/lib')\n"
    )
    logs = []
    for name in ("one", "another"):
        folder = tmp_path / name
        folder.mkdir()
        shop = Workshop(sdk=sdk, folder=folder)
        shop.run(Command(tool="qairt-converter", words=("--input_network", "{sdk}/x")))
        logs.append(shop.log)
    assert logs[0] == logs[1]
    assert logs[0][1:] == [
        "<time> - INFO - pid at .",
        "<address> took <duration>, 3 tensors {sdk}/lib",
        "exit status 0",
    ]


def test_a_tool_that_writes_nothing_is_refused(tmp_path: Path) -> None:
    sdk = find_sdk("qairt", {VARIABLE: str(make_sdk(tmp_path / "sdk"))})
    sdk.tool("qnn-net-run").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(StageError) as refused:
        Workshop(sdk=sdk, folder=tmp_path).run(Command(tool="qnn-net-run", words=()), "answer.raw")
    assert "answer.raw" in refused.value.faults[0].what
    assert "hello" in refused.value.faults[0].hint
