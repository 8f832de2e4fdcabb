"""Fusions that the compiler computes wrongly in a QDQ model that another quantiser made (adapting/misfusing.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from npubake.errors import StageError
from npubake.toolchains.qualcomm.aimet.mending import mend
from tests.graph.writing import Array, normal
from tests.toolchains.qualcomm.aimet.models import gated


def output(model: onnx.ModelProto, value: Array) -> Array:
    found: list[Any] = list(ReferenceEvaluator(model).run(None, {"x": value}))
    return np.asarray(found[0])


def test_a_gate_reads_through_a_conversion_of_its_own() -> None:
    given = gated("silu", 12)
    before = given.SerializeToString()
    made, forms = mend(given, 3)
    assert given.SerializeToString() == before
    onnx.checker.check_model(made)
    (gate,) = (node for node in made.graph.node if node.op_type == "Sigmoid")
    (product,) = (node for node in made.graph.node if node.op_type == "Mul")
    assert gate.input[0] != product.input[0] == "c_dq"
    assert [form.node for form in forms] == [gate.name]
    held = {each.name: numpy_helper.to_array(each) for each in made.graph.initializer}
    (own,) = (node for node in made.graph.node if node.output[0] == gate.input[0])
    assert held["c_s"] < held[own.input[1]] < held["c_s"] * 1.002  # another grid, which cuts no code
    assert held[own.input[2]] == held["h"]
    values = normal(1, 4, 12, 12, scale=1.0)
    np.testing.assert_allclose(output(made, values), output(given, values), atol=1e-3)


@pytest.mark.parametrize(("plane", "bits", "optimization", "count"), [(20, 16, 3, 0), (20, 16, 1, 1), (12, 8, 3, 0)])
def test_what_is_fused_rightly_stays_as_it_is(plane: int, bits: int, optimization: int, count: int) -> None:
    given = gated("silu", plane, bits)
    made, forms = mend(given, optimization)
    assert len(forms) == count
    assert (made == given) == (count == 0)


def test_what_has_no_other_form_is_refused_by_name() -> None:
    given = gated("softplus", 12)
    with pytest.raises(StageError) as caught:
        mend(given, 3)
    assert [fault.where for fault in caught.value.faults] == ["Softplus_f"]
    mend(gated("softplus", 20), 3)
