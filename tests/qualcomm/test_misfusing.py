"""Silu and Softplus behind layers of planes at 16 bits, by the real compiler: its own fusion takes wrong rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npubake.toolchains.qualcomm.adapting import spelling
from npubake.toolchains.qualcomm.adapting.request import AdaptRequest
from tests.fixedpoint.builds import node
from tests.qualcomm import needs_qnn
from tests.qualcomm.emulated import adapted, compiled, decibels, emulated, in_emulator, runs
from tests.qualcomm.operator_cases import OperatorCase, case, int64, weights

pytestmark = needs_qnn

SILU = (node("Sigmoid", "c", "s"), node("Mul", "c s", "out"))
SOFTPLUS = (node("Softplus", "c", "out"),)
MISH = (node("Softplus", "c", "s"), node("Tanh", "s", "t"), node("Mul", "c t", "out"))
CONVOLUTION = {"w": weights(16, 8, 3, 3), "b": weights(16)}
PLANES = ((8, 12), (9, 12), (12, 8), (24, 12), (42, 2), (20, 24))  # fused, all but the first and the last are wrong


def behind(layer: str, function: tuple[onnx.NodeProto, ...], plane: tuple[int, int]) -> OperatorCase:
    shape = (1, 8, *plane)
    if layer == "Conv":
        return case("Conv", node("Conv", "x w b", "c", pads=[1] * 4), *function, constants=CONVOLUTION, shape=shape)
    pool = node("AveragePool", "x", "c", kernel_shape=[3, 3], pads=[1] * 4)
    return case("AveragePool", pool, *function, shape=shape)


@pytest.mark.parametrize("optimization", ["1", "3"])
@pytest.mark.parametrize("layer", ["Conv", "AveragePool"])
@pytest.mark.parametrize(("function", "least"), [(SILU, 70.0), (SOFTPLUS, 40.0), (MISH, 40.0)])
def test_16_bits_of_any_size_are_what_the_qdq_model_says(
    function: tuple[onnx.NodeProto, ...], least: float, layer: str, optimization: str, tmp_path: Path
) -> None:
    wrong = {}
    for plane in PLANES:
        folder = tmp_path / f"{plane[0]}_{plane[1]}"
        folder.mkdir()
        found = agreement(behind(layer, function, plane), optimization, folder)
        if found < least:
            wrong[plane] = found
    assert not wrong


def agreement(asked: OperatorCase, optimization: str, folder: Path) -> float:
    model, feeds = asked.model(), asked.feeds(2)
    made = adapted(model, feeds, "a16w8", AdaptRequest(lane="a16w8", optimization=int(optimization)))
    assert compiled(made.compilable, "77", folder, htp_graph_finalization_optimization_mode=optimization) == ""
    return decibels(runs(made.model, feeds, "out"), in_emulator(made, feeds, "out", folder))


def test_the_compiler_still_fuses_wrongly_what_is_not_kept_apart(tmp_path: Path) -> None:
    """The reason for it all: once this fails, the spelling may go."""
    asked = behind("Conv", SILU, (9, 12))
    model, feeds = asked.model(), asked.feeds(2)
    made = adapted(model, feeds, "a16w8")
    gate = next(each for each in made.compilable.graph.node if each.op_type == "Sigmoid")
    product = next(each for each in made.compilable.graph.node if each.op_type == "Mul")
    gate.input[0] = product.input[0]
    assert compiled(made.compilable, "77", tmp_path) == ""
    assert decibels(runs(made.model, feeds, "out"), in_emulator(made, feeds, "out", tmp_path)) < 30


ROWS16 = (1, 16, 24)  # rows over which x * Tanh(x) goes wrong
ONE = {"one": np.array(1, np.float32)}
SPELT_OUT = {
    "Softmax": case(
        "Softmax",
        node("Exp", "x", "e"),
        node("ReduceSum", "e axes", "s"),
        node("Div", "e s", "out"),
        constants={"axes": int64(-1)},
        shape=(1, 10),
        low=-5,
        high=0,
    ),
    "Tanh": case("Tanh", node("Tanh", "x", "t"), node("Mul", "x t", "out"), shape=ROWS16),
    "Mish": case("Mish", node("Softplus", "x", "s"), node("Tanh", "s", "t"), node("Mul", "x t", "out"), shape=ROWS16),
    "Gelu": case(
        "Gelu", node("Tanh", "x", "t"), node("Add", "t one", "g"), node("Mul", "x g", "out"),
        constants=ONE, shape=ROWS16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("soc", ["77", "82", "93"])
@pytest.mark.parametrize("name", SPELT_OUT)
def test_functions_that_are_spelt_out(name: str, soc: str, tmp_path: Path) -> None:
    asked = SPELT_OUT[name]
    assert emulated(asked.model(), asked.feeds(2), "a16w8", soc, tmp_path).agreement > 42


@pytest.mark.parametrize("name", SPELT_OUT)
def test_the_compiler_still_takes_them_for_others(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spelling, "keep_apart", lambda *_: None)
    asked = SPELT_OUT[name]
    assert emulated(asked.model(), asked.feeds(2), "a16w8", "77", tmp_path).agreement < 10


def test_mish_behind_planes_on_v68(tmp_path: Path) -> None:
    asked = behind("Conv", MISH, (12, 12))
    assert emulated(asked.model(), asked.feeds(2), "a16w8", "93", tmp_path).agreement > 40


@pytest.mark.parametrize("soc", ["93", "82"])
def test_other_socs(soc: str, tmp_path: Path) -> None:
    asked = behind("Conv", SILU, (12, 12))
    assert emulated(asked.model(), asked.feeds(2), "a16w8", soc, tmp_path).agreement > 50
