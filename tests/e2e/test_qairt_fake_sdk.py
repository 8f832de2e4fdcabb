"""The road of the QAIRT SDK through the command line, against a FAKE SDK folder: programs that record their words and
leave plausible files. What is tested is our side: command lines, files, order, what is read back and what is refused.
No SDK was at hand; that a real one takes these lines is not shown here.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.qairt_site import Site
from tests.e2e.workspace import Result
from tests.toolchains.qualcomm.qairt.fake_sdk import HOST, fail, make_sdk, told

GENERATOR = "qnn-context-binary-generator"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Built once. Never changed: take ``site``."""
    site = Site.create(tmp_path_factory.mktemp("fake sdk"))
    result = site.build()
    assert result.code == 0, result.err
    return site


@pytest.fixture
def site(pristine: Site, tmp_path: Path) -> Site:
    return pristine.copy(tmp_path)


@pytest.fixture
def bare(site: Site) -> Site:
    """The same for an SoC without float: no float artifact is made first, so that a failure comes sooner."""
    site.workspace.edit("platform: qcs9075", "platform: qcs6490")
    return site


def faults(result: Result) -> list[dict[str, str]]:
    """Of a build that failed, as its JSON has them."""
    assert result.code == 1, (result.code, result.err)
    found: list[dict[str, str]] = result.json["faults"]
    return found


def test_a_fake_sdk_is_driven_from_the_float_model_to_the_bundle(pristine: Site) -> None:
    """The float artifact and its run, then the quantised one with encodings, read back, run, verified, packed."""
    assert pristine.tools()[:13] == [  # what another test ran with the same SDK comes behind
        *("qairt-converter", GENERATOR, GENERATOR, "qnn-context-binary-utility", "qnn-net-run"),
        *("qairt-converter", "qairt-quantizer", GENERATOR, GENERATOR, "qnn-context-binary-utility", "qnn-net-run"),
        *("qnn-context-binary-utility", "qnn-net-run"),
    ]
    manifest = pristine.made("manifest.json")
    text = json.dumps(manifest)
    assert "2.39.0.250926" in text
    assert "v2.39.0.fake" in text
    assert manifest["reproducible"]["target"]["toolchain_version"] == "2.39.0.250926"
    trace = pristine.made("compile_trace.json")
    assert trace["statistics"]["stated"]
    assert trace["encodings"]["version"] == "1.0.0"
    gates = {check["boundary"] for check in pristine.build().json["targets"]["small"]["gates"]}
    assert {"converted", "quantized", "product", "compiled"} <= gates


def test_every_activation_and_weight_went_into_the_overrides(pristine: Site) -> None:
    """What the fake binary holds is the file that the converter was given."""
    held = json.loads((pristine.workspace.root / "build" / "small" / "model_ctx_qnn.bin").read_text())
    record = pristine.made("adapt.json")
    names = {entry["name"] for entry in held["encodings"]["activation_encodings"]}
    weights = {entry["name"] for entry in held["encodings"]["param_encodings"]}
    assert set(record["tensors"]) <= names | weights
    assert {entry["name"]: entry["offset"] for entry in held["encodings"]["activation_encodings"]}["image"] == [
        -record["inputs"]["image"]["zero_point"]
    ]
    assert set(pristine.made("small_parameters.json")["tensors"]) <= names


def test_what_stands_in_build_holds_no_path_of_this_machine(pristine: Site) -> None:
    folder = pristine.workspace.root / "build" / "small"
    for name in ("contract.json", "compile.json", "compile_trace.json", "compile.log"):
        text = (folder / name).read_text()
        assert str(pristine.sdk) not in text, name
        assert str(pristine.workspace.root) not in text, name


def test_a_build_with_the_same_sdk_elsewhere_runs_nothing(pristine: Site, tmp_path: Path) -> None:
    """The variable only says where the SDK lies: its version is what enters the keys."""
    site = pristine.copy(tmp_path, "2.39.0.250926")
    result = site.build()
    assert result.code == 0, result.err
    assert site.tools() == []


def test_another_version_runs_the_stages_of_the_sdk_again_and_no_other(site: Site) -> None:
    result = site.build()
    assert result.code == 0, result.err
    stages = {task["stage"] for task in result.json["tasks"] if task["outcome"] == "ran"}
    assert (
        {"compile_qairt", "emulate_qairt", "verify_qairt"}
        <= stages
        <= {
            *("compile_qairt", "emulate_qairt", "verify_qairt"),
            *("gate", "package_htp"),
        }
    )


