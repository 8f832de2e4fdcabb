"""Command lines, configuration files and the script of both roads, word by word; none was run on an SDK."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import ToolchainError
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.qairt.backend_config import inner_text, outer_text
from npubake.toolchains.qualcomm.qairt.commands import Command, Conversion, conversion, net_run, read_back
from npubake.toolchains.qualcomm.qairt.encodings import Encodings, EncodingsVersion, float_encoding, tensor_encoding
from npubake.toolchains.qualcomm.qairt.script import here_document, script_text
from npubake.toolchains.qualcomm.qairt.sdk import Converter

ENCODINGS = Encodings(
    activations=(tensor_encoding("x", "uint16", 0.5, 32768), float_encoding("f", "float16")),
    weights=(tensor_encoding("w", "int8", 0.5, 0),),
)
QCS9075 = HtpPlatform(
    name="qcs9075", soc_models=(77,), arch=("v73",), vtcm_bytes=8 << 20, precisions=("int8", "float16"), lanes=("a8w8",)
)
PAIR = HtpPlatform(
    name="pair", soc_models=(77, 82), arch=("v73", "v75"), vtcm_bytes=8 << 20, precisions=("int8",), lanes=("a8w8",)
)
VERSION = "2.39.0.250926"


def asked(
    converter: Converter = "qairt", version: str = VERSION, *, quantised: bool = True, io: str = "quantized"
) -> Conversion:
    inputs = {"images": (1, 3, 640, 640)}
    return Conversion(
        converter=converter, version=version, inputs=inputs, encodings=ENCODINGS if quantised else None, io=io
    )


def lines(conversion_asked: Conversion) -> list[str]:
    return [f"{command.tool} {' '.join(command.words)}" for command in conversion(conversion_asked)]


def test_the_road_to_a_dlc() -> None:
    assert lines(asked()) == [
        (
            "qairt-converter --input_network model.onnx --output_path float/model.dlc --source_model_input_shape "
            "images 1,3,640,640 --target_backend HTP --float_bitwidth 16 --quantization_overrides model.encodings"
        ),
        (
            "qairt-quantizer --input_dlc float/model.dlc --output_dlc model.dlc --act_bitwidth 16 --weights_bitwidth 8 "
            "--bias_bitwidth 32 --float_bitwidth 16 --enable_float_fallback --target_backend HTP --dump_encoding_json"
        ),
        (
            "qnn-context-binary-generator --model {sdk}/lib/x86_64-linux-clang/libQnnModelDlc.so --dlc_path model.dlc "
            "--backend {sdk}/lib/x86_64-linux-clang/libQnnHtp.so --output_dir context --binary_file model_ctx_qnn "
            "--config_file context_config.json"
        ),
    ]


def test_the_road_of_the_migration_guide() -> None:
    """Through C++ and a library, as its part 4 has it: the layout is kept, which the older converter would change."""
    assert lines(asked("qnn", "2.29.0.241129")) == [
        (
            "qnn-onnx-converter --input_network model.onnx --output_path model.cpp --input_dim images 1,3,640,640 "
            "--preserve_io layout --quantization_overrides model.encodings --float_fallback --act_bitwidth 16 "
            "--weights_bitwidth 8 --bias_bitwidth 32 --float_bitwidth 16"
        ),
        "qnn-model-lib-generator -c model.cpp -b model.bin -o libs -t x86_64-linux-clang",
        (
            "qnn-context-binary-generator --model libs/x86_64-linux-clang/libmodel.so "
            "--backend {sdk}/lib/x86_64-linux-clang/libQnnHtp.so --output_dir context --binary_file model_ctx_qnn "
            "--config_file context_config.json"
        ),
    ]


def test_the_first_versions_have_short_flags() -> None:
    (first, *_) = lines(asked("qnn", "2.18.0.240101"))
    assert first.endswith("--float_fallback --act_bw 16 --weight_bw 8 --bias_bw 32 --float_bw 16")


def test_a_float_artifact_needs_no_quantizer() -> None:
    first, second = lines(asked(quantised=False, io="float"))
    assert first == (
        "qairt-converter --input_network model.onnx --output_path model.dlc --source_model_input_shape images "
        "1,3,640,640 --target_backend HTP --float_bitwidth 16 --preserve_io_datatype"
    )
    assert second.startswith("qnn-context-binary-generator ")


def test_float_edges_are_asked_of_every_tool_that_would_change_them() -> None:
    assert [line.count("--preserve_io_datatype") for line in lines(asked(io="float"))] == [1, 1, 0]
    assert "--preserve_io --quantization_overrides" in lines(asked("qnn", io="float"))[0]


def test_no_conversion_is_given_an_input_list() -> None:
    """With one, a tensor without encoding would be calibrated, not counted."""
    for converter in ("qairt", "qnn"):
        assert not [line for line in lines(asked(converter)) if "--input_list" in line]


def test_reading_back_and_running() -> None:
    assert " ".join(read_back().words) == ("--context_binary context/model_ctx_qnn.bin --json_file model_ctx_qnn.json")
    assert " ".join(net_run().words) == (
        "--retrieve_context context/model_ctx_qnn.bin --backend {sdk}/lib/x86_64-linux-clang/libQnnHtp.so "
        "--input_list input_list.txt --output_dir ran --config_file context_config.json --use_native_input_files "
        "--use_native_output_files"
    )


@pytest.mark.parametrize(("version", "key"), [("2.29.0", "soc_id"), (VERSION, "soc_model")])
def test_the_backends_configuration(version: str, key: str) -> None:
    made = json.loads(inner_text(QCS9075, CompilerOptions(optimization=2, vtcm_mb=4), "model", version))
    assert made == {
        "graphs": [{"graph_names": ["model"], "O": 2, "vtcm_mb": 4}],
        "devices": [{"device_id": 0, key: 77, "dsp_arch": "v73"}],
    }
    assert "vtcm_mb" not in inner_text(QCS9075, CompilerOptions(), "model", version)
    assert json.loads(outer_text("/opt/lib.so")) == {
        "backend_extensions": {"shared_library_path": "/opt/lib.so", "config_file_path": "htp_config.json"}
    }


def test_a_binary_for_two_socs_is_not_of_this_road() -> None:
    with pytest.raises(ToolchainError):
        inner_text(PAIR, CompilerOptions(), "model", VERSION)


SCRIPT_VERSIONS: list[tuple[str, int, str]] = [
    ("version: 2.39.4.251001", 0, ""),
    ("version: 2.40.0.251030", 2, "this script is for QAIRT SDK 2.39.0.250926"),
    ("product: qairt", 2, "without sdk.yaml"),
]


def _fake_folder(root: Path, tools: list[str], description: str) -> None:
    folder = root / "bin" / "x86_64-linux-clang"
    folder.mkdir(parents=True)
    for tool in tools:
        place = folder / tool
        place.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$(basename "$0").argv"\n')
        place.chmod(place.stat().st_mode | stat.S_IXUSR)
    (root / "sdk.yaml").write_text(f"{description}\n")


@pytest.mark.parametrize(("description", "code", "said"), SCRIPT_VERSIONS)
def test_the_script_runs_in_a_fake_sdk_folder_and_checks_its_version(
    tmp_path: Path, description: str, code: int, said: str
) -> None:
    """Not an SDK: programs that write their words down. Names of files and folders hold spaces and quotes."""
    commands = [
        Command(tool="first-tool", words=("--in", "it's a file", "--lib", "{sdk}/lib/a b.so", "--cost", "$HOME")),
        Command(tool="second-tool", words=("--x", "1")),
    ]
    sdk, work = tmp_path / "the sdk", tmp_path / "my work"
    _fake_folder(sdk, ["first-tool", "second-tool"], description)
    work.mkdir()
    inner = here_document("c.json", '{"a": "$x `b` \\\\ {sdk}/y"}\n')
    script = work / "run.sh"
    script.write_text(script_text("a title\nof two lines", VERSION, commands, folders=("out dir",), inner=inner))
    done = subprocess.run(
        ["/bin/bash", str(script)],
        env={"QAIRT_SDK_ROOT": str(sdk), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    if code:
        return
    assert (work / "first-tool.argv").read_text().splitlines() == [
        "--in",
        "it's a file",
        "--lib",
        f"{sdk}/lib/a b.so",
        "--cost",
        "$HOME",
    ]
    assert (work / "second-tool.argv").read_text() == "--x\n1\n"
    assert (work / "c.json").read_text() == f'{{"a": "$x `b` \\\\ {sdk}/y"}}\n'
    assert (work / "out dir").is_dir()


@pytest.mark.parametrize("root", [None, "missing"])
def test_the_script_says_what_to_set(tmp_path: Path, root: str | None) -> None:
    script = tmp_path / "run.sh"
    script.write_text(script_text("t", VERSION, [Command(tool="first-tool", words=())]))
    environment = {"PATH": os.environ["PATH"], **({"QAIRT_SDK_ROOT": str(tmp_path / root)} if root else {})}
    done = subprocess.run(["/bin/bash", str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "QAIRT_SDK_ROOT" in done.stderr


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0"])
def test_the_order_of_encodings_is_that_of_their_names(version: EncodingsVersion) -> None:
    from npubake.toolchains.qualcomm.qairt.encodings import encodings_text, of_record

    entries = {name: {"dtype": "uint8", "scale": 1.0, "zero_point": 0} for name in ("b", "a", "c")}
    record: dict[str, Any] = {"coverage": {"float": []}}
    one = of_record({**record, "tensors": entries}, None, [])
    two = of_record({**record, "tensors": dict(reversed(entries.items()))}, None, [])
    assert encodings_text(one, version) == encodings_text(two, version)
