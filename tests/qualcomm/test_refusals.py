"""What a model or a recipe asks that the HTP cannot do, through the command line: each ends in its plain reason, all
at once, before any calibration; what was built before stays as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper, version_converter

from tests.e2e.workspace import REPOSITORY, Result, Workspace
from tests.qualcomm import needs_qnn

pytestmark = needs_qnn

PLAIN = """\
version: 1
name: small
model: {path: ../models/digits_mobilenet.onnx}
preset: classification
calibration: {data: ../data/tensors, samples: 32}
platform: qcs9075
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project with one recipe for a Qualcomm SoC, never built."""
    made = Workspace.create(tmp_path / "project")
    (made.root / "data" / "tensors").symlink_to(REPOSITORY / "data" / "digits_cls" / "calibration")
    made.recipe.write_text(PLAIN, encoding="utf-8")
    return made


def faults(result: Result) -> list[dict[str, str]]:
    told = result.json
    found: list[dict[str, str]] = told["faults"] if "faults" in told else told["error"]["faults"]
    return found


def asked(workspace: Workspace, *more: str, platform: str = "qcs9075") -> list[dict[str, str]]:
    """The faults of ``check``, which ends with 2; ``build`` ends with the same and leaves no bundle."""
    text = PLAIN.replace("qcs9075", platform) + "".join(f"{line}\n" for line in more)
    workspace.recipe.write_text(text, encoding="utf-8")
    checked, built = (workspace.run(verb, "small", "--json") for verb in ("check", "build"))
    assert (checked.code, built.code) == (2, 2), checked.err + built.err
    assert faults(built) == faults(checked)
    assert not list(workspace.root.rglob("*.bundle"))
    return faults(checked)


def with_operators(types: Sequence[str], source: Path) -> onnx.ModelProto:
    """The classifier with these operators behind every other of its first ReLU6, in opset 20."""
    model = version_converter.convert_version(onnx.load(source), 20)
    clips = [node for node in model.graph.node if node.op_type == "Clip"][1::2]
    for op_type, clip in zip(types, clips, strict=False):
        value, name = clip.output[0], f"/added/{op_type}"
        for node in model.graph.node:
            node.input[:] = [f"{name}_output_0" if read == value else read for read in node.input]
        made = helper.make_node(op_type, [value], [f"{name}_output_0"], name=name)
        model.graph.node.insert(list(model.graph.node).index(clip) + 1, made)
    onnx.checker.check_model(model, full_check=True)
    return model


def edited(workspace: Workspace, change: Callable[[Path], onnx.ModelProto]) -> None:
    path = workspace.root / "models" / "digits_mobilenet.onnx"
    onnx.save(change(path), path)


def test_operators_that_the_compiler_does_not_have_are_named_at_once(workspace: Workspace) -> None:
    edited(workspace, lambda path: with_operators(["Sinh", "Celu", "Mish"], path))
    found = asked(workspace)
    assert [fault["where"] for fault in found] == ["/added/Sinh", "/added/Celu", "/added/Mish"]
    for fault, op_type, instead in zip(
        found, ("Sinh", "Celu", "Mish"), ("(Exp(x) - Exp(-x)) / 2", "Elu", "x * Tanh(Softplus(x))"), strict=True
    ):
        assert f"cannot run on qcs9075 (HTP v73) because the HTP compiler has no operator {op_type}" in fault["what"]
        assert instead in fault["hint"]
    named = "toolchain_options: {qualcomm: {cpu_nodes: [/added/Sinh, /added/Celu]}}"
    assert [fault["where"] for fault in asked(workspace, named)] == ["/added/Mish"]


def test_sizes_that_are_open(workspace: Workspace) -> None:
    def opened(path: Path) -> onnx.ModelProto:
        model = onnx.load(path)
        for axis, name in ((2, "H"), (3, "W")):
            model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
        return model

    edited(workspace, opened)
    found = asked(workspace)
    assert ["axis 2 (H)" in found[0]["what"], "axis 3 (W)" in found[1]["what"], len(found)] == [True, True, 2]
    assert all("model.inputs.image.shape" in fault["hint"] for fault in found)
    assert all(fault["where"].startswith(f"{workspace.recipe}:3:") for fault in found)


CONV = "layer_overrides: [{match: {op_types: [Conv]}, set: {activation: float16}}]"
# recipe line, platform, (path of the fault, words of it) of each; the fault stands at line 7, which is that line.
LINES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "float16 on v68": ("quant_config: {lane: fp16}", "qcs6490", [("$.quant_config.lane", "no float16")]),
    "a layer in float16 on v68": (CONV, "qcs6490", [("$.layer_overrides[0].set.activation", "does not have float16")]),
    "16-bit weights on v68": (
        "quant_config: {lane: a16w16}",
        "qcs6490",
        [("$.quant_config.lane", "multiplies no weights of 16 bits (v73 and later do)")],
    ),
    "a layer's 16-bit weights on v68": (
        "layer_overrides: [{match: {op_types: [Gemm]}, set: {weights: int16}}]",
        "qcs6490",
        [("$.layer_overrides[0].set.weights", "weights of 16 bits on qcs6490")],
    ),
    "options that do not exist": (
        "toolchain_options: {qualcomm: {optimisation: 3, vtcm: 2}}",
        "qcs9075",
        [
            ("$.toolchain_options.qualcomm.optimisation", "unknown key"),
            ("$.toolchain_options.qualcomm.vtcm", "unknown key"),
        ],
    ),
    "more vector memory than there is": (
        "toolchain_options: {qualcomm: {vtcm_mb: 4}}",
        "qcs6490",
        [("$.toolchain_options.qualcomm.vtcm_mb", "qcs6490, which has 2")],
    ),
    "a lane and a node at once": (
        "{quant_config: {lane: a16w16}, toolchain_options: {qualcomm: {cpu_nodes: [nowhere]}}}",
        "qcs6490",
        [
            ("$.quant_config.lane", "multiplies no weights of 16 bits"),
            ("$.toolchain_options.qualcomm.cpu_nodes[0]", "no node 'nowhere'"),
        ],
    ),
    "edges removed": ("remove: {outputs: [Dequantize]}", "qcs9075", [("$.remove.outputs[0]", "nothing is removed")]),
}


@pytest.mark.parametrize("case", LINES)
def test_what_a_recipe_asks_in_vain_stands_at_its_line(workspace: Workspace, case: str) -> None:
    line, platform, told = LINES[case]
    lines = [line] if not line.startswith("{") else line[1:-1].split(", toolchain")
    found = asked(workspace, lines[0], *(f"toolchain{rest}" for rest in lines[1:]), platform=platform)
    assert [fault["path"] for fault in found] == [path for path, _ in told]
    for fault, (_, words) in zip(found, told, strict=True):
        assert words in fault["what"]
        assert fault["hint"]
        assert fault["where"].startswith((f"{workspace.recipe}:7:", f"{workspace.recipe}:8:"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('value: "77"', 'value: "9999"', "no HTP SoC with soc_model 9999"),
        ("value: v73", "value: v75", "is HTP v73, and march says v75"),
        ("value: 8388608", "value: 16777216", "has 8 MiB"),
    ],
)
def test_a_platform_that_the_compiler_knows_otherwise(workspace: Workspace, old: str, new: str, words: str) -> None:
    """The compiler itself would take the first for HTP v68, and build for the wrong SoC."""
    path = workspace.root / "platforms" / "qcs9075.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    (fault,) = asked(workspace)
    assert words in fault["what"]


def test_a_refused_build_leaves_the_last_good_one(workspace: Workspace) -> None:
    workspace.edit("platform: qcs9075", "quant_config: {tuning: {level: none}}\nplatform: qcs9075")
    workspace.build()

    def state() -> dict[str, str]:
        files = [path for path in (workspace.root / "build" / "small").rglob("*") if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    good: dict[str, Any] = state()
    original = (workspace.root / "models" / "digits_mobilenet.onnx").read_bytes()
    edited(workspace, lambda path: with_operators(["Sinh"], path))
    refused = workspace.run("build", "small")
    assert refused.code == 2
    assert "the last good bundle stays in place" in refused.err
    aside = str(workspace.root / "build" / "small" / "failed")
    assert {path: digest for path, digest in state().items() if not path.startswith(aside)} == good
    (workspace.root / "models" / "digits_mobilenet.onnx").write_bytes(original)
    assert workspace.build().ran() == []  # the store has all of it
    assert state() == good
