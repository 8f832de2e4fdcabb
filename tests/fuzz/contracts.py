"""What every stage owes to any model: held for one, or refused with a named reason."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from npubake.errors import BuildError
from npubake.fixedpoint.lowered import Lowered
from npubake.fixedpoint.ptq import fix_nonlinear
from npubake.graph.execution import RUNTIME_ERRORS, random_feeds, run_model
from npubake.graph.importing import import_model
from npubake.graph.model_file import serialise
from npubake.graph.optimizing import optimize_model
from npubake.quant.lanes import NO_KERNEL, is_integer
from npubake.quant.left_in_float import left_in_float
from npubake.quant.mixed_concats import KEPT_APART
from npubake.quant.model_facts import model_facts
from npubake.quant.qdq import calibrated_model
from tests.fixedpoint.builds import SETTINGS, Case, calibrated, session
from tests.graph.test_groups import assert_well_formed
from tests.graph.writing import Array, assert_close, assert_provenance

LANES = ("a8w8", "a16w8")


def hold(source: onnx.ModelProto, lane: str) -> str:
    """Raises AssertionError where a stage breaks its contract. Returns what came of the model: ``exact``, ``float``
    (parts of it have no integer kernel) or the first words of a refusal, which must name a reason.
    """
    onnx.checker.check_model(source, full_check=True)
    feeds = random_feeds(source, seed=1)
    try:
        expected = run_model(source, feeds)
    except RUNTIME_ERRORS:
        return "does not run"  # ONNX's inference lets a kernel pass that is larger than its input
    if not all(np.isfinite(value).all() for value in expected.values()):
        return "not finite"
    try:
        return _quantised(_optimised(source, feeds, expected), lane)
    except BuildError as error:
        refusal = error
    assert refusal.faults
    assert all(fault.what and (fault.where or fault.path or fault.hint) for fault in refusal.faults), refusal
    return f"refused: {refusal.faults[0].what}"


def _optimised(source: onnx.ModelProto, feeds: Mapping[str, Array], expected: Mapping[str, Array]) -> onnx.ModelProto:
    """``import`` and ``optimize``: legal, equal, accounted for, stable."""
    imported = import_model(source.SerializeToString(), {})
    for name, value in run_model(imported, feeds).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=f"import: {name}")
    before = serialise(imported)
    optimized = optimize_model(imported)
    assert serialise(imported) == before
    onnx.checker.check_model(optimized.model, full_check=True)
    for name, value in run_model(optimized.model, feeds).items():
        assert_close(value, expected[name], 2e-4, f"optimize: {name}")
    assert_provenance(imported, optimized.model, optimized.summary.provenance, 2e-3)
    assert_well_formed(optimized.model, optimized.summary.groups)
    assert serialise(optimize_model(optimized.model).model) == serialise(optimized.model)
    return optimized.model


def _quantised(model: onnx.ModelProto, lane: str) -> str:
    """``calibrate``, ``ptq`` and ``quantize``: the integers are those of the independent evaluator."""
    samples = [random_feeds(model, seed=seed) for seed in (1, 2)]
    case = calibrated(model, samples, lane, calibration={"method": "minmax", "asymmetric": True})
    qdq = calibrated_model(model, case.summary, model_facts(model), case.parameters).model
    fixed = fix_nonlinear(qdq, case.summary, case.parameters).model
    for made in (qdq, fixed):
        onnx.checker.check_model(made, full_check=True)
        assert all(
            np.isfinite(value).all() for value in run_model(made, samples[0]).values() if value.dtype.kind == "f"
        )
    lowered = case.lower()
    onnx.checker.check_model(lowered.model, full_check=True)
    assert _silent(case, lowered) == []
    runners = [session(lowered.model, *each) for each in (SETTINGS[0], SETTINGS[-1])]
    stretched = {
        name: value * np.float32(4) if value.dtype.kind == "f" else value for name, value in samples[1].items()
    }
    floats = any(entry.precision in ("float16", "float32") for entry in case.parameters.groups.values())
    floats = floats or bool(lowered.float_nodes)  # those without a kernel of this size
    for feeds in (samples[0],) if floats else (samples[0], stretched):
        answers = [dict(zip(case.summary.outputs, runner.run(None, feeds), strict=True)) for runner in runners]
        for name in case.summary.outputs:
            if not floats:
                np.testing.assert_array_equal(answers[0][name], answers[1][name], err_msg=f"two settings: {name}")
        if not floats:
            for name, value in case.expected(feeds).items():
                np.testing.assert_array_equal(answers[0][name], value, err_msg=f"quantize: {name}")
    return "float" if floats else "exact"


def _silent(case: Case, lowered: Lowered) -> list[str]:
    """Groups in float that nothing is said of: a lane of integers asks integers of all that makes real numbers."""
    told = {sentence.partition(" ")[0] for sentence in left_in_float(case.summary, case.parameters.groups)}
    types = {node.name: node.op_type for node in case.summary.nodes}
    found = []
    for entry in lowered.float_nodes:
        facts = case.parameters.groups[entry.group]
        if is_integer(facts.precision):  # no kernel was large enough: the record of ``quantize`` tells it
            continue
        of_course = facts.why.startswith(("no float32 tensor", "follows", KEPT_APART))
        if not of_course and not (facts.why.startswith(NO_KERNEL) and types[entry.nodes[0]] in told):
            found.append(entry.group)
    return found
