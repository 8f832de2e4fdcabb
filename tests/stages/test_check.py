"""stages.check: every refusal of a target that needs the graph alone, and the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npubake.errors import Fault, RecipeError
from npubake.fixedpoint import remove_edges
from npubake.graph.edge_checks import REMOVABLE
from npubake.pipeline.stage import Job
from npubake.stages.check import run
from tests.graph.summaries import summary

PLATFORM = {"name": "j6p", "precisions": ["int8", "int16", "float16", "float32"], "max_l2m_bytes": 25165824}
NO_FLOAT = {"name": "small", "precisions": ["int8", "int16"], "max_l2m_bytes": None}


def _listing(names: dict[str, str], kind: str = "image") -> dict[str, Any]:
    files = [{"name": name, "digest": digest} for name, digest in names.items()]
    return {"version": 1, "kind": kind, "examples": [{"images": name} for name in names], "files": files}


def _job(tmp_path: Path, params: dict[str, Any], **listings: dict[str, Any]) -> Job:
    summary().save(tmp_path / "graph.json")
    inputs = {"graph": (tmp_path / "graph.json",)}
    for port, listing in listings.items():
        (tmp_path / f"{port}.json").write_text(json.dumps(listing))
        inputs[port] = (tmp_path / f"{port}.json",)
    return Job(params=params, inputs=inputs, outputs={"report": tmp_path / "report.json"})


def _report(tmp_path: Path, params: dict[str, Any], **listings: dict[str, Any]) -> dict[str, Any]:
    job = _job(tmp_path, params, **listings)
    run(job)
    return dict(json.loads(job.outputs["report"].read_text()))


def _faults(tmp_path: Path, params: dict[str, Any], **listings: dict[str, Any]) -> tuple[Fault, ...]:
    with pytest.raises(RecipeError) as caught:
        run(_job(tmp_path, params, **listings))
    return caught.value.faults


def test_the_report_names_what_the_overrides_matched(tmp_path: Path) -> None:
    report = _report(
        tmp_path,
        {
            "lane": "a8w8",
            "platform": PLATFORM,
            "layer_overrides": [{"match": {"names": ["/head/*"]}, "set": {"activation": "int16"}}],
            "remove": {"outputs": ["Softmax", "Transpose"]},
            "metric": {"name": "coco_map"},
            "options": {"output_no_padding": True},
        },
    )
    assert (report["lane"], report["platform"]) == ("a8w8", "j6p")
    (entry,) = report["overrides"]
    assert entry["set"] == {"activation": "int16"}
    assert "/head/Softmax" in entry["nodes"]
    assert all("/head/Lstm" in warning for warning in report["warnings"])
    assert report["warnings"][0].startswith("LSTM '/head/Lstm' stays in float32: ")
    assert sum("no multiple of 64" in warning for warning in report["warnings"]) == 0
    assert len(report["warnings"]) == 2  # of the lane, and of the override that asks it of that layer


def test_long_rows_without_padding_are_warned_of(tmp_path: Path) -> None:
    graph = json.loads(summary().to_json())
    graph["tensors"]["boxes"]["shape"] = [1, 4, 8401]
    job = _job(tmp_path, {"options": {"output_no_padding": True}})
    job.input("graph").write_text(json.dumps(graph))
    run(job)
    (warning,) = json.loads(job.outputs["report"].read_text())["warnings"]
    assert "'boxes'" in warning
    assert "33604" in warning


@pytest.mark.parametrize(
    ("params", "paths"),
    [
        ({"lane": "fp16", "platform": NO_FLOAT}, ["$.quant_config.lane"]),
        ({"lane": "w8a8", "platform": NO_FLOAT}, []),
        ({"lane": "a7w7", "platform": PLATFORM}, ["$.lane"]),
        (
            {
                "platform": NO_FLOAT,
                "layer_overrides": [{"match": {"op_types": ["Conv"]}, "set": {"activation": "float16"}}],
            },
            ["$.layer_overrides[0].set.activation"],
        ),
        (
            {"layer_overrides": [{"match": {"op_types": ["LSTM"]}, "set": {"activation": "int8"}}]},
            ["$.layer_overrides[0].set.activation"],
        ),
        ({"inputs": {"image": {"layout": "NCHW"}}}, ["$.model.inputs.image"]),
        ({"runtime_input": {"images": {"type": "nv12", "range": "full"}}}, ["$.runtime_input.images"]),
        ({"runtime_input": {"images": {"type": "rgb"}}}, []),
        ({"runtime_input": {"images": {"type": "gray"}}}, ["$.runtime_input.images"]),
        ({"runtime_input": {"images": {"type": "yuv444"}}}, ["$.runtime_input.images.range"]),
        ({"runtime_input": {"tokens": {"type": "rgb"}}}, ["$.runtime_input.tokens"]),
        ({"runtime_input": {"tokens": {"type": "featuremap"}}}, []),
        ({"runtime_input": {"image": {"type": "rgb"}}}, ["$.runtime_input.image"]),
        ({"runtime_input": {"images": {"type": "nv21"}}}, ["$.runtime_input.images.type"]),
        (
            {"runtime_input": {"images": {"type": "rgb"}}, "inputs": {"images": {"layout": "NHWC"}}},
            ["$.runtime_input.images"],
        ),
        ({"metric": {"name": "top1"}}, ["$.metric.name"]),
        ({"metric": {"name": "coco_map"}}, []),
        ({"remove": {"outputs": ["Transpose"]}}, ["$.remove.outputs[0]"]),
        ({"remove": {"outputs": ["Dequantize"], "inputs": ["Conv"]}}, ["$.remove.inputs[0]"]),
        ({"platform": NO_FLOAT, "options": {"max_l2m_bytes": 1}}, ["$.platform_options.small.max_l2m_size"]),
        ({"platform": PLATFORM, "options": {"max_l2m_bytes": 25165825}}, ["$.platform_options.j6p.max_l2m_size"]),
        ({"platform": PLATFORM, "options": {"max_l2m_bytes": 25165824}}, []),
    ],
)
def test_each_refusal_at_its_place(tmp_path: Path, params: dict[str, Any], paths: list[str]) -> None:
    if paths:
        faults = _faults(tmp_path, params)
        assert [fault.path for fault in faults] == paths
        assert all(fault.hint for fault in faults)
    else:
        warnings = _report(tmp_path, params)["warnings"]
        assert all(warning.startswith("LSTM '/head/Lstm' stays in float") for warning in warnings)


def test_what_is_asked_in_vain_is_refused_all_at_once(tmp_path: Path) -> None:
    asked = ["calibration.method", "weights.bits", "hessian", "mod", "mod.learn.rounding"]
    params = {
        "lane": "fp16",
        "platform": PLATFORM,
        "asked": asked,
        "mod": {"layers": ["/stem/*"]},
        "layer_overrides": [{"match": {"names": ["/head/*"]}, "set": {"hessian": True}}],
    }
    assert {fault.path.removeprefix("$.") for fault in _faults(tmp_path, params)} == {
        *(f"quant_config.{place}" for place in asked[:4]),
        "quant_config.mod.layers[0]",
        "layer_overrides[0].set.hessian",
    }
    heeded = {"match": {"op_types": ["Conv"]}, "set": {"activation": "int8"}}
    assert _report(tmp_path, {**params, "layer_overrides": [heeded]})["overrides"]


def test_groups_that_no_layer_is_wide_enough_for_are_refused(tmp_path: Path) -> None:
    graph = json.loads(summary().to_json())
    graph["tensors"] |= {name: {"shape": [8, 16, 3, 3], "dtype": "float32"} for name in ("w", "w2")}

    def faults(size: int) -> list[str]:
        weights = {"granularity": "per_group", "group_size": size}
        job = _job(tmp_path, {"lane": "a8w8", "weights": weights, "asked": ["weights.granularity"]})
        job.input("graph").write_text(json.dumps(graph))
        try:
            run(job)
        except RecipeError as error:
            return [fault.path for fault in error.faults]
        return []

    assert (faults(16), faults(8)) == (["$.quant_config.weights.granularity"], [])


def test_one_scale_a_tensor_asks_for_no_groups(tmp_path: Path) -> None:
    params = {"lane": "a8w8", "platform": PLATFORM, "asked": ["weights.granularity"]}
    assert _report(tmp_path, {**params, "weights": {"granularity": "per_tensor"}})["lane"] == "a8w8"


def test_what_does_nothing_is_told(tmp_path: Path) -> None:
    overrides = [
        {"match": {"names": ["/stem/Conv"]}, "set": {"activation": "int8"}},
        {"match": {"op_types": ["Conv"]}, "set": {"activation": "int16"}},
    ]
    said = _report(tmp_path, {"lane": "a16w8", "asked": ["calibration.method"], "layer_overrides": overrides})
    assert sum("layer_overrides[0].set.activation" in text for text in said["warnings"]) == 1
    assert sum("quant_config.calibration.method" in text for text in said["warnings"]) == 1


def test_too_few_examples_and_random_ones(tmp_path: Path) -> None:
    few = _listing({"a": "1", "b": "2"})
    (fault,) = _faults(tmp_path, {"min_samples": 3}, calibration=few)
    assert fault.path == "$.calibration.samples"
    assert _report(tmp_path, {"min_samples": 3, "purpose": "smoke"}, calibration=few)
    assert _report(tmp_path, {"min_samples": 2}, calibration=few)
    assert _report(tmp_path, {"min_samples": 9}, calibration=_listing({"a": "1"}, "npz"))
    random = _listing({}, "random")
    (fault,) = _faults(tmp_path, {"min_samples": 3}, calibration=random)
    assert fault.path == "$.calibration.data"
    assert _report(tmp_path, {"min_samples": 3, "purpose": "smoke"}, calibration=random)


def test_calibration_files_that_are_validated_on_are_named(tmp_path: Path) -> None:
    calibration, validation = _listing({"a.jpg": "1", "b.jpg": "2"}), _listing({"other/z.jpg": "2", "y.jpg": "3"})
    (fault,) = _faults(tmp_path, {"purpose": "smoke"}, calibration=calibration, validation=validation)
    assert fault.where == "b.jpg"
    assert "other/z.jpg" in fault.what


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    params = {
        "lane": "fp16",
        "platform": NO_FLOAT,
        "options": {"max_l2m_bytes": 5},
        "runtime_input": {"images": {"type": "nv12"}},
        "layer_overrides": [{"match": {"names": ["nothing"]}, "set": {}}],
        "remove": {"inputs": ["Softmax"]},
        "metric": {"name": "top1"},
        "min_samples": 4,
    }
    faults = _faults(tmp_path, params, calibration=_listing({"a": "1"}), validation=_listing({"b": "1"}))
    assert len(faults) == 9


def test_the_removable_operators_are_those_that_quantize_removes() -> None:
    assert set(REMOVABLE) == set(remove_edges.REMOVABLE)


def test_loaded_scales_that_are_none_or_of_another_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scales.json"
    entry = {"dtype": "uint8", "scale": 0.5, "zero_point": 0, "low": 0.0, "high": 127.5}

    def job(tensors: Any) -> Job:
        made = {"graph_digest": "", "lane": "a8w8", "groups": {}, "weights": {}, "inner": [], "tensors": tensors}
        path.write_text(json.dumps(made))
        plain = _job(tmp_path, {})
        return replace(plain, inputs={**plain.inputs, "scales": (path,)})

    run(job({"stem_relu": entry}))
    for tensors, words in (
        ({"another": entry}, "no tensor of this model"),
        ({"stem_relu": {**entry, "scale": -1.0}}, "stem_relu"),
        (3, "no parameters"),
    ):
        with pytest.raises(RecipeError) as caught:
            run(job(tensors))
        (fault,) = caught.value.faults
        assert fault.path == "$.quant_config.load.scales"
        assert words in fault.what
