"""Small graphs, listings and data sets for the tests of calibration and verify."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, shape_inference

from npubake.calibration.collection import SourceFiles, collect
from npubake.calibration.inputs import Request
from npubake.graph.summary import FusionGroup, GraphSummary, NodeFact, TensorFact
from npubake.pipeline.stage import Job
from npubake.recipe.presets import PRESETS, Preprocessing, Resize

YOLO_32 = Preprocessing(
    name="yolo_32",
    decode="pillow",
    channels="rgb",
    resize=Resize(kind="letterbox", size=(32, 32), fill=114),
    divide_by=255,
    input_dtype="uint8",
)
PREPARED = PRESETS["classification"]


def summary(model: onnx.ModelProto) -> GraphSummary:
    """graph.json of a small model without constant nodes: every node a group of its own."""
    inferred = shape_inference.infer_shapes(model)
    values = [*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output]
    facts = {
        value.name: TensorFact(
            shape=tuple(size.dim_value for size in value.type.tensor_type.shape.dim),
            dtype=helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,
        )
        for value in values
    }
    nodes = [node for node in inferred.graph.node if node.op_type != "Constant"]
    return GraphSummary(
        inputs=tuple(value.name for value in inferred.graph.input),
        outputs=tuple(value.name for value in inferred.graph.output),
        tensors=facts,
        nodes=tuple(
            NodeFact(name=node.name, op_type=node.op_type, inputs=tuple(node.input), outputs=tuple(node.output))
            for node in nodes
        ),
        groups=tuple(
            FusionGroup(
                name=node.name,
                kind="float",
                nodes=(node.name,),
                inputs=tuple(name for name in node.input if name in facts),
                outputs=tuple(node.output),
            )
            for node in nodes
        ),
        provenance=(),
    )


def inputs_only(**shapes: tuple[Sequence[int], str]) -> GraphSummary:
    """A graph of which only the inputs matter: name -> (shape, dtype)."""
    facts = {name: TensorFact(shape=tuple(shape), dtype=dtype) for name, (shape, dtype) in shapes.items()}
    return GraphSummary(inputs=tuple(facts), outputs=(), tensors=facts, nodes=(), groups=(), provenance=())


def listing(examples: Sequence[Mapping[str, Path]], kind: str = "images") -> tuple[dict[str, Any], list[Path]]:
    """A listing as the plan makes it, and the files in its order."""
    files = {path.name: path for example in examples for path in example.values()}
    names = sorted(files)
    entries = [{"name": name, "digest": hashlib.sha256(files[name].read_bytes()).hexdigest()} for name in names]
    named = [{key: path.name for key, path in example.items()} for example in examples]
    return {"version": 1, "kind": kind, "examples": named, "files": entries}, [files[name] for name in names]


def request(preset: Preprocessing = YOLO_32, **params: Any) -> Request:
    return Request.from_params({"preset": preset.expanded(), **params})


def build(examples: Sequence[Mapping[str, Path]], graph: GraphSummary, asked: Request, output: Path) -> dict[str, Any]:
    """Collect a sample set; returns its head."""
    return collect(SourceFiles(*listing(examples)), graph, asked, output, lambda _done, _total: None)


def save_arrays(folder: Path, arrays: Sequence[Any]) -> list[dict[str, Path]]:
    """One npy a file; examples of a model with one input."""
    examples = []
    for index, array in enumerate(arrays):
        path = folder / f"{index:03d}.npy"
        np.save(path, array)
        examples.append({"": path})
    return examples


def job(folder: Path, params: Mapping[str, Any], outputs: Sequence[str], **inputs: Any) -> Job:
    """A job with its outputs in ``folder``; an input is a path, a list of paths, or None for an absent one."""
    ports = {name: (value,) if isinstance(value, Path) else tuple(value or ()) for name, value in inputs.items()}
    return Job(params=params, inputs=ports, outputs={name: folder / name for name in outputs}, threads=2)
