"""Bounds are sound: at the worst inputs every kernel equals exact integers; beyond a bound a slower kernel serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.errors import StageError
from npubake.fixedpoint.lowered import Certificate, Tail
from npubake.graph.summarising import summarise
from npubake.quant.parameters import (
    GroupParameters,
    IntegerType,
    QuantizationParameters,
    TensorParameters,
    WeightParameters,
    WeightType,
)
from tests.fixedpoint.builds import Case, all_runs, float_model, held, node, session

Array = NDArray[Any]


def integer_case(
    op_type: str,
    shape: Sequence[int],
    weights: Array,
    source: TensorParameters,
    divisors: Sequence[int] = (),
    dtype: WeightType = "int8",
    **attributes: Any,
) -> Case:
    """One weighted node whose float weights are the integers themselves (scale 1); output x / D, or the accumulator.

    Weights beyond the symmetric limits of ``dtype`` get a zero point that makes their codes fit.
    """
    axis = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1}[op_type]
    channels = weights.shape[axis]
    model = float_model(
        [node(op_type, "x w", "y", **attributes)], {"x": shape}, {"w": weights.astype(np.float32)}, ["y"]
    )
    summary = summarise(model, ())
    (group,) = summary.groups
    out = {"y": held("uint8" if source.dtype == "uint8" else "int16", 1.0, 128 if source.dtype == "uint8" else 0)}
    scales = tuple(1.0 / d for d in divisors) or (1.0,) * channels
    # the weight scale so / (si * D) is 1 / D: weights are given in units of it
    constants = weights / np.array(divisors or [1]).reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
    model.graph.initializer[0].raw_data = constants.astype(np.float32).tobytes()
    low, high = {"int8": (-128, 127), "int16": (-32768, 32767)}[dtype]
    others = tuple(place for place in range(weights.ndim) if place != axis)
    zeros = (
        tuple(int(low - min(least, 0)) for least in weights.min(axis=others)) if np.abs(weights).max() > high else ()
    )
    parameters = QuantizationParameters(
        graph_digest="",
        lane="test",
        tensors={"x": source, **(out if divisors else {})},
        groups={group.name: GroupParameters(precision="int8", accumulator_output=not divisors, why="test")},
        weights={
            group.name: WeightParameters(
                initializer="w",
                dtype=dtype,
                axis=axis,
                scales=scales,
                divisors=tuple(divisors),
                zero_points=zeros,
            )
        },
    )
    return Case(model=model, summary=summary, parameters=parameters)


def worst_inputs(rows: Array, low: int, high: int) -> list[Array]:
    """Inputs that drive each row's positive and negative worst case, as real values (scale 1)."""
    return [np.where((row > 0) == (sign > 0), high, low).astype(np.float32) for row in rows for sign in (1, -1)]


def certificate(case: Case) -> Certificate:
    (found,) = case.lower().certificates
    return found


def agrees(case: Case, feeds: Sequence[Array], tail: Tail = "int32") -> None:
    """The model equals the evaluator at every setting."""
    lowered = case.lower(tail)
    for value in feeds:
        expected = case.expected({"x": value})["y"]
        for found in all_runs(lowered.model, {"x": value}):
            np.testing.assert_array_equal(found["y"], expected)


@pytest.mark.parametrize("zero_point", [0, 9, 128, 255])
@pytest.mark.parametrize("divisors", [(), (4001, 16383, 1, 355)])
def test_conv_at_its_worst_inputs(zero_point: int, divisors: Sequence[int]) -> None:
    weights = np.random.default_rng(1).integers(-127, 128, (4, 16, 3, 3))
    weights[0], weights[1] = 127, -127
    case = integer_case("Conv", [1, 16, 3, 3], weights, held(zero_point=zero_point), divisors)
    assert (
        certificate(case).bound
        == np.abs([np.where(w > 0, w * (255 - zero_point), w * -zero_point).sum() for w in (*weights, *-weights)]).max()
    )
    feeds = worst_inputs(weights.reshape(4, -1), -zero_point, 255 - zero_point)
    agrees(case, [value.reshape(1, 16, 3, 3) for value in feeds])


