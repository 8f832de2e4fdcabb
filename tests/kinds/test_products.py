"""Layers that other quantisers leave in float without a word: constants on the other side, batches, Einsum, weights
that are computed. Each is integers from end to end, equal to numpy's or scipy's own; what is not is told by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from scipy.signal import correlate2d

from tests.kinds.graphs import Array, around, model, node, value, weights
from tests.kinds.road import bake, sqnr

LANES = ("a8w8", "a16w8")


def _held(
    source: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]],
    expected: Callable[..., Array],
    lane: str,
    folder: Path,
) -> None:
    """Nothing in float, nothing to tell, and as near to ``expected`` (of float64 arrays) as the lane can be."""
    generator = np.random.default_rng(len(source.SerializeToString()))
    examples = [
        {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(6)
    ]
    baked = bake(source, examples, folder, lane=lane)
    assert baked.float_nodes == set()
    assert baked.warnings == []
    wanted = np.stack([expected(*(feeds[name].astype(np.float64) for name in shapes)) for feeds in examples])
    assert sqnr(wanted, np.stack([baked.run("optimize", feeds)[0] for feeds in examples])) > 100
    assert sqnr(wanted, np.stack([baked.run("quantize", feeds)[0] for feeds in examples])) > (
        44 if lane == "a16w8" else 32
    )


# shape of the constant, of x, and which comes first
FACTORS: dict[str, tuple[tuple[int, ...], tuple[int, ...], bool]] = {
    "a matrix in front": ((5, 8), (8, 6), True),
    "a matrix in front of a batch": ((5, 8), (2, 3, 8, 6), True),
    "a batch in front": ((3, 5, 8), (3, 8, 6), True),
    "a batch behind": ((3, 6, 5), (2, 3, 8, 6), False),
    "a batch that widens": ((3, 6, 5), (1, 8, 6), False),
    "a vector behind": ((6,), (2, 8, 6), False),
}


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("kind", FACTORS)
def test_a_constant_factor_on_any_side_is_a_layer(kind: str, lane: str, tmp_path: Path) -> None:
    constant, shape, first = FACTORS[kind]
    weight = weights(*constant)
    source = model(
        [node("MatMul", "w x" if first else "x w", "y")], {"w": weight}, [value("x", shape)], [value("y", None)]
    )
    pair = (lambda x: np.matmul(weight, x)) if first else (lambda x: np.matmul(x, weight))
    _held(source, {"x": shape}, pair, lane, tmp_path)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    ("equation", "constant", "shapes"),
    [
        ("bchw,oc->bohw", (5, 4), {"x": (1, 4, 6, 6)}),
        ("bhwc,hkc->bhwk", (6, 5, 4), {"x": (1, 6, 6, 4)}),
        ("nchw,chwd->nd", (4, 3, 3, 5), {"x": (2, 4, 3, 3)}),
        ("bqhd,bkhd->bhqk", None, {"x": (1, 7, 2, 8), "z": (1, 5, 2, 8)}),
    ],
)
def test_an_einsum_is_a_layer_or_a_product(
    equation: str, constant: tuple[int, ...] | None, shapes: Mapping[str, Sequence[int]], lane: str, tmp_path: Path
) -> None:
    stored = {} if constant is None else {"w": weights(*constant)}
    names = " ".join([*shapes, *stored])
    inputs = [value(name, shape) for name, shape in shapes.items()]
    source = model([node("Einsum", names, "y", equation=equation)], stored, inputs, [value("y", None)])
    _held(source, shapes, lambda *given: np.einsum(equation, *given, *stored.values()), lane, tmp_path)


@pytest.mark.parametrize("lane", LANES)
def test_a_gemm_of_two_inputs_is_a_product(lane: str, tmp_path: Path) -> None:
    source = model(
        [node("Gemm", "x z", "y", transB=1, alpha=0.125)],
        {},
        [value("x", (4, 8)), value("z", (6, 8))],
        [value("y", None)],
    )
    _held(source, {"x": (4, 8), "z": (6, 8)}, lambda x, z: 0.125 * x @ z.T, lane, tmp_path)


@pytest.mark.parametrize("lane", LANES)
def test_a_template_that_is_searched_in_a_picture_is_a_product(lane: str, tmp_path: Path) -> None:
    """The heart of a tracker: a depthwise Conv whose weights are the features of another picture."""
    source = model(
        [node("Conv", "x z", "y", group=4)],
        {},
        [value("x", (1, 4, 9, 9)), value("z", (4, 1, 3, 4))],
        [value("y", None)],
    )

    def expected(x: Array, z: Array) -> Array:
        return np.stack([correlate2d(plane, kernel[0], "valid") for plane, kernel in zip(x[0], z, strict=True)])[None]

    _held(source, {"x": (1, 4, 9, 9), "z": (4, 1, 3, 4)}, expected, lane, tmp_path)


@pytest.mark.parametrize("lane", LANES)
def test_a_bias_that_is_computed_is_added(lane: str, tmp_path: Path) -> None:
    weight = weights(5, 4, 1, 1)
    source = model(
        [node("Conv", "x w z", "y")], {"w": weight}, [value("x", (1, 4, 6, 6)), value("z", (5,))], [value("y", None)]
    )
    shapes = {"x": (1, 4, 6, 6), "z": (5,)}
    _held(
        source, shapes, lambda x, z: np.einsum("oc,bchw->bohw", weight[..., 0, 0], x) + z[:, None, None], lane, tmp_path
    )


def _linear(mode: str, old: int, new: int) -> Array:
    """The matrix of a linear Resize along one axis, from the standard's text."""
    places = (
        np.arange(new) * (old - 1) / (new - 1) if mode == "align_corners" else (np.arange(new) + 0.5) * old / new - 0.5
    )
    return np.stack([np.interp(places, np.arange(old), row) for row in np.eye(old)], axis=1)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("mode", ["align_corners", "half_pixel"])
