"""Plans: merged, checked, ordered, drawn and frozen."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from npubake.errors import RecipeError
from npubake.pipeline.graph import needed_for, plan, to_dot, to_mermaid
from npubake.pipeline.task import Output, Task, merge, task_id
from tests.pipeline import dummies
from tests.pipeline.dummies import listing, of, source, task


def diamond() -> dict[str, Task]:
    """head reads a file; left and right read head, tail both; late only waits for tail."""
    head = task(dummies.JOIN, {}, {"file": source("in.txt"), "listing": listing("{}")}, role="head")
    left = task(dummies.LENGTH, {"side": "left"}, {"text": of(head)}, role="left")
    right = task(dummies.LENGTH, {"side": "right"}, {"text": of(head)}, role="right", publish="build/right")
    tail = task(dummies.JOIN, {}, {"text": (*of(left), *of(right))}, role="tail")
    late = task(dummies.JOIN, {"text": "late"}, after=(tail.id,), role="late")
    return {made.name: made for made in (head, left, right, tail, late)}


def faults(*tasks: Task) -> list[str]:
    with pytest.raises(RecipeError) as refused:
        plan(tasks)
    return [fault.what for fault in refused.value.faults]


def test_the_order_holds_whatever_came_first() -> None:
    tasks = list(diamond().values())
    assert [made.name for made in plan(tasks)] == ["head", "left", "right", "tail", "late"]
    order = [made.name for made in plan(reversed(tasks))]
    assert order == ["head", "right", "left", "tail", "late"]
    assert plan(tasks) == plan(tasks)


def test_ids_are_stable_and_tell_stages_apart() -> None:
    made = task(dummies.JOIN, {"a": 1, "b": [2.5]}, {"file": source("x")})
    assert made.id == task_id(dummies.JOIN, {"b": [2.5], "a": 1}, {"file": source("x")})
    assert re.fullmatch(r"join-[0-9a-f]{12}", made.id)
    others = [
        task(dummies.JOIN, {"a": 1}, {"file": source("x")}),
        task(dummies.JOIN, {"a": 1, "b": [2.5]}, {"file": source("y")}),
        task(dummies.JOIN, {"a": 1, "b": [2.5]}, {"listing": listing("x")}),
        task(dummies.JOIN, {"a": 1, "b": [2.5]}, {"file": source("x")}, after=("gate-1",)),
    ]
    assert len({made.id, *(other.id for other in others)}) == 5


def test_equal_tasks_merge() -> None:
    one = task(dummies.JOIN, {}, {"file": source("x")}, target="one", publish="build/one/x")
    two = task(dummies.JOIN, {}, {"file": source("x")}, target="two", publish="build/two/x")
    (merged,) = merge([one, two, one])
    assert merged.targets == ("one", "two")
    assert [item.path for item in merged.publish] == ["build/one/x", "build/two/x"]


def test_all_faults_at_once() -> None:
    head = task(dummies.JOIN)
    wrong = task(dummies.LENGTH, {}, {"text": source("x"), "more": of(head)}, after=("gate-0",))
    empty = task(dummies.LENGTH)
    many = task(dummies.LENGTH, {}, {"text": (*of(head), *of(head))})
    lost = task(dummies.LENGTH, {}, {"text": (Output(task="join-0", port="text"),)})
    port = task(dummies.LENGTH, {}, {"text": (Output(task=head.id, port="no"),)})
    published = replace(task(dummies.GATE, {}, {"text": of(head)}, publish="x"), publish=())
    found = faults(head, wrong, empty, many, lost, port, published)
    assert [what.partition(" ")[2].partition("' ")[2] for what in found] == [
        "waits for 'gate-0', which is not in the plan",
        "has no input port 'more'",
        "input 'text' takes 'text', found 'file'",
        "input 'text' takes 'text', found 0 artifacts",
        "input 'text' takes 'text', found 2 artifacts",
        "input 'text' comes from 'join-0', which is not in the plan",
        f"input 'text' comes from 'no' of '{head.id}', which it does not make",
    ]


def test_one_file_has_one_maker() -> None:
    (what,) = faults(task(dummies.JOIN, {"text": "a"}, publish="x"), task(dummies.JOIN, {"text": "b"}, publish="x"))
    assert what.startswith("made by join-")


def test_cycles_are_named() -> None:
    one, two = (replace(task(dummies.JOIN), id=f"join-{n}") for n in (1, 2))
    one, two = replace(one, after=(two.id,)), replace(two, after=(one.id,))
    (what,) = faults(one, two)
    assert "join-1" in what
    assert "join-2" in what


def test_what_a_task_needs_comes_in_order() -> None:
    tasks = diamond()
    order = plan(tasks.values())
    needed = needed_for(order, [tasks["left"].id])
    assert [made.name for made in needed] == ["head", "left"]
    assert [made.name for made in needed_for(order, [tasks["late"].id])] == ["head", "left", "right", "tail", "late"]


def test_pictures() -> None:
    tasks = diamond()
    order = plan(tasks.values())
    dot, mermaid = to_dot(order), to_mermaid(order)
    assert dot.count("->") == 5
    assert dot.count("dashed") == 1
    assert f'"{tasks["tail"].id}" -> "{tasks["late"].id}" [style=dashed];' in dot
    assert mermaid.count("-->") == 4
    assert f"{tasks['tail'].id} -.-> {tasks['late'].id}" in mermaid