def test_conv_accumulator_beyond_float32_takes_convinteger() -> None:
    """540 products of 127 * 255 pass 2^24; odd sums there are no float32 numbers, int32 keeps them."""
    weights = np.full((2, 540, 1, 1), 127)
    weights[1, ::2] = -127
    case = integer_case("Conv", [1, 540, 1, 1], weights, held(), ())
    found = certificate(case)
    assert found.kernel == "ConvInteger uint8 x uint8"
    assert found.bound > 2**24
    values = np.full((1, 540, 1, 1), 255, np.float32)
    values[0, 0] = 254
    agrees(case, [values])
    (found_value,) = session(case.lower().model).run(["y"], {"x": values})
    assert found_value[0, 0, 0, 0] == np.float32(540 * 127 * 255 - 127)


@pytest.mark.parametrize("rank", [1, 3])
def test_convinteger_adds_its_bias_along_the_channels_in_any_rank(rank: int) -> None:
    """540 products of 127 * 255 in one and three spatial axes; the second channel's bias is another one."""
    weights = np.full((2, 540, *[1] * rank), 127)
    case = integer_case("Conv", [1, 540, *[2] * rank], weights, held(), ())
    assert certificate(case).kernel == "ConvInteger uint8 x uint8"
    case.model.graph.node[0].input.append("b")
    case.model.graph.initializer.append(numpy_helper.from_array(np.array([3, -1001], np.float32), "b"))
    biased = Case(model=case.model, summary=summarise(case.model, ()), parameters=case.parameters)
    values = np.random.default_rng(5).integers(0, 256, (1, 540, *[2] * rank)).astype(np.float32)
    agrees(biased, [values])


def test_depthwise_beyond_float32_is_not_left_in_float32() -> None:
    weights = np.full((2, 1, 24, 24), 127)
    case = integer_case("Conv", [1, 2, 24, 24], weights, held(), (16383, 16383), group=2)
    found = certificate(case)
    assert found.kernel.startswith("QLinearConv")
    assert found.bound > 2**24
    agrees(case, [np.full((1, 2, 24, 24), 255, np.float32), np.zeros((1, 2, 24, 24), np.float32)])


def test_wide_conv_falls_to_bytes_of_convinteger() -> None:
    weights = np.random.default_rng(2).integers(100, 128, (3, 1200, 1, 1))
    case = integer_case("Conv", [1, 1200, 1, 1], weights, held("int16"), (16383, 16383, 16383))
    assert "ConvInteger" in certificate(case).kernel
    values = [np.full((1, 1200, 1, 1), end, np.float32) for end in (32767, -32768, 255, -1)]
    mixed = np.random.default_rng(3).integers(-32768, 32768, (1, 1200, 1, 1)).astype(np.float32)
    agrees(case, [*values, mixed])


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_transposed_conv_beyond_float32_is_split(dtype: IntegerType) -> None:
    weights = np.full((300, 2, 2, 2), 127)
    weights[::3, 1] = -127
    case = integer_case("ConvTranspose", [1, 300, 2, 2], weights, held(dtype), (16383, 16383), strides=[1, 1])
    assert certificate(case).kernel == "ConvTranspose float32 in parts, float64 sum"
    low, high = (0, 255) if dtype == "uint8" else (-32768, 32767)
    mixed = np.random.default_rng(3).integers(low, high + 1, (1, 300, 2, 2)).astype(np.float32)
    agrees(case, [np.full((1, 300, 2, 2), high, np.float32), np.full((1, 300, 2, 2), low, np.float32), mixed])


@pytest.mark.parametrize(
    ("dtype", "depth", "kernel"),
    [
        ("uint8", 40, "MatMul float32 on integers"),
        ("uint8", 700, "MatMulInteger uint8 x uint8"),
        ("int16", 700, "MatMul float64 on integers"),
    ],
)
@pytest.mark.parametrize("divisors", [(), (16383, 9999)])
def test_linear_at_its_worst_inputs(dtype: IntegerType, depth: int, kernel: str, divisors: Sequence[int]) -> None:
    weights = np.random.default_rng(4).integers(-127, 128, (depth, 2))
    weights[:, 0] = 127
    case = integer_case("MatMul", [1, depth], weights, held(dtype), divisors)
    (found,) = case.lower("float32").certificates
    assert found.kernel == kernel
    low, high = (0, 255) if dtype == "uint8" else (-32768, 32767)
    agrees(case, [value.reshape(1, depth) for value in worst_inputs(weights.T, low, high)], "float32")


