"""The contract of every pass in the table, over every small graph: legal, equal, idempotent, pure, accounted for."""

from __future__ import annotations

import onnx
import pytest

from npubake.graph.execution import random_feeds, run_model
from npubake.graph.model_file import serialise
from npubake.graph.passes import PASSES, Pass
from npubake.graph.provenance import compose, identity
from tests.graph.cases import CASES, CHANGED_BY, DECLINED_BY
from tests.graph.writing import assert_close, assert_provenance

EVERY_PASS = pytest.mark.parametrize("entry", PASSES, ids=lambda entry: entry.name)


def test_every_pass_has_a_case() -> None:
    assert {entry.name for entry in PASSES} == set(CHANGED_BY)


@EVERY_PASS
@pytest.mark.parametrize("case", CASES)
def test_the_result_is_legal_and_equal(entry: Pass, case: str) -> None:
    model = CASES[case]()
    before = serialise(model)
    outcome = entry.run(model)
    assert serialise(model) == before
    onnx.checker.check_model(outcome.model, full_check=True)
    names = [node.name for node in outcome.model.graph.node]
    assert len(set(names)) == len(names)
    assert [value.name for value in outcome.model.graph.output] == [value.name for value in model.graph.output]
    feeds = random_feeds(model, seed=3)
    expected, actual = run_model(model, feeds), run_model(outcome.model, feeds)
    for name, value in expected.items():
        assert_close(actual[name], value, entry.tolerance, f"{case}: {name}")


@EVERY_PASS
@pytest.mark.parametrize("case", CASES)
def test_a_second_application_changes_nothing(entry: Pass, case: str) -> None:
    once = entry.run(CASES[case]()).model
    assert serialise(entry.run(once).model) == serialise(once)


@EVERY_PASS
@pytest.mark.parametrize("case", CASES)
def test_provenance_holds_by_value(entry: Pass, case: str) -> None:
    model = CASES[case]()
    outcome = entry.run(model)
    records = compose(identity(model), outcome.provenance, outcome.model)
    assert {record.old for record in records} == {record.old for record in identity(model)}
    assert_provenance(model, outcome.model, records, max(entry.tolerance, 1e-7))


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in CHANGED_BY.items() for case in cases])
def test_a_case_of_a_pass_is_changed_by_it_and_repeats(name: str, case: str) -> None:
    (entry,) = (entry for entry in PASSES if entry.name == name)
    changed = serialise(entry.run(CASES[case]()).model)
    assert changed != serialise(CASES[case]())
    assert changed == serialise(entry.run(CASES[case]()).model)


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in DECLINED_BY.items() for case in cases])
def test_what_would_not_be_equal_is_declined_with_a_reason(name: str, case: str) -> None:
    (entry,) = (entry for entry in PASSES if entry.name == name)
    model = CASES[case]()
    outcome = entry.run(model)
    assert outcome.declined
    assert {decline.node for decline in outcome.declined} <= {node.name for node in model.graph.node}
    assert all(decline.why for decline in outcome.declined)
    assert [node.op_type for node in outcome.model.graph.node] == [node.op_type for node in model.graph.node]
