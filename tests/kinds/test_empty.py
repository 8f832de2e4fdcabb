"""Kinds of nothing: sizes of 0 at the inputs, at the outputs and inside. Named, or no trace is left of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npubake.errors import RecipeError
from npubake.graph.importing import import_model
from tests.kinds.graphs import Array, model, node, pictures, value, weights
from tests.kinds.road import assert_faithful, bake

START: dict[str, Array] = {"zero": np.array([0]), "last": np.array([2])}
NOTHING = node("Slice", "x zero zero last", "e")


@pytest.mark.parametrize("shape", [(0, 4), (1, 0, 4), (3, 4, 0)])
def test_an_input_of_size_0_is_open_and_told_by_its_axis(shape: tuple[int, ...]) -> None:
    source = model([node("Relu", "x", "y")], {}, [value("x", shape)], [value("y", shape)])
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert f"axis {shape.index(0)}" in fault.what
    assert "'x'" in fault.what
    assert fault.path == "$.model.inputs.x.shape"
    stated = [size or 2 for size in shape]
    made = import_model(source.SerializeToString(), {"x": stated})
    assert [dim.dim_value for dim in made.graph.output[0].type.tensor_type.shape.dim] == stated


def test_a_size_of_0_in_the_recipe_is_refused() -> None:
    source = model([node("Relu", "x", "y")], {}, [value("x", ("n", 4))], [value("y", ("n", 4))])
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {"x": [0, 4]})
    assert [fault.path for fault in caught.value.faults] == ["$.model.inputs.x.shape"]


def test_outputs_that_hold_nothing_are_told_all_at_once() -> None:
    source = model(
        [NOTHING, node("MatMul", "w e", "f"), node("Relu", "x", "y")],
        {**START, "w": weights(5, 4)},
        [value("x", (2, 4, 6))],
        [value("y", (2, 4, 6)), value("e", (2, 4, 0)), value("f", (2, 5, 0))],
    )
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    assert [fault.where for fault in caught.value.faults] == ["e", "f"]
    assert all("no element" in fault.what and fault.hint for fault in caught.value.faults)


def test_sums_over_nothing_are_zero_and_leave_no_trace(tmp_path: Path) -> None:
    source = model(
        [
            NOTHING,
            node("MatMul", "e w", "p"),
            node("ReduceSum", "e last", "q"),
            node("Add", "p q", "r"),
            node("Add", "r x", "s"),
            node("MatMul", "s v", "y"),
        ],
        {**START, "w": weights(0, 6), "v": weights(6, 5)},
        [value("x", (2, 4, 6))],
        [value("y", (2, 4, 5))],
    )
    examples = pictures(6, (2, 4, 6))
    baked = bake(source, examples, tmp_path)
    assert_faithful(baked, source, examples, 30)
    assert baked.float_nodes == set()
    assert [each.op_type for each in baked.summary.nodes] == ["MatMul"]


def test_a_constant_without_elements_among_others_leaves_no_trace(tmp_path: Path) -> None:
    source = model(
        [node("Concat", "x e", "c", axis=1), node("MatMul", "c w", "y")],
        {"e": weights(2, 0, 6), "w": weights(6, 5)},
        [value("x", (2, 4, 6))],
        [value("y", (2, 4, 5))],
    )
    examples = pictures(6, (2, 4, 6))
    baked = bake(source, examples, tmp_path)
    assert_faithful(baked, source, examples, 30)
    assert [each.op_type for each in baked.summary.nodes] == ["MatMul"]