@pytest.mark.parametrize(
    ("dtype", "depth", "reach", "kernel"),
    [
        ("uint8", 8, (-255, 255), "Conv float32 on integers"),
        ("uint8", 400, (0, 255), "ConvInteger uint8 x uint8 on 2 pairs"),
        ("uint8", 300, (-32767, 32767), "Conv float32 in 1 x 2 parts"),
        ("int16", 60, (-32767, 32767), "Conv float32 in 2 x 2 parts"),
        ("int16", 1100, (-32767, 32767), "ConvInteger uint8 x uint8 on 4 pairs"),
        ("int16", 60, (-200, 55), "Conv float32 in 2 x 1 parts"),
        ("int16", 1100, (-65535, 65535), "ConvInteger uint8 x uint8 on 6 pairs"),
    ],
)
def test_conv_of_wide_weights_at_its_worst_inputs(
    dtype: IntegerType, depth: int, reach: tuple[int, int], kernel: str
) -> None:
    """Three channels: one all at the low end, one all at the high end, one of everything between."""
    weights = np.zeros((3, depth, 1, 1), np.int64)
    weights[0], weights[1] = reach
    weights[2, :, 0, 0] = np.random.default_rng(1).integers(reach[0], reach[1] + 1, depth)
    width: WeightType = "int8" if max(-reach[0], reach[1]) <= 255 else "int16"
    if reach[1] - reach[0] > (255 if width == "int8" else 65535):  # a zero point a channel: each spans all its codes
        weights[2] //= 2
    case = integer_case("Conv", [1, depth, 1, 1], weights, held(dtype), (16383, 4001, 355), width)
    assert certificate(case).kernel.startswith(kernel)
    low, high = (0, 255) if dtype == "uint8" else (-32768, 32767)
    rows = worst_inputs(weights.reshape(3, -1), low, high)
    mixed = np.random.default_rng(3).integers(low, high + 1, depth).astype(np.float32)
    agrees(case, [value.reshape(1, depth, 1, 1) for value in (*rows, mixed)])


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
@pytest.mark.parametrize("reach", [255, 32767])
def test_other_products_of_wide_weights_at_their_worst_inputs(dtype: IntegerType, reach: int) -> None:
    low, high = (0, 255) if dtype == "uint8" else (-32768, 32767)
    width: WeightType = "int8" if reach == 255 else "int16"
    generator = np.random.default_rng(2)
    weights = generator.integers(-reach // 2, reach // 2 + 1, (700, 2))
    weights[:, 0] = -reach
    case = integer_case("MatMul", [1, 700], weights, held(dtype), (16383, 9999), width)
    assert certificate(case).kernel == "MatMul float64 on integers"
    agrees(case, [value.reshape(1, 700) for value in worst_inputs(weights.T, low, high)])
    tall = np.full((90, 2, 2, 2), -reach)
    tall[:, 1] = -reach // 2
    tall[::3, 1] = reach // 3
    case = integer_case("ConvTranspose", [1, 90, 2, 2], tall, held(dtype), (16383, 16383), width, strides=[1, 1])
    mixed = generator.integers(low, high + 1, (1, 90, 2, 2)).astype(np.float32)
    agrees(case, [np.full((1, 90, 2, 2), end, np.float32) for end in (low, high)] + [mixed])


def test_int32_tail_refuses_what_it_cannot_hold() -> None:
    case = integer_case("MatMul", [1, 700], np.full((700, 1), 127), held("int16"), ())
    with pytest.raises(StageError) as caught:
        case.lower("int32")
    assert caught.value.faults[0].where == "y"


def test_even_divisor_is_refused() -> None:
    case = integer_case("Conv", [1, 2, 1, 1], np.full((1, 2, 1, 1), 5), held(), (100,))
    with pytest.raises(StageError) as caught:
        case.lower()
    assert caught.value.faults[0].where == "y/Conv"


def test_divisors_too_large_for_a_multiplication_are_divided_by() -> None:
    case = integer_case("Conv", [1, 2, 1, 1], np.full((1, 2, 1, 1), 127), held(), (16385,))
    assert certificate(case).kernel == "Conv float32 on integers"
    agrees(case, [np.full((1, 2, 1, 1), value, np.float32) for value in (0, 31, 32, 33, 255)])


def test_every_odd_divisor_rounds_alike_at_every_boundary() -> None:
    """Certificate 4, fl32(acc) * fl32(1 / D), and certificate 3, fl32(acc / D), against exact division: all 8,192
    divisors, both sides of every rounding boundary of 8 bits.
    """
    steps = np.arange(-257, 257, dtype=np.int64)
    for first in range(1, 16384, 1024):
        divisors = np.arange(first, min(first + 1024, 16384), 2, dtype=np.int64)[:, None]
        edges = (2 * steps + 1) * divisors // 2
        reciprocals = (1.0 / divisors).astype(np.float32)
        for offset in (-1, 0, 1, 2):
            acc = edges + offset
            quotient = acc // divisors
            exact = quotient + (2 * (acc - quotient * divisors) > divisors)
            single = acc.astype(np.float32)
            assert np.array_equal(np.rint(single * reciprocals), exact)
            assert np.array_equal(np.rint(single / divisors.astype(np.float32)), exact)


@pytest.mark.parametrize("shift", [1, 3, 9, 20])
def test_shifted_divisors_round_alike_at_every_boundary(shift: int) -> None:
    """The same for n / 2**shift, n of 14 bits, in multiplication, float32 and float64 division: the accumulators next
    to each boundary of 8 bits; and for n of 8 bits in float32 division to 16 bits.
    """
    for bits, reach in ((14, 257), (8, 32770)):
        divisors = np.arange(2 ** (bits - 1) + 1, 2**bits, 2, dtype=np.int64)[:: 1 if bits == 14 else 8, None]
        steps = np.arange(-reach, reach, 1 if bits == 14 else 7, dtype=np.int64)
        edges = (2 * steps + 1) * divisors // 2 ** (shift + 1)
        dividing = np.ldexp(divisors.astype(np.float64), -shift)
        for offset in (-1, 0, 1, 2):
            acc = edges + offset
            acc = np.where(np.abs(acc) < 2**24, acc, 0)
            scaled = acc << shift
            quotient = scaled // divisors
            exact = quotient + (2 * (scaled - quotient * divisors) > divisors)
            held_back = np.abs(quotient) <= reach
            single = acc.astype(np.float32)
            divided = np.rint(single / dividing.astype(np.float32))
            assert np.array_equal(divided[held_back], exact[held_back])
            assert np.array_equal(np.rint(acc / dividing), exact)
            if bits == 14:
                multiplied = np.rint(single * (1.0 / dividing).astype(np.float32))
                assert np.array_equal(multiplied[held_back], exact[held_back])


def test_runtime_requantises_as_the_proof_says() -> None:
    """QLinearConv and QuantizeLinear of the installed runtime at boundaries, one divisor a channel."""
    divisors = [1, 3, 255, 1023, 4097, 9999, 12345, 16383]
    nodes = [node("QLinearConv", "x one zx w m zw one zy b", "q"), node("QuantizeLinear", "f d zc", "p", axis=1)]
    for step in (-128, -1, 0, 5, 126):
        for offset in (0, 1):
            row = [(2 * step + 1) * divisor // 2 + offset for divisor in divisors]
            constants = {
                "one": np.float32(1), "zx": np.uint8(0), "w": np.full((8, 1, 1, 1), 128, np.uint8),
                "m": (1.0 / np.array(divisors)).astype(np.float32), "zw": np.full(8, 128, np.uint8),
                "zy": np.uint8(128), "b": np.array(row, np.int32), "d": np.array(divisors, np.float32),
                "zc": np.full(8, 128, np.uint8),
            }  # fmt: skip
            exact = [min(max(round(Fraction(acc, d)), -128), 127) for acc, d in zip(row, divisors, strict=True)]
            for values in run_bare(nodes, constants, row):
                assert (values.reshape(-1).astype(int) - 128).tolist() == exact


def run_bare(nodes: Sequence[onnx.NodeProto], constants: Mapping[str, Any], accumulators: Sequence[int]) -> list[Array]:
    """Run nodes on x = 0 (uint8, one element) and f = accumulators (float32, one a channel); outputs q and p."""
    graph = helper.make_graph(
        list(nodes),
        "bare",
        [
            helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 1, 1, 1]),
            helper.make_tensor_value_info("f", TensorProto.FLOAT, [1, len(accumulators), 1, 1]),
        ],
        [helper.make_empty_tensor_value_info("q"), helper.make_empty_tensor_value_info("p")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {"x": np.zeros((1, 1, 1, 1), np.uint8), "f": np.array(accumulators, np.float32).reshape(1, -1, 1, 1)}
    results: list[Array] = session(model).run(["q", "p"], feeds)
    return results