def test_the_older_converter_and_the_older_encodings(site: Site) -> None:
    site.workspace.edit("{road: sdk,", "{road: sdk, sdk: {converter: qnn, encodings: 0.6.1},")
    result = site.build()
    assert result.code == 0, result.err
    tools = site.tools()
    assert (tools.count("qnn-onnx-converter"), tools.count("qnn-model-lib-generator")) == (2, 2)
    assert not [tool for tool in tools if tool.startswith("qairt-")]
    assert site.made("compile_trace.json")["encodings"]["version"] == "0.6.1"


def test_float_edges(site: Site) -> None:
    site.workspace.edit("{road: sdk,", "{road: sdk, io: float,")
    result = site.build()
    assert result.code == 0, result.err
    assert {entry["dtype"] for entry in site.made("contract.json")["inputs"]} == {"float32"}


@pytest.mark.parametrize("tool", ["qairt-converter", "qairt-quantizer", "qnn-net-run"])
def test_a_tool_that_fails_is_named_with_what_it_said(bare: Site, tool: str) -> None:
    fail(bare.sdk, exits=tool)
    (fault, *_) = faults(bare.build())
    assert fault["where"] == tool
    assert f"ERROR - {tool} could not" in fault["hint"]


@pytest.mark.parametrize("tool", ["qnn-context-binary-generator", "qnn-context-binary-utility"])
def test_a_tool_that_ends_well_and_writes_nothing_is_not_believed(bare: Site, tool: str) -> None:
    fail(bare.sdk, drops=tool)
    (fault, *_) = faults(bare.build())
    assert fault["where"] == tool
    assert "wrote no" in fault["what"]


def test_a_generator_that_gives_other_bytes_each_time_stops_the_build(bare: Site) -> None:
    fail(bare.sdk, stamps=True)
    (fault, *_) = faults(bare.build())
    assert fault["where"] == GENERATOR
    assert "two runs" in fault["what"]


def test_tensors_that_fell_to_float_stop_the_build(bare: Site) -> None:
    fail(bare.sdk, fell=3)
    (fault, *_) = faults(bare.build())
    assert "3 of 100 tensors had no encoding and became float" in fault["what"]
    assert not (bare.workspace.root / "build" / "small" / "failed" / "model_ctx_qnn.bin").exists()


def test_an_encoding_that_fits_no_tensor_stops_the_build(bare: Site) -> None:
    fail(bare.sdk, unmatched="conv9/out")
    assert "conv9/out" in [fault["where"] for fault in faults(bare.build())]


def test_without_statistics_it_cannot_be_told(bare: Site) -> None:
    fail(bare.sdk, silent=True)
    (fault, *_) = faults(bare.build())
    assert "[MISSING ENC.] N of M tensors" in fault["what"]
    assert "qairt-quantizer" in fault["what"]


def test_a_binary_for_another_soc_stops_the_build(bare: Site) -> None:
    """The SDK ignores a key of its configuration that it does not know."""
    fail(bare.sdk, soc=57)
    assert any("57" in fault["what"] and "93" in fault["what"] for fault in faults(bare.build()))


def test_files_of_another_size_are_not_read(bare: Site) -> None:
    fail(bare.sdk, short=True)
    (fault, *_) = faults(bare.build())
    assert "bytes" in fault["what"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (None, "it is not said where"),
        ("folder", "names no folder"),
        ("tool", "the SDK has no bin"),
        ("library", "the SDK has no lib"),
        ("version", "3.1.0"),
        ("description", "states no version"),
        ("bare", "is no QAIRT SDK"),
    ],
)
def test_a_missing_or_broken_sdk_is_refused_before_anything_runs(site: Site, change: str | None, what: str) -> None:
    variable = str(site.sdk)
    if change is None:
        variable = ""
    elif change == "folder":
        variable = str(site.sdk / "nowhere")
    elif change == "tool":
        (site.sdk / "bin" / HOST / "qairt-quantizer").unlink()
    elif change == "library":
        (site.sdk / "lib" / HOST / "libQnnHtp.so").unlink()
    elif change == "version":
        (site.sdk / "sdk.yaml").write_text("version: 3.1.0\n")
    elif change == "description":
        (site.sdk / "sdk.yaml").write_text("product: qairt\n")
    else:
        (site.sdk / "sdk.yaml").unlink()
    result = site.run("build", "small", "--json", QAIRT_SDK_ROOT=variable)
    assert result.code == 2
    assert what in result.err
    assert "QAIRT_SDK_ROOT" in result.err or change == "version"
    assert site.tools() == []


def with_picture(site: Site, options: str = "road: sdk,") -> None:
    site.workspace.edit("calibration:\n  data", "runtime_input:\n  image: {type: gray}\ncalibration:\n  data")
    site.workspace.edit("road: sdk,", options)


