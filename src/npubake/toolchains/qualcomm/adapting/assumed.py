"""Qualcomm toolchain: a model adapted with assumed ranges, so that the compiler can be asked before any calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from npubake.calibration.statistics import BUCKETS, SHIFT, TensorStatistics
from npubake.graph.resolve import resolve_overrides
from npubake.graph.summary import GraphSummary
from npubake.quant.assign import Subject, assign
from npubake.quant.lanes import parse_lane
from npubake.quant.model_facts import model_facts
from npubake.quant.request import parse_request
from npubake.toolchains.qualcomm.adapting.adapt import adapt
from npubake.toolchains.qualcomm.adapting.request import Adapted, AdaptRequest, Sources
from npubake.toolchains.qualcomm.facts import FLOAT_LANES

_DECIDES = ("lane", "weights", "bits", "layer_overrides", "quantisers")  # of calibrate's parameters, the form alone


def assumed_adaptation(model: onnx.ModelProto, summary: GraphSummary, params: Mapping[str, Any]) -> Adapted:
    """``adapt`` as it will be asked, every tensor -1..1. params: of ``probe``.

    Raises what ``adapt`` raises of the formats that the compiler does not take.
    """
    request = AdaptRequest.from_params(params)
    if parse_lane(params["lane"]).name in FLOAT_LANES:
        return adapt(model, summary, Sources(), request)
    decided = {name: params[name] for name in _DECIDES if name in params}
    asked = parse_request({**decided, "calibration": {"method": "minmax"}})
    statistics = dict.fromkeys(summary.quantisable(), _statistics())
    subject = Subject(summary=summary, graph_digest="", facts=model_facts(model), statistics=statistics)
    matched = [entry.groups for entry in resolve_overrides(summary, asked.overrides)]
    parameters = assign(subject, asked, matched).parameters
    return adapt(model, summary, Sources(parameters=parameters, statistics=statistics), request)


def _statistics() -> TensorStatistics:
    """Of a tensor that was seen at -1 and at 1."""
    seen = np.array([-1.0, 1.0], np.float32)
    buckets = np.bincount(seen.view(np.uint32) >> SHIFT, minlength=BUCKETS).astype(np.int64)
    return TensorStatistics(minimum=-1.0, maximum=1.0, count=2, buckets=buckets)
