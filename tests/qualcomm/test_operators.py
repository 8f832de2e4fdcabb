"""Operators, one by one, through ``adapt``, the real compiler and its emulator: what is taken, and that it is right.

The agreement of the emulator with the QDQ model on the CPU is what catches silent nonsense: a form that the compiler
takes and computes wrongly lies near 0 dB or below. What it refuses stands in ``REFUSED``, which is held both ways.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.qualcomm import needs_qnn
from tests.qualcomm.emulated import emulated
from tests.qualcomm.operator_cases import CASES, OperatorCase

pytestmark = needs_qnn

QCS9075, QCS6490 = "77", "93"
ROADS = (
    ("a8w8", QCS9075),
    ("a8w8", QCS6490),
    ("a16w8", QCS9075),
    ("a16w8", QCS6490),
    ("a16w16", QCS9075),
    ("w4a16", QCS9075),
    ("fp16", QCS9075),
)
_EVERYWHERE = frozenset(ROADS)
_V68 = frozenset(road for road in ROADS if road[1] == QCS6490)
_SIXTEEN = frozenset(road for road in ROADS if "a16" in road[0])
REFUSED = {
    "Acos": _EVERYWHERE,
    "Asin": frozenset((("fp16", QCS9075),)),
    "BatchNormalization": _SIXTEEN,  # optimize folds it into what is before it
    "Celu": _EVERYWHERE,
    "Einsum": _SIXTEEN,  # optimize makes it a MatMul
    "Erf": _EVERYWHERE,  # optimize makes the Erf of a GELU part of one Gelu
    "Mean": _V68,
    "Mod": _EVERYWHERE,
    "PRelu": _V68 & _SIXTEEN,
    "PRelu scalar": _V68 & _SIXTEEN,
    "ReduceL2": _V68,
    "ReduceProd": _EVERYWHERE,
    "Selu": _V68,
    "Sinh": _EVERYWHERE,
    "Softsign": _EVERYWHERE,
    "Sum": _V68,
    "ThresholdedRelu": _V68,
    "TopK": _V68,
}
# dB of the emulator beside the QDQ model on the CPU: an 8-bit result may be off by one step now and then.
AGREEMENT = {"a8w8": 40.0, "a16w8": 50.0, "a16w16": 50.0, "w4a16": 50.0, "fp16": 45.0}
# Where the HTP's own arithmetic is coarser: approximated functions, steps of a float16, products of two 16-bit tensors
# (but where adapt makes them of two).
COARSER = {
    "Ceil": 35.0,
    "Floor": 33.0,
    "LayerNormalization": 38.0,
    "LpNormalization": 37.0,
    "MatMul computed": 46.0,
    "Mish": 45.0,
    "Round": 36.0,
    "Softplus": 42.0,
}
FINER = {("MatMul computed", "a16w16"): 75.0}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_operator_compiles_and_computes_what_its_qdq_model_says(case: OperatorCase, tmp_path: Path) -> None:
    model, feeds = case.model(), case.feeds(3)
    refused, wrong = set(), {}
    for lane, soc in ROADS:
        folder = tmp_path / f"{lane}_{soc}"
        folder.mkdir()
        found = emulated(model, feeds, lane, soc, folder)
        if found.refused:
            refused.add((lane, soc))
        elif found.agreement < least(case.name, lane):
            wrong[lane, soc] = found.agreement
    assert not wrong
    assert refused == REFUSED.get(case.name, frozenset())


def least(name: str, lane: str) -> float:
    """The agreement in dB that is held."""
    return FINER.get((name, lane), min(AGREEMENT[lane], COARSER.get(name, 200.0)))


def test_what_is_said_to_be_refused_or_coarser_is_a_case() -> None:
    assert REFUSED.keys() | COARSER.keys() <= {case.name for case in CASES}
