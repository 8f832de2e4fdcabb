"""quant: all parameters of small real models, and the rules of docs/architecture.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npubake.errors import RecipeError, StageError
from npubake.quant.assign import Assignment, Subject, assign
from npubake.quant.loading import LoadedScales
from npubake.quant.operands import ModelFacts
from npubake.quant.ranges import snap_outward
from npubake.quant.record import record_json, warnings
from npubake.quant.request import parse_request
from tests.quant.graphs import NETWORK, Arrays, constants, counted, observed, parsed


def subject(text: str = NETWORK, values: Arrays | None = None, size: float = 1.0, count: int = 4) -> Subject:
    facts = dict(values if values is not None else constants())
    model, summary = parsed(text, facts)
    generator = np.random.default_rng(9)
    examples = [
        {
            name: (size * generator.uniform(0, 1, summary.tensors[name].shape)).astype(np.float32)
            for name in summary.inputs
        }
        for _ in range(count)
    ]
    return Subject(
        summary=summary,
        graph_digest="d" * 64,
        facts=ModelFacts(initializers=facts, attributes={}),
        statistics=observed(model, summary, examples),
    )


def made(item: Subject, lane: str = "a8w8", matched: Sequence[tuple[str, ...]] = (), **params: Any) -> Assignment:
    return assign(item, parse_request({"lane": lane, "calibration": {"asymmetric": True}, **params}), matched)


@pytest.mark.parametrize("lane", ["a8w8", "a16w8", "fp16_a8w8", "fp16"])
@pytest.mark.parametrize("asymmetric", [True, False])
def test_the_rules_hold(lane: str, asymmetric: bool) -> None:
    item = subject()
    parameters = made(item, lane, calibration={"asymmetric": asymmetric}).parameters
    assert list(parameters.groups) == [group.name for group in item.summary.groups]
    for group in item.summary.groups:
        entry = parameters.groups[group.name]
        integer = entry.precision in ("int8", "int16")
        if integer:
            assert set(group.inputs) <= parameters.tensors.keys()  # rule 7
            assert entry.accumulator_output or set(group.outputs) <= parameters.tensors.keys()
        if integer and group.kind in ("movement", "concat"):  # rule 2
            held = [parameters.tensors[name] for name in (*group.inputs, *group.outputs)]
            assert len({(form.dtype, form.scale, form.zero_point) for form in held}) == 1
        if entry.accumulator_output:  # rule 4
            readers = [reader for reader in item.summary.groups if set(group.outputs) & set(reader.inputs)]
            assert all(parameters.groups[reader.name].precision in ("float16", "float32") for reader in readers)
        if group.name in parameters.weights:
            weights = parameters.weights[group.name]
            assert (weights.divisors == ()) == entry.accumulator_output
            for scale, odd, shift in zip(weights.scales, weights.divisors, weights.shifts, strict=False):  # rule 3
                source, target = parameters.tensors[group.inputs[0]], parameters.tensors[group.outputs[0]]
                exact = Fraction(target.scale) * 2**shift / (Fraction(source.scale) * odd)
                assert odd % 2 == 1
                assert 1 <= odd < (2**24 if source.dtype == "int16" else 2**14)
                assert abs(Fraction(scale) - exact) <= exact / 2**53
    assert parameters.inner == (("c2",) if lane == "a8w8" else ())
    known = {"s"}  # Sigmoid alone (no class in float lanes): its 0..1 is not measured and keeps both ends
    for name, form in parameters.tensors.items():  # rules 1 and 7
        assert form.dtype == ("int16" if lane == "a16w8" or name in parameters.inner else "uint8")
        assert form.zero_point == 0 or form.dtype == "uint8"
        assert form.zero_point == 128 or asymmetric or form.dtype == "int16" or name in known
        assert np.float32(form.scale) == form.scale
        assert (snap_outward(form.low), snap_outward(form.high)) == (form.low, form.high)


def test_known_ranges_are_not_measured() -> None:
    tensors = made(subject()).parameters.tensors
    assert (tensors["th"].scale, tensors["th"].zero_point) == (float(np.float32(1 / 127)), 128)
    # s shares with p, which Clip bounds at 6: the union of 0..1 and what p was seen to hold.
    assert (tensors["s"].low, tensors["s"].scale) == (0.0, tensors["p"].scale)


def test_a_lone_sigmoid_and_softmax_have_codes_for_one() -> None:
    item = subject("t (float[1,4] x) => (float[1,4] y) { s = Sigmoid(x) y = Softmax(s) }", {})
    for asymmetric in (True, False):
        tensors = made(item, calibration={"asymmetric": asymmetric}).parameters.tensors
        for name in ("s", "y"):
            assert (tensors[name].scale, tensors[name].zero_point) == (float(np.float32(1 / 255)), 0)
    tensors = made(item, "a16w8").parameters.tensors
    for name in ("s", "y"):
        assert tensors[name].scale == float(np.float32(1 / 32767))
    assert tensors["x"].high >= 2 * item.statistics["x"].maximum  # measured, and 16 bits: a margin for what is unseen


def test_declared_input_ranges_are_taken_verbatim() -> None:
    item = subject()
    form = made(item, input_ranges={"x": [-2.1179, 2.6400001]}).parameters.tensors["x"]
    assert (form.low, form.high) == (-2.1179, 2.6400001)
    for asymmetric in (True, False):
        unit = made(item, input_ranges={"x": [0, 1]}, calibration={"asymmetric": asymmetric}).parameters.tensors["x"]
        assert (unit.scale, unit.zero_point) == (float(np.float32(1) / np.float32(255)), 0)


def test_inputs_keep_everything_seen_whatever_the_method() -> None:
    item = subject()
    params: dict[str, Any] = {"calibration": {"method": "percentile", "percentile": 0.6, "asymmetric": True}}
    clipped, whole = made(item, **params).parameters.tensors, made(item).parameters.tensors
    assert clipped["x"] == whole["x"]
    assert clipped["c3"].high < whole["c3"].high


def test_a_range_for_something_that_is_no_input_is_refused() -> None:
    with pytest.raises(RecipeError) as caught:
        made(subject(), input_ranges={"image": [0, 1]})
    assert caught.value.faults[0].path == "$.input_ranges.image"


def test_overrides_reach_only_what_they_match() -> None:
    item = subject()
    override = {"match": {"names": ["node_c3"]}, "set": {"method": "percentile", "percentile": 0.7}}
    changed = made(item, matched=[("node_c3",)], layer_overrides=[override])
    plain = made(item)
    differing = {
        name for name, form in plain.parameters.tensors.items() if changed.parameters.tensors[name] != form
    }  # fmt: skip
    assert differing == {"c3"}
    (entry,) = changed.record.overrides
    assert (entry.path, entry.groups, entry.match) == ("layer_overrides[0]", ("node_c3",), {"names": ["node_c3"]})


def test_granularity_by_override() -> None:
    override = {"match": {}, "set": {"granularity": "per_tensor"}}
    weights = made(subject(), matched=[("node_c1",)], layer_overrides=[override]).parameters.weights
    assert len(set(weights["node_c1"].scales)) == 1
    assert len(set(weights["node_c3"].scales)) == 4


def test_a_method_for_a_movement_reaches_what_shares_its_scale() -> None:
    override = {"match": {}, "set": {"method": "percentile", "percentile": 0.7}}
    changed = made(subject(), matched=[("node_p",)], layer_overrides=[override]).parameters.tensors
    assert changed["r1"].high < made(subject()).parameters.tensors["r1"].high
    assert changed["r1"].scale == changed["p"].scale == changed["j"].scale


def test_an_int16_override_is_what_the_tensors_become() -> None:
    override = {"match": {}, "set": {"activation": "int16"}}
    assignment = made(subject(), matched=[("node_c2",)], layer_overrides=[override])
    dtypes = {name: form.dtype for name, form in assignment.parameters.tensors.items()}
    lifted = {name for name, dtype in dtypes.items() if dtype == "int16"}
    assert lifted == {"r1", "p", "c2", "s", "j"}  # c2's input shares with j and s
    assert dtypes["c3"] == "uint8"


@pytest.mark.parametrize(
    ("lane", "change", "kept"),
    [("a8w8", {}, True), ("fp16_a8w8", {}, False), ("a8w8", {"activation": "int8"}, False)],
)
def test_loaded_scales_keep_the_bits_that_tuning_gave(lane: str, change: dict[str, str], kept: bool) -> None:
    item, lifted = subject(), [{"match": {}, "set": {"output": "int16"}}]
    earlier = made(item, matched=[("node_c3",)], layer_overrides=lifted).parameters
    loaded = LoadedScales(tensors=earlier.tensors, weights=earlier.weights, lane="a8w8")
    request = parse_request({"lane": lane, "layer_overrides": [{"match": {}, "set": change}] if change else []})
    again = assign(item, replace(request, loaded=loaded), [("node_c3",)] if change else []).parameters.tensors
    assert (again.get("c3") == earlier.tensors["c3"]) is kept
    assert earlier.tensors["c3"].dtype == "int16"


def test_dead_tensors_are_named_and_neutral() -> None:
    item = subject("t (float[1,4] x) => (float[1,4] y) { n = Neg(x) r = Relu(n) y = Exp(r) }", {})
    assignment = made(item)
    assert assignment.record.dead_tensors == ("r",)
    assert assignment.parameters.tensors["r"].scale == float(np.float32(1 / 255))
    assert any(line.startswith("r: dead") for line in warnings(assignment.record))


def test_values_beyond_float16_go_to_int16_and_are_named() -> None:
    text = "t (float[1,4] x) => (float[1,4] y) { m = Mul(x, k) d = Mul(m, l) y = Tanh(d) }"
    item = subject(text, {"k": np.array(1e6, np.float32), "l": np.array(1e-6, np.float32)})
    assignment = made(item, "fp16")
    assert assignment.record.float16_overflow == {"m": ("node_m", "node_d")}
    assert {name: entry.precision for name, entry in assignment.parameters.groups.items()} == {
        "node_m": "int16", "node_d": "int16", "node_y": "float16",
    }  # fmt: skip
    assert any("beyond float16" in line for line in warnings(assignment.record))


def test_values_that_float16_would_flush_to_zero_go_to_int16_and_are_named() -> None:
    text = "t (float[1,4] x) => (float[1,4] y) { m = Mul(x, k) y = Mul(m, l) }"
    item = subject(text, {"k": np.array(1e-8, np.float32), "l": np.array(1e8, np.float32)})
    assignment = made(item, "fp16")
    assert assignment.record.float16_overflow == {"m": ("node_m", "node_y")}
    assert assignment.parameters.tensors["m"].dtype == "int16"
    nothing = subject(text, {"k": np.array(0, np.float32), "l": np.array(1e8, np.float32)})
    assert made(nothing, "fp16").record.float16_overflow == {}  # zero is zero in float16 too


@pytest.mark.parametrize("tail", ["n = Add(r, eps) y = Div(x, n)", "n = Add(r, eps) q = Sqrt(n) y = Div(x, q)"])
def test_a_divisor_that_float16_would_round_to_zero_goes_to_int16_and_is_named(tail: str) -> None:
    text = f"t (float[1,4] x) => (float[1,4] y) {{ z = Mul(x, k) r = Relu(z) {tail} }}"
    for eps, expected in ((1e-12, True), (1e-6, False)):
        item = subject(text, {"k": np.array([1, 0, 1, 0], np.float32), "eps": np.array(eps, np.float32)})
        assignment = made(item, "fp16_a8w8")
        assert ("n" in assignment.record.float16_overflow) is expected
        assert (assignment.parameters.groups["node_n"].precision == "int16") is expected


def test_a_concat_of_boxes_and_scores_is_named() -> None:
    text = "t (float[1,4] x) => (float[1,8] y) { b = Mul(x, k) s = Sigmoid(x) y = Concat<axis = 1>(b, s) }"
    assignment = made(subject(text, {"k": np.array(640, np.float32)}))
    (mixed,) = assignment.record.mixed_concats
    assert mixed.group == "node_y"
    assert mixed.ratio > 400
    assert any("differ" in line for line in warnings(assignment.record))


def test_no_scale_is_raised_where_weights_are_large_beside_the_output() -> None:
    """x beside x under weights 5000 and -5000.001: products near 5000 that cancel to less than 0.001. The divisor is
    far below 1, and both ranges stay what was seen.
    """
    text = """t (float[1,1,4,4] x) => (float[1,2,4,4] y) {
      d = Concat<axis = 1>(x, x) c = Conv(d, w) y = Exp(c)
    }"""
    weights = np.array([[5000, -5000.001], [1e-4, 1e-4]], np.float32).reshape(2, 2, 1, 1)
    parameters = made(subject(text, {"w": weights})).parameters
    entry, form = parameters.weights["node_c"], parameters.tensors["c"]
    assert entry.divisors[0] / 2 ** entry.shifts[0] < 0.5
    assert form.high < 0.01
    np.testing.assert_allclose(entry.scales, [5000.001 / 127, 1e-4 / 127], rtol=0.016)


def test_missing_and_unusable_statistics_are_refused_all_at_once() -> None:
    item = subject()
    left = {name: entry for name, entry in item.statistics.items() if name not in ("c2", "c3")}
    broken = Subject(summary=item.summary, graph_digest="", facts=item.facts, statistics=left)
    with pytest.raises(StageError) as caught:
        made(broken)
    assert len(caught.value.faults) == 2


def test_the_record_counts_and_lists() -> None:
    item = subject()
    assignment = made(item, "fp16_a8w8")
    record = record_json(assignment.record, assignment.parameters, item.summary, ())
    groups: Mapping[str, int] = record["counts"]["groups"]
    assert groups == {"int8": 4, "float16": 8 - 1}
    assert [entry["group"] for entry in record["float_groups"]] == [
        group.name for group in item.summary.groups if assignment.parameters.groups[group.name].precision == "float16"
    ]
    assert set(record["weighted"]) == set(assignment.parameters.weights)
    assert record["provenance"] == []


def test_the_record_says_what_the_import_said() -> None:
    item, note = subject(), "If 'branch': 2 nodes in sub-graphs left float: a, b"
    assignment = made(item)
    record = record_json(assignment.record, assignment.parameters, replace(item.summary, notes=(note,)), ())
    assert record["warnings"] == [note]


def test_a_compiler_with_kernels_of_its_own_leaves_nothing_in_float_for_want_of_ours() -> None:
    item = subject()
    assignment = made(item)
    groups, first = dict(assignment.parameters.groups), item.summary.groups[0].name
    groups[first] = replace(groups[first], precision="float32", why="no integer kernel (lane a8w8 asks int8)")
    parameters = replace(assignment.parameters, groups=groups)
    ours = record_json(assignment.record, parameters, item.summary, ())
    assert [entry["group"] for entry in ours["float_groups"]] == [first]
    assert any("float32" in warning for warning in ours["warnings"])
    theirs = record_json(assignment.record, parameters, item.summary, (), everywhere=True)
    assert (theirs["float_groups"], theirs["warnings"]) == ([], [])


def test_the_same_input_gives_the_same_parameters() -> None:
    item = subject()
    assert made(item).parameters == made(item).parameters


SILU = """t (float[1,2,4,4] x) => (float[1,2,4,4] y%s) {
  c = Conv(x, w) r = Reshape(c, shape) s = Sigmoid(r) m = Mul(r, s) q = Reshape(m, back) y = Neg(q) %s
}"""
_SILU_CONSTANTS: Arrays = {
    "w": np.array([[-40, 3], [1, 9]], np.float32).reshape(2, 2, 1, 1),
    "shape": np.array([1, 32], np.int64),
    "back": np.array([1, 2, 4, 4], np.int64),
}


def test_what_a_flat_end_cannot_tell_apart_is_cut_off() -> None:
    item = subject(SILU % ("", ""), _SILU_CONSTANTS)
    assert item.statistics["c"].minimum < -20
    apart = {"match": {}, "set": {"fuse": False}}  # else c is an inner tensor of 16 bits
    assignment = made(item, matched=[("node_c",)], layer_overrides=[apart])
    form = assignment.parameters.tensors["c"]
    step = assignment.parameters.tensors["m"].scale
    assert form.high == snap_outward(item.statistics["c"].maximum)
    assert -8 < form.low < -4
    assert abs(form.low / (1 + np.exp(-form.low))) <= step * 0.51  # SiLU at the cut is below half an output step
    assert assignment.record.cut_ranges == ("c", "r")
    wide = made(item, "a16w8").parameters.tensors["c"]
    assert wide.low < form.low


@pytest.mark.parametrize(("output", "reader"), [(", float[1,2,4,4] z", "z = Relu(c)"), (", float[1,32] r", "")])
def test_nothing_is_cut_where_something_else_reads_the_values(output: str, reader: str) -> None:
    item = subject(SILU % (output, reader), _SILU_CONSTANTS)
    assignment = made(item, calibration={"method": "minmax"})
    assert assignment.parameters.tensors["c"].low == snap_outward(item.statistics["c"].minimum)
    assert assignment.record.cut_ranges == ()


@given(
    st.sampled_from(["Sigmoid(x)", "Softmax(x)", "HardSigmoid<alpha = 0.2, beta = 0.5>(x)"]),
    st.floats(min_value=2.0**-14, max_value=1.0, width=32),
)
@settings(max_examples=40, deadline=None)
def test_a_fixed_range_of_which_less_than_a_sixteenth_was_seen_is_measured(text: str, largest: float) -> None:
    """Whatever was seen, at least 4 of the 8 bits hold it: the largest value takes a code of 15 or more."""
    model, summary = parsed(f"t (float[1,4] x) => (float[1,4] y) {{ y = {text} }}", {})
    values = np.array([[0.0, largest / 3, largest / 2, largest]], np.float32)
    statistics = {"x": counted(np.linspace(-1, 1, 4, dtype=np.float32)), "y": counted(values)}
    facts = ModelFacts(initializers={}, attributes={node.name: {} for node in model.graph.node})
    item = Subject(summary=summary, graph_digest="d" * 64, facts=facts, statistics=statistics)
    assignment = made(item)
    form = assignment.parameters.tensors["y"]
    assert form.zero_point == 0
    assert round(largest / form.scale) >= 15
    assert form.high >= largest
    assert (form.high == 1.0) == (largest >= 1 / 16)
    said = [line for line in warnings(assignment.record) if line.startswith("y: its values may reach 1")]
    assert len(said) == (largest < 1 / 16)


def test_nothing_seen_keeps_the_fixed_range() -> None:
    _, summary = parsed("t (float[1,4] x) => (float[1,4] y) { y = Sigmoid(x) }", {})
    seen = {"x": counted(np.ones(4, np.float32)), "y": counted(np.zeros(4, np.float32))}
    facts = ModelFacts(initializers={}, attributes={})
    assignment = made(Subject(summary=summary, graph_digest="d" * 64, facts=facts, statistics=seen))
    assert (assignment.parameters.tensors["y"].high, assignment.record.barely_used) == (1.0, {})
