"""stages.optimize: the adapter on the shipped classifier."""

from __future__ import annotations

from pathlib import Path

from npubake.graph.importing import import_model
from npubake.graph.model_file import load_model, save_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.stages.optimize import run

MODEL = Path(__file__).parents[2] / "models" / "digits_mobilenet.onnx"


def test_the_stage_writes_the_model_and_its_summary(tmp_path: Path) -> None:
    save_model(import_model(MODEL.read_bytes(), {}), tmp_path / "original.onnx")
    job = Job(
        params={},
        inputs={"model": (tmp_path / "original.onnx",)},
        outputs={"model": tmp_path / "optimized.onnx", "graph": tmp_path / "graph.json"},
    )
    run(job)
    model, summary = load_model(job.outputs["model"]), GraphSummary.load(job.outputs["graph"])
    assert [node.name for node in summary.nodes] == [node.name for node in model.graph.node]
    assert sum(group.kind == "conv" for group in summary.groups) == 17
    first = [path.read_bytes() for path in job.outputs.values()]
    run(job)
    assert [path.read_bytes() for path in job.outputs.values()] == first
