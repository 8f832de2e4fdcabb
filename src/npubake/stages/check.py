"""stages: ``check``, every refusal of a target that needs the graph and no inference; reads graph.json, no onnx.

Parameters (JSON; whatever is absent is not checked):
  lane              the target's lane, canonical (never ``platform``)
  platform          {name, precisions: [int8, ...], activation_granularities: [per_tensor], max_l2m_bytes: bytes or
                    null, tail}: facts of the platform file
  options           {max_l2m_bytes: bytes or null, output_no_padding: bool}: the recipe's choices for the platform
  inputs            {name: {layout: NCHW | NHWC}}: inputs that the recipe names
  sequence          {sequence_length, cache_length, axes: {input: [words]}, padded}: of a language model's preset
  runtime_input     {name: {type, range}}
  calibration       {granularity}: of activations; mod: {layers: [patterns]}
  weights           {bits, granularity, group_size, symmetric}
  asked             places below quant_config at which something is asked of the whole model (plan/asked.py)
  bits              {op_types: {type: precision}, roles: {role: precision}}: applied before the layer overrides
  layer_overrides   [{match: {names, patterns, op_types, roles, subgraph: {from, to}}, set: {...}}]
  remove            {inputs: [types], outputs: [types]}
  metric            {name: coco_map | top1}
  min_samples       how many calibration examples are asked for; purpose: ``smoke`` accepts fewer, and random data
  toolchain         whose own refusals are added; absent for the reference toolchain, which has none. Of qualcomm:
                    platform: {lanes, march}, calibration: {method}, quantiser: aimet, cpu_nodes: [names]
Inputs: ``graph``; ``calibration``, ``validation`` (optional): listings ``{kind, examples, files: [{name, digest}]}``;
``scales`` (optional): parameters of an earlier build.
Output ``report``: {lane, platform, overrides: [{path, set, groups, nodes}], warnings: [text]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from npubake.calibration.listing_faults import data_faults
from npubake.errors import Fault, RecipeError
from npubake.graph.bit_policy import with_bit_policy
from npubake.graph.edge_checks import (
    PICTURE_CHANNELS,
    input_faults,
    metric_faults,
    padding_warnings,
    removal_faults,
    runtime_input_faults,
)
from npubake.graph.resolve import ResolvedOverride, match_overrides
from npubake.graph.sequence_axes import sequence_faults
from npubake.graph.summary import GraphSummary
from npubake.layout.l2m import l2m_faults
from npubake.pipeline.stage import Job
from npubake.quant.asked_in_vain import (
    granularity_faults,
    learned_layer_faults,
    setting_faults,
    shadowed,
    unheard,
    widened,
)
from npubake.quant.asked_of_all import recipe_faults, recipe_warnings
from npubake.quant.formats_in_vain import requested_format_faults
from npubake.quant.impossible import kernel_faults, kernel_warnings, precision_faults
from npubake.quant.left_in_float import left_in_float
from npubake.quant.precisions import Precisions
from npubake.quant.precisions_asked import precisions_asked, quantisation_at_edges
from npubake.stages.json_files import write_json
from npubake.toolchains import judged


def run(job: Job) -> None:
    """Write the report. Raises one RecipeError with every fault."""
    params = job.params
    summary = GraphSummary.load(job.input("graph"))
    overrides = _overrides(params)
    resolved, faults = match_overrides(summary, overrides)
    inputs = params.get("inputs", {})
    faults += input_faults(summary, inputs)
    faults += precision_faults(params, overrides)
    faults += sequence_faults(summary, params["sequence"]) if params.get("sequence") else ()
    faults += granularity_faults(params)
    faults += kernel_faults(summary, overrides, resolved)
    faults += runtime_input_faults(summary, params.get("runtime_input", {}), inputs)
    faults += metric_faults(summary, params["metric"]) if params.get("metric") else ()
    precisions = precisions_asked(summary, params.get("lane", ""), overrides, resolved)
    faults += learned_layer_faults(summary, params, precisions)
    if precisions is not None:
        faults += setting_faults(summary, overrides, resolved, precisions)
        faults += recipe_faults(summary, params.get("asked", ()), precisions, params.get("platform", {}))
        faults += requested_format_faults(summary, params, overrides, resolved, precisions)
    faults += _removal_faults(summary, params, precisions)
    faults += _memory_faults(params)
    smoke = params.get("purpose", "release") == "smoke"
    listings = _listing(job, "calibration"), _listing(job, "validation")
    faults += data_faults(*listings, wanted=int(params.get("min_samples", 0)), smoke=smoke)
    faults += _scale_faults(job, summary)
    own = judged(summary, params, overrides, resolved, precisions)
    told = {fault.path for fault in own.faults if fault.path}
    faults = [*own.faults, *(fault for fault in faults if fault.path not in told)]  # the toolchain knows the reason
    if faults:
        raise RecipeError(*faults)
    report = {
        "lane": params.get("lane"),
        "platform": params.get("platform", {}).get("name"),
        "overrides": [_entry(overrides[entry.index], entry) for entry in resolved],
        "warnings": [
            *summary.notes,
            *_without_kernel(summary, params, precisions),
            *kernel_warnings(summary, overrides, resolved),
            *(recipe_warnings(summary, params.get("asked", ()), precisions) if precisions is not None else ()),
            *(unheard(summary, overrides, resolved, precisions) if precisions is not None else ()),
            *(widened(summary, overrides, resolved, precisions) if precisions is not None else ()),
            *shadowed(overrides, resolved),
            *_padding(summary, params),
            *own.warnings,
        ],
    }
    write_json(job, "report", report)


def _without_kernel(summary: GraphSummary, params: Mapping[str, Any], precisions: Precisions | None) -> Iterator[str]:
    """What stays in float for want of a kernel of ours. Other toolchains have kernels of their own, and judge."""
    if precisions is None or "toolchain" in params:
        return iter(())
    return left_in_float(summary, precisions.groups)


def _removal_faults(summary: GraphSummary, params: Mapping[str, Any], precisions: Precisions | None) -> Iterator[Fault]:
    runtime = params.get("runtime_input", {})
    pictures = [name for name, entry in runtime.items() if entry["type"] in PICTURE_CHANNELS]
    edges = quantisation_at_edges(precisions, params.get("platform", {}).get("tail", ""))
    return removal_faults(summary, params.get("remove", {}), edges, pictures)


def _overrides(params: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The bit policy and the layer overrides, in the order in which they win."""
    return with_bit_policy(params.get("bits", {}), params.get("layer_overrides", ()))


def _entry(override: Mapping[str, Any], resolved: ResolvedOverride) -> dict[str, Any]:
    return {
        "path": resolved.path,
        "set": override.get("set", {}),
        "groups": list(resolved.groups),
        "nodes": list(resolved.nodes),
    }


def _memory_faults(params: Mapping[str, Any]) -> list[Fault]:
    platform, asked = params.get("platform", {}), params.get("options", {}).get("max_l2m_bytes")
    return l2m_faults(asked, platform.get("max_l2m_bytes"), platform.get("name", "the platform"))


def _padding(summary: GraphSummary, params: Mapping[str, Any]) -> Iterator[str]:
    return padding_warnings(summary) if params.get("options", {}).get("output_no_padding") else iter(())


def _scale_faults(job: Job, summary: GraphSummary) -> Sequence[Fault]:
    path = job.optional("scales")
    if path is None:
        return ()
    from npubake.quant.loading import scale_faults  # it loads numpy, which nothing else here needs

    return scale_faults(path, summary)


def _listing(job: Job, port: str) -> dict[str, Any] | None:
    path = job.optional(port)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path is not None else None
