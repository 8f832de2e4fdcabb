"""Compiles with the real compiler: equal bytes wherever and however, and everything that is checked afterwards."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from npubake.errors import PlatformError, RecipeError, StageError
from npubake.pipeline.stage import Job
from npubake.stages import compile_htp
from npubake.toolchains import process
from npubake.toolchains.qualcomm.facts import CompilerOptions
from npubake.toolchains.qualcomm.htp import compiling
from npubake.toolchains.qualcomm.htp.compiling import Asked, Compiled, attempt, compile_model
from npubake.toolchains.qualcomm.htp.context_archive import is_archive, without_time
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, MODEL, WRAPPER
from npubake.toolchains.qualcomm.htp.options import provider_options
from tests.qualcomm import needs_qnn
from tests.qualcomm.networks import convolution, platform, record_of

pytestmark = needs_qnn


def asked(model: onnx.ModelProto, soc_model: str = "77", **options: Any) -> Asked:
    return Asked(
        model=model.SerializeToString(), platform=platform(soc_model), options=CompilerOptions.from_params(options)
    )


def compiled(model: onnx.ModelProto, soc_model: str = "77", **options: Any) -> Compiled:
    return compile_model(asked(model, soc_model, **options), record_of(model), 2)


@pytest.mark.parametrize("soc_model", ["77", "82", "93", "77,82"])
def test_that_the_artifact_is_one_node_for_the_platform(soc_model: str) -> None:
    made = compiled(convolution("Relu"), soc_model)
    (node,) = onnx.load_model_from_string(made.wrapper).graph.node
    names = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    assert (node.op_type, names["ep_cache_context"]) == ("EPContext", BINARY.encode())
    assert ",".join(map(str, made.metadata.soc_models)) == soc_model
    assert tuple(part.arch for part in made.metadata.parts) == platform(soc_model).arch
    assert made.trace.unsupported == ()
    assert made.trace.qnn_operators["Conv2d"] == 1
    assert made.cpu_nodes == ()


def test_that_the_trace_names_the_operators_of_the_model() -> None:
    made = compiled(convolution("Relu", "Sigmoid"))
    nodes = {node for one in made.trace.mappings for node in one["nodes"]}
    assert {"stem", "after1"} <= nodes <= {"stem", "after0", "after1"}


def test_that_only_simulated_socs_have_estimates_and_say_so() -> None:
    made = compiled(convolution("Relu"))
    assert "not a latency" in made.metadata.estimates["label"]
    assert made.metadata.estimates["cycles"]["lower"] < made.metadata.estimates["cycles"]["upper"]
    assert compiled(convolution("Relu"), "82").metadata.estimates == {}


@pytest.mark.parametrize("soc_model", ["77", "77,82"])
def test_that_folder_zone_home_seed_and_cores_change_no_byte(soc_model: str, tmp_path: Path) -> None:
    here = attempt(asked(convolution("Sigmoid", "Relu"), soc_model))
    elsewhere = tmp_path / "a folder of another name"
    home = tmp_path / "home"
    elsewhere.mkdir()
    home.mkdir()
    options = provider_options(platform(soc_model), CompilerOptions())
    (elsewhere / process.REQUEST).write_text(json.dumps({"provider": options, "strict": True, "reasons": False}))
    (elsewhere / MODEL).write_bytes(convolution("Sigmoid", "Relu").SerializeToString())
    taskset = shutil.which("taskset")
    command = [sys.executable, "-P", "-m", compiling.COMPILER]
    variables = {"TZ": "Asia/Tokyo", "HOME": str(home), "PYTHONHASHSEED": "7", "LC_ALL": "C", "OMP_NUM_THREADS": "2"}
    path = ":".join(entry for entry in sys.path if entry)
    ended = process.run(
        [taskset, "-c", "0", *command] if taskset else command,
        folder=elsewhere,
        timeout=100,
        environment={**variables, "PYTHONPATH": path},
    )
    assert ended.status == 0, ended.text
    binary = (elsewhere / BINARY).read_bytes()
    assert (elsewhere / WRAPPER).read_bytes() == here.wrapper
    assert (without_time(binary) if is_archive(binary) else binary) == here.binary


def test_that_the_log_is_the_same_each_time() -> None:
    assert compiled(convolution("Relu")).log == compiled(convolution("Relu")).log


def test_that_two_different_compiles_are_refused_with_both_digests() -> None:
    one, other = attempt(asked(convolution("Relu"))), attempt(asked(convolution("Sigmoid")))
    with pytest.raises(StageError) as refused:
        compiling.refuse_difference(one, other)
    text = str(refused.value)
    assert all(hashlib.sha256(data).hexdigest() in text for data in (one.binary, other.binary))


def test_that_options_reach_the_compiler() -> None:
    model = convolution("Sigmoid")
    whole, part = compiled(model), compiled(model, vtcm_mb=2)
    assert whole.binary != part.binary
    assert b":77:2:" in part.wrapper
    assert b":77:0:" in whole.wrapper


def test_that_nodes_stay_on_the_cpu_only_by_name() -> None:
    model = convolution("Sinh", "Relu")
    made = compiled(model, cpu_nodes=["after0"])
    assert made.cpu_nodes == ("after0",)
    assert [tensor.name for tensor in (*made.edges.inputs, *made.edges.outputs)] == ["x", "y"]
    with pytest.raises(RecipeError, match="'after0'"):
        compiled(model, cpu_nodes=["aftr0"])
    with pytest.raises(StageError) as refused:
        compiled(convolution("Sinh", "Celu"), cpu_nodes=["after0"])
    assert {fault.where for fault in refused.value.faults} == {"after1"}


def test_that_every_difference_from_the_record_is_a_fault() -> None:
    model = convolution("Relu")
    record = record_of(model)
    record["outputs"]["y"] |= {"dtype": "uint8", "scale": 0.5, "zero_point": 3, "shape": [1, 8, 16, 15]}
    record["inputs"]["z"] = record["inputs"].pop("x")
    with pytest.raises(StageError) as refused:
        compile_model(asked(model), record, 2)
    whats = [fault.what for fault in refused.value.faults]
    assert len(whats) == 6
    assert sum("output y" in what for what in whats) == 4


def test_that_a_platform_of_another_soc_is_refused() -> None:
    made = asked(convolution("Relu"))
    with pytest.raises(PlatformError, match="march says v75"):
        attempt(replace(made, platform=replace(made.platform, arch=("v75",))))


@pytest.mark.parametrize("soc_model", ["77", "77,82"])
def test_that_the_stage_writes_every_output(soc_model: str, tmp_path: Path) -> None:
    model = convolution("Relu")
    (tmp_path / "model").write_bytes(model.SerializeToString())
    (tmp_path / "record").write_text(json.dumps(record_of(model)))
    ports = ("wrapper", "binary", "contract", "metadata", "trace", "log")
    facts = platform(soc_model)
    params = {
        "platform": {
            "name": facts.name,
            "soc_model": soc_model,
            "march": ",".join(facts.arch),
            "vtcm_bytes": facts.vtcm_bytes,
        }
    }
    outputs = {port: tmp_path / f"{port}.out" for port in ports}
    inputs = {"compilable": (tmp_path / "model",), "record": (tmp_path / "record",)}
    compile_htp.run(Job(params=params, inputs=inputs, outputs=outputs, threads=2))
    contract, metadata = (json.loads(outputs[port].read_text()) for port in ("contract", "metadata"))
    digest = hashlib.sha256(outputs["binary"].read_bytes()).hexdigest()
    assert contract["files"]["binary"]["sha256"] == digest
    assert metadata["soc_model"] == soc_model
    assert set(metadata["tools"]) == {"onnxruntime_qnn", "qnn", "onnxruntime"}
    assert metadata["build_id"].startswith(f"v{metadata['tools']['qnn']}.")