@pytest.mark.parametrize("options", ["road: sdk,", "road: sdk, io: float,", "road: sdk, sdk: {converter: qnn},"])
def test_a_picture_that_the_board_feeds_goes_in_as_its_bytes(site: Site, options: str) -> None:
    with_picture(site, options)
    result = site.build()
    assert result.code == 0, result.err
    (edge,) = site.made("contract.json")["inputs"]
    assert (edge["dtype"], edge["kind"], edge["valid_shape"]) == ("uint8", "gray", [1, 1, 28, 28])
    assert {entry["dtype"] for entry in site.made("contract.json")["outputs"]} == (
        {"float32"} if "float" in options else {"uint8"}
    )


def test_two_platforms_in_one_binary_are_refused(site: Site) -> None:
    site.workspace.edit("platform: qcs9075", "platforms: [qcs9075+qcs8275]")
    result = site.run("build", "small")
    assert result.code == 2
    assert "one SoC" in result.err


def test_the_bundle_is_checked_and_a_flipped_byte_found(pristine: Site, tmp_path: Path) -> None:
    site = Site(pristine.workspace.copy(tmp_path / "project"), pristine.sdk)
    bundle = site.workspace.root / "build" / "small" / "small.bundle"
    before = len(told(site.sdk))
    whole = site.run("verify", str(bundle), "--json")
    assert whole.code == 0, whole.err
    assert (whole.json["runs"], whole.json["unexecuted"]) == (3, "")
    assert [line[0] for line in told(site.sdk)[before:]] == ["qnn-context-binary-utility", "qnn-net-run"]
    without = site.run("verify", str(bundle), "--json", QAIRT_SDK_ROOT="")
    assert without.code == 0, without.err
    assert "qnn-net-run was not run" in without.json["unexecuted"]
    data = bytearray(bundle.read_bytes())
    rng = np.random.default_rng(5)
    for place in rng.integers(0, len(data), 5):
        damaged = data.copy()
        damaged[place] ^= 1
        copy = tmp_path / "damaged.bundle"
        copy.write_bytes(damaged)
        assert site.run("verify", str(copy)).code == 1


def test_a_picture_is_run_by_the_sdk_that_made_the_binary(pristine: Site, tmp_path: Path) -> None:
    picture = sorted((pristine.workspace.root / "data" / "validation").glob("*.png"))[0]
    out = tmp_path / "answer.npz"
    result = pristine.run("run", "small", str(picture), "--out", str(out))
    assert result.code == 0, result.err
    label = json.loads((picture.parent / "labels.json").read_text())[picture.name]
    assert int(np.load(out)["logits"].argmax()) == label
    other = pristine.run("run", "small", str(picture), QAIRT_SDK_ROOT="")
    assert other.code == 2
    assert "QAIRT_SDK_ROOT" in other.err


def test_the_exported_script_drives_the_fake_sdk_as_the_build_did(pristine: Site, tmp_path: Path) -> None:
    """The same command lines but for the last step, which takes float files; the configuration's key of the SoC too."""
    folder = tmp_path / "by hand, with a space"
    result = pristine.run("export", "small", "--format", "qairt-script", "--out", str(folder), "--json")
    assert result.code == 0, result.err
    sdk = make_sdk(tmp_path / "the sdk of a colleague")
    script = str(folder / "run_qairt.sh")
    done = subprocess.run(["/bin/bash", script], env={"QAIRT_SDK_ROOT": str(sdk), "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True, check=False, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    by_hand = [[word.replace(str(sdk), "SDK") for word in line] for line in told(sdk)]
    built = [[word.replace(str(pristine.sdk), "SDK") for word in line] for line in told(pristine.sdk)]
    assert by_hand[:-1] == [*built[5:8], built[9]]  # by hand the generator runs once
    assert by_hand[-1] == [word for word in built[10] if not word.startswith("--use_native")]
    assert (folder / "context" / "model_ctx_qnn.bin").read_bytes() == (
        pristine.workspace.root / "build" / "small" / "model_ctx_qnn.bin"
    ).read_bytes()
    assert len(list((folder / "ran").glob("Result_*/logits.raw"))) == 16


def test_the_road_needs_nothing_of_the_package_with_the_compiler(pristine: Site) -> None:
    """No task of it names onnxruntime-qnn."""
    result = pristine.run("plan", "small", "--json")
    assert result.code == 0, result.err
    stages = {task["stage"] for task in result.json["tasks"]}
    assert stages.isdisjoint({"probe", "compile_htp", "emulate", "verify_htp"})