@pytest.mark.parametrize("size", [(9, 14), (40, 40), (3, 5)])
def test_every_linear_resize_is_integers(mode: str, size: tuple[int, int], lane: str, tmp_path: Path) -> None:
    resize = node("Resize", "x - - s", "y", mode="linear", coordinate_transformation_mode=mode)
    source = model([resize], {"s": np.array([1, 2, *size])}, [value("x", (1, 2, 6, 8))], [value("y", None)])
    rows, columns = _linear(mode, 6, size[0]), _linear(mode, 8, size[1])
    _held(source, {"x": (1, 2, 6, 8)}, lambda x: rows @ x @ columns.T, lane, tmp_path)


@pytest.mark.parametrize("lane", LANES)
def test_an_average_of_many_elements_is_integers(lane: str, tmp_path: Path) -> None:
    source = model(
        [node("AveragePool", "x", "y", kernel_shape=[24, 24])], {}, [value("x", (1, 2, 25, 25))], [value("y", None)]
    )
    windows = np.lib.stride_tricks.sliding_window_view
    _held(
        source, {"x": (1, 2, 25, 25)}, lambda x: windows(x, (24, 24), axis=(2, 3)).mean(axis=(-2, -1)), lane, tmp_path
    )


# a node from t to u between two layers, and a word of the reason
LEFT: dict[str, tuple[onnx.NodeProto, Mapping[str, Any], str]] = {
    "Max": (node("Max", "t t", "u"), {}, "no integer kernel"),
    "CumSum": (node("CumSum", "t axis", "u"), {"axis": np.array(1)}, "no integer kernel"),
    "InstanceNormalization": (node("InstanceNormalization", "t g g", "u"), {"g": weights(4)}, "no integer kernel"),
    "LRN": (node("LRN", "t", "u", size=3), {}, "no integer kernel"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LEFT)
def test_what_stays_in_float_is_told_by_name_reason_and_remedy(kind: str, tmp_path: Path) -> None:
    left, constants, word = LEFT[kind]
    feeds = [{"x": example} for example in np.random.default_rng(1).standard_normal((4, 1, 3, 8, 8)).astype(np.float32)]
    baked = bake(around([left], constants), feeds, tmp_path)
    assert baked.float_nodes == {f"{kind}_u"}
    (warning,) = baked.warnings
    assert warning.startswith(f"{kind} '{kind}_u' stays in float32: ")
    assert word in warning
    assert "; " in warning


def test_what_no_kernel_is_large_enough_for_is_told_when_it_is_found(tmp_path: Path) -> None:
    """A Resize of channels by 1.5 was to be integers, and is found to have no kernel only when it is lowered."""
    left = node("Resize", "t - - s", "r", mode="linear")
    back = node("Slice", "r zero four one", "u")
    constants = {"s": np.array([1, 6, 8, 8]), "zero": np.array([0]), "four": np.array([4]), "one": np.array([1])}
    feeds = [{"x": example} for example in np.random.default_rng(1).standard_normal((4, 1, 3, 8, 8)).astype(np.float32)]
    baked = bake(around([left, back], constants), feeds, tmp_path)
    assert baked.float_nodes == {"Resize_r"}
    (warning,) = baked.warnings
    assert "'Resize_r' was to compute in int8 and stays in float" in warning
    assert "other axes" in warning
