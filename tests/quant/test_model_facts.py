"""quant: constants and numeric attributes of a model as plain data."""

from __future__ import annotations

import numpy as np

from npubake.quant.model_facts import model_facts
from tests.quant.graphs import parsed


def test_constants_and_numeric_attributes_by_name() -> None:
    text = """t (float[2,4] x) => (float[2,6] y) {
        g = Gemm<alpha = 0.5, transB = 1>(x, w)
        y = Transpose<perm = [0, 1]>(g)
    }"""
    model, _ = parsed(text, {"w": np.arange(24, dtype=np.float32).reshape(6, 4)})
    facts = model_facts(model)
    assert list(facts.initializers) == ["w"]
    np.testing.assert_array_equal(facts.initializers["w"], np.arange(24).reshape(6, 4))
    assert facts.attributes == {"node_g": {"alpha": 0.5, "transB": 1}, "node_y": {}}
