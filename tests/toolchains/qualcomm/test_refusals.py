"""What check refuses of a target of the qualcomm toolchain, each at its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import Fault, RecipeError
from npubake.graph.summary import FusionGroup, GraphSummary, NodeFact, TensorFact
from npubake.pipeline.stage import Job
from npubake.stages.check import run
from tests.graph.summaries import summary

WITH_FLOAT = {
    "name": "qcs9075",
    "precisions": ["int8", "int16", "float16"],
    "lanes": ["a8w8", "a16w8", "a16w16", "w4a16", "fp16", "fp16_a8w8"],
    "march": "v73",
    "max_l2m_bytes": None,
    "tail": "quantized",
}
NO_FLOAT = {**WITH_FLOAT, "name": "qcs6490", "precisions": ["int8", "int16"], "march": "v68"}
NO_FLOAT["lanes"] = ["a8w8", "a16w8", "w4a16"]
OPTIONS = "$.toolchain_options.qualcomm"


def integers_only() -> GraphSummary:
    """The small summary with a Relu where its LSTM stood, which no integer kernel computes."""
    made = summary()
    nodes = tuple(replace(node, op_type="Relu") if node.op_type == "LSTM" else node for node in made.nodes)
    groups = tuple(replace(group, kind="table") if group.name == "/head/Lstm" else group for group in made.groups)
    return replace(made, nodes=nodes, groups=groups)


def faults(folder: Path, graph: GraphSummary, **params: Any) -> tuple[Fault, ...]:
    with pytest.raises(RecipeError) as caught:
        report(folder, graph, **params)
    return caught.value.faults


def report(folder: Path, graph: GraphSummary, **params: Any) -> str:
    read = replace(graph, inputs=tuple(name for name in graph.inputs if name != "tokens"))  # which nothing reads
    read.save(folder / "graph.json")
    job = Job(
        params={"toolchain": "qualcomm", **params},
        inputs={"graph": (folder / "graph.json",)},
        outputs={"report": folder / "report.json"},
    )
    run(job)
    return (folder / "report.json").read_text(encoding="utf-8")


def overriding(**settings: Any) -> list[dict[str, Any]]:
    return [{"match": {"names": ["/head/Conv"]}, "set": settings}]


@pytest.mark.parametrize(
    ("platform", "params", "paths", "words"),
    [
        (NO_FLOAT, {"lane": "fp16"}, ["$.quant_config.lane"], ["3110"]),
        (NO_FLOAT, {"lane": "fp16_a8w8"}, ["$.quant_config.lane"], ["float16"]),
        (NO_FLOAT, {"lane": "a16w16"}, ["$.quant_config.lane"], ["v73"]),
        ({**WITH_FLOAT, "lanes": ["a8w8"]}, {"lane": "a16w8"}, ["$.quant_config.lane"], ["platform file"]),
        (NO_FLOAT, {"lane": "a16w8", "weights": {"bits": 16}}, ["$.quant_config.weights.bits"], ["16 bits"]),
        (
            NO_FLOAT,
            {"lane": "a16w8", "layer_overrides": overriding(weights="int16")},
            ["$.layer_overrides[0].set.weights"],
            ["16 bits"],
        ),
        (
            NO_FLOAT,
            {"lane": "a8w8", "layer_overrides": overriding(activation="float16")},
            ["$.layer_overrides[0].set.activation"],
            ["does not have float16"],
        ),
        (
            NO_FLOAT,
            {"lane": "a8w8", "bits": {"op_types": {"Conv": "float32"}}},
            ["$.quant_config.bits.op_types.Conv"],
            ["does not have float32"],
        ),
        (
            WITH_FLOAT,
            {"lane": "a8w8", "layer_overrides": overriding(fuse=False)},
            ["$.layer_overrides[0].set.fuse"],
            ["every result has a quantiser of its own"],
        ),
        (
            WITH_FLOAT,
            {"lane": "w4a16", "weights": {"granularity": "per_tensor", "symmetric": False}},
            ["$.quant_config.weights.symmetric"],
            ["weights of 4 bits with a zero point"],
        ),
        (
            WITH_FLOAT,
            {
                "lane": "a8w8",
                "weights": {"granularity": "per_tensor", "symmetric": False},
                "layer_overrides": overriding(weights="int4"),
            },
            ["$.quant_config.weights.symmetric"],
            ["weights of 4 bits with a zero point: /head/Conv"],
        ),
        (
            WITH_FLOAT,
            {"lane": "a8w8", "weights": {"granularity": "per_group"}},
            ["$.quant_config.weights.granularity"],
            ["group of input channels"],
        ),
        (
            WITH_FLOAT,
            {"lane": "a8w8", "layer_overrides": overriding(granularity="per_group", group_size=4)},
            ["$.layer_overrides[0].set.granularity"],
            ["/head/Conv"],
        ),
        (
            WITH_FLOAT,
            {"lane": "a8w8", "weights": {"symmetric": False}},
            ["$.quant_config.weights.symmetric"],
            ["zero point for each channel"],
        ),
        (
            WITH_FLOAT,
            {"lane": "a8w8", "road": "sdk", "runtime_input": {"images": {"type": "nv12", "range": "full"}}},
            ["$.runtime_input.images.type", "$.runtime_input.images"],
            ["nv12", "even"],
        ),
        (
            WITH_FLOAT,
            {"lane": "a8w8", "remove": {"inputs": ["Quantize"], "outputs": ["Dequantize", "Softmax"]}},
            ["$.remove.inputs[0]", "$.remove.outputs[0]", "$.remove.outputs[1]"],
            ["Quantize", "Dequantize", "Softmax"],
        ),
        (
            WITH_FLOAT,
            {"lane": "a8w8", "cpu_nodes": ["/head/Conv", "/head/Cnov"]},
            [f"{OPTIONS}.cpu_nodes[1]"],
            ["'/head/Cnov'"],
        ),
        (
            WITH_FLOAT,
            {"lane": "a8w8", "quantiser": "aimet", "asked": ["hessian"], "layer_overrides": overriding(hessian=True)},
            ["$.layer_overrides[0].set.hessian", "$.quant_config.hessian"],
            ["single layers", "hessian"],
        ),
    ],
)
def test_each_refusal_at_its_place(
    tmp_path: Path, platform: dict[str, Any], params: dict[str, Any], paths: list[str], words: list[str]
) -> None:
    found = faults(tmp_path, integers_only(), platform=platform, **params)
    assert sorted(fault.path for fault in found) == sorted(paths)
    told = {fault.path: fault.what for fault in found}
    assert all(word in told[path] for path, word in zip(paths, words, strict=True))
    assert all(fault.hint for fault in found)


@pytest.mark.parametrize(
    "params",
    [
        {"lane": "a8w8"},
        {"lane": "a16w8", "weights": {"granularity": "per_tensor"}},
        {"lane": "a8w8", "weights": {"symmetric": False, "granularity": "per_tensor"}},
        {"lane": "w4a16"},
        {"lane": "a8w8", "runtime_input": {"images": {"type": "bgr"}}, "cpu_nodes": ["/head/Conv"]},
        {"lane": "a8w8", "quantiser": "aimet"},
        {"lane": "a8w8", "layer_overrides": overriding(weights="int4")},
        {"lane": "a8w8", "layer_overrides": overriding(weights="int4", granularity="per_tensor")},
    ],
)
def test_what_an_soc_without_float_takes(tmp_path: Path, params: dict[str, Any]) -> None:
    assert report(tmp_path, integers_only(), platform=NO_FLOAT, **params)


def test_layers_without_an_integer_kernel_on_an_soc_without_float(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, summary(), platform=NO_FLOAT, lane="a8w8")
    assert fault.what == "LSTM '/head/Lstm' would be computed in float, which qcs6490 cannot"
    assert "cpu_nodes" in fault.hint
    assert report(tmp_path, summary(), platform=WITH_FLOAT, lane="a8w8")
    assert report(tmp_path, summary(), platform=NO_FLOAT, lane="a8w8", cpu_nodes=["/head/Lstm"])


def renamed(op_type: str) -> GraphSummary:
    """The small summary with another operator, which no integer kernel of ours computes, where its LSTM stood."""
    made = summary()
    nodes = tuple(replace(node, op_type=op_type) if node.op_type == "LSTM" else node for node in made.nodes)
    return replace(made, nodes=nodes)


@pytest.mark.parametrize("platform", [WITH_FLOAT, NO_FLOAT])
def test_that_what_only_our_kernels_lack_is_the_compilers_to_judge(tmp_path: Path, platform: dict[str, Any]) -> None:
    told = report(tmp_path, renamed("CumSum"), platform=platform, lane="a8w8")
    assert "stays in float" not in told
    assert "float32" not in told


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        summary(),
        platform=NO_FLOAT,
        lane="fp16",
        remove={"outputs": ["Softmax"]},
        cpu_nodes=["x"],
        road="sdk",
        runtime_input={"images": {"type": "yuv444", "range": "full"}},
        metric={"name": "top1"},
    )
    assert {fault.path for fault in found} == {
        "$.quant_config.lane",
        "$.remove.outputs[0]",
        f"{OPTIONS}.cpu_nodes[0]",
        "$.runtime_input.images.type",
        "$.metric.name",
    }


def detector(second: tuple[int, ...]) -> GraphSummary:
    """Two Convs whose results are joined: boxes of four rows with something of the shape ``second``."""
    shapes = {"x": (1, 8, 100), "boxes": (1, 4, 100), "other": second, "y": (1, 4 + second[1], 100)}
    nodes = tuple(
        NodeFact(name=name, op_type=kind, inputs=inputs, outputs=(made,))
        for name, kind, inputs, made in (
            ("conv1", "Conv", ("x", "w"), "boxes"),
            ("conv2", "Conv", ("x", "w2"), "other"),
            ("join", "Concat", ("boxes", "other"), "y"),
        )
    )
    kinds = {"conv1": "conv", "conv2": "conv", "join": "concat"}
    groups = tuple(
        FusionGroup(
            name=node.name,
            kind=kinds[node.name],  # type: ignore[arg-type]
            nodes=(node.name,),
            inputs=tuple(name for name in node.inputs if name in shapes),
            outputs=node.outputs,
        )
        for node in nodes
    )
    tensors = {name: TensorFact(shape=shape, dtype="float32") for name, shape in shapes.items()}
    return GraphSummary(inputs=("x",), outputs=("y",), tensors=tensors, nodes=nodes, groups=groups, provenance=())


def test_boxes_and_scores_in_one_output_of_8_bits_are_warned_of(tmp_path: Path) -> None:
    joined = detector((1, 10, 100))
    assert "output 'y' holds boxes and scores" in report(tmp_path, joined, platform=WITH_FLOAT, lane="a8w8")
    assert "holds boxes" not in report(tmp_path, joined, platform=WITH_FLOAT, lane="a16w8")
    boxes = replace(joined, outputs=("boxes", "other"), nodes=joined.nodes[:2], groups=joined.groups[:2])
    assert "holds boxes" not in report(tmp_path, boxes, platform=WITH_FLOAT, lane="a8w8")


def test_another_toolchain_has_no_such_refusals(tmp_path: Path) -> None:
    summary().save(tmp_path / "graph.json")
    params = {"lane": "a8w8", "platform": {**WITH_FLOAT, "tail": "float32"}, "weights": {"symmetric": False}}
    outputs = {"report": tmp_path / "report.json"}
    run(Job(params=params, inputs={"graph": (tmp_path / "graph.json",)}, outputs=outputs))
    assert outputs["report"].exists()
