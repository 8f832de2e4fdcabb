"""From the compiler's names back to the user's operators."""

from __future__ import annotations

import pytest

from npubake.toolchains.qualcomm.htp.operators import Operators, label
from tests.toolchains.qualcomm.compiler_words import small_model


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("stem", "stem"),
        ("stem_token_1", "stem"),
        ("stem_token_12", "stem"),
        ("stem_2", "stem"),
        ("first", "stem"),
        ("x/dequantized", "stem"),
        ("w/dequantized", "stem"),
        ("stem_out/quantized", "stem"),
        ("stem_out/dequantized", "curve"),
        ("curve_out/quantized_token_3", "curve"),
        ("last", "curve"),
        ("e/quantized", "curve"),
    ],
)
def test_that_a_name_leads_to_its_operator(name: str, operator: str) -> None:
    found = Operators.of(small_model()).find(name)
    assert found is not None
    assert found.name == operator


@pytest.mark.parametrize("name", ["Transpose_token_3", "", "QNNExecutionProvider_0_0"])
def test_that_a_foreign_name_leads_nowhere(name: str) -> None:
    assert Operators.of(small_model()).find(name) is None


def test_that_a_name_of_the_model_is_never_cut() -> None:
    model = small_model()
    model.graph.node[6].name = "stem_2"
    found = Operators.of(model).find("stem_2")
    assert found is not None
    assert label(found) == "stem_2 (Sigmoid)"


def test_that_types_are_those_that_are_stored() -> None:
    operators = Operators.of(small_model())
    assert [operators.stored(name) for name in ("d", "w", "c")] == ["uint8", "int8", ""]
    assert operators.users() == ["stem", "curve"]
