"""Room ``graph``: operators outside the ONNX standard. A model enters, faults leave; sizes are written into it.

ONNX's shape inference knows nothing of them (nor of what a Loop makes), so their results are measured: ONNX Runtime
runs the model on several random inputs, and what has the same size and type each time is written beside the node
(``metadata_props``), where it survives every rewrite and every renaming. What differs depends on the data: a fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as states

from npubake.errors import Fault
from npubake.graph.execution import RUNTIME_ERRORS, random_feeds, run_model
from npubake.graph.inference import STATED_FACTS, static_shape
from npubake.graph.opset import STANDARD_DOMAINS

Array = NDArray[Any]

_CUT = "cut the model before this node, or export with fixed sizes"
_SEEDS = (0, 1, 2)  # three random inputs; zeros are the fourth


def runtime_knows(domain: str, kind: str) -> bool:
    """Whether ONNX Runtime has an operator ``kind`` in ``domain``."""
    return (domain, kind) in _known_operators()


@cache
def _known_operators() -> frozenset[tuple[str, str]]:
    return frozenset((schema.domain, schema.name) for schema in states.get_all_operator_schema())


def state_foreign_facts(model: onnx.ModelProto) -> list[Fault]:
    """Write size and type of everything that nodes of foreign domains make beside them, in place; what stands against.

    ``model``: sorted, static input sizes. Raises ``onnx.shape_inference.InferenceError`` where sizes contradict.
    """
    if all(node.domain in STANDARD_DOMAINS for node in model.graph.node):
        return []
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph  # lenient: what stands behind is unknown
    known = {value.name for value in (*inferred.value_info, *inferred.output) if static_shape(value) is not None}
    open_nodes = [
        node
        for node in model.graph.node
        if node.domain not in STANDARD_DOMAINS and any(name and name not in known for name in node.output)
    ]
    names = [name for node in open_nodes for name in node.output if name]
    if not names:
        return []
    try:
        runs = [run_model(model, feeds, names) for feeds in _feeds(model)]
    except RUNTIME_ERRORS as error:
        listed = ", ".join(f"{node.name} ({node.domain}.{node.op_type})" for node in open_nodes[:3])
        what = f"ONNX Runtime does not run this model, whose sizes behind {listed} must be measured: {error}"
        return [Fault(what=what, where=open_nodes[0].name, hint=_CUT)]
    return [fault for node in open_nodes for fault in _state(node, runs)]


def _feeds(model: onnx.ModelProto) -> Iterator[dict[str, Array]]:
    for seed in _SEEDS:
        yield random_feeds(model, seed)
    yield {name: np.zeros_like(value) for name, value in random_feeds(model, 0).items()}


def _state(node: onnx.NodeProto, runs: list[dict[str, Array]]) -> Iterator[Fault]:
    facts = []
    for name in node.output:
        values = [np.asarray(run[name]) for run in runs] if name else []
        sizes = sorted({value.shape for value in values})
        if len(sizes) > 1:
            what = f"the size of {name!r}, made by {node.op_type}, depends on the data: {sizes[0]} or {sizes[-1]}"
            yield Fault(what=what, where=node.name, hint=_CUT)
            return
        facts.append([int(helper.np_dtype_to_tensor_dtype(values[0].dtype)), *sizes[0]] if name else [])
    del node.metadata_props[:]
    entry = node.metadata_props.add()
    entry.key, entry.value = STATED_FACTS, json.dumps(facts)
