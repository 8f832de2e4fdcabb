"""quant: raising scales until every weighted group has divisors."""

from __future__ import annotations

import numpy as np
import pytest

from npubake.errors import StageError
from npubake.quant.affine import tensor_parameters
from npubake.quant.parameters import IntegerType
from npubake.quant.ranges import Range
from npubake.quant.scales import ClassRange, WeightedEdge, settle_ranges
from npubake.quant.weights import ChannelWeights, grid_divisors


def of(high: float, dtype: IntegerType = "uint8") -> ClassRange:
    return ClassRange(span=Range(low=0.0, high=high), dtype=dtype, asymmetric=True)


def edge(group: str, source: str, target: str, *absmax: float) -> WeightedEdge:
    facts = ChannelWeights(absmax=np.array(absmax), bias=np.zeros(len(absmax)), shared=False)
    return WeightedEdge(group=group, source=source, target=target, weights=facts)


def test_scales_that_have_divisors_are_left_alone() -> None:
    settled = settle_ranges({"x": of(1.0), "y": of(4.0)}, [edge("conv", "x", "y", 0.5, 0.1)])
    assert not settled.raised
    assert settled.parameters["y"] == tensor_parameters(Range(low=0, high=4), "uint8", asymmetric=True)


def test_an_output_too_fine_for_its_weights_is_raised_and_recorded() -> None:
    conv = edge("conv", "x", "y", 900.0)
    settled = settle_ranges({"x": of(1.0), "y": of(2.0)}, [conv])
    (raised,) = settled.raised
    before, after = settled.parameters["x"].scale * 900 / 127, settled.parameters["y"].scale
    assert before <= after <= before * 1.002
    assert (raised.tensor, raised.group, raised.after) == ("y", "conv", after)
    assert raised.before == tensor_parameters(Range(low=0, high=2), "uint8", asymmetric=True).scale
    assert grid_divisors(settled.parameters["x"].scale, after, conv.weights).tolist() == [1]


def test_raising_carries_on_through_a_chain_given_in_any_order() -> None:
    classes = {name: of(1.0) for name in "abcd"}
    edges = [edge("1", "a", "b", 1270.0), edge("2", "b", "c", 127.0), edge("3", "c", "d", 127.0)]
    forward, backward = settle_ranges(classes, edges), settle_ranges(classes, edges[::-1])
    for settled in (forward, backward):
        for link in edges:
            grid_divisors(settled.parameters[link.source].scale, settled.parameters[link.target].scale, link.weights)
        assert {raised.tensor for raised in settled.raised} == {"b", "c", "d"}


def test_a_loop_of_shared_scales_around_small_weights_is_fine() -> None:
    settled = settle_ranges({"x": of(1.0)}, [edge("conv", "x", "x", 100.0)])
    assert not settled.raised


def test_a_loop_around_weights_above_127_is_refused_by_name() -> None:
    with pytest.raises(StageError) as caught:
        settle_ranges({"x": of(1.0)}, [edge("conv", "x", "x", 128.0)])
    assert [fault.where for fault in caught.value.faults] == ["conv"]


def test_int16_outputs_get_divisors_of_at_least_fifteen() -> None:
    conv = edge("conv", "x", "y", 1.0)
    settled = settle_ranges({"x": of(1.0), "y": of(1.0, "int16")}, [conv])
    scales = settled.parameters["x"].scale, settled.parameters["y"].scale
    assert grid_divisors(*scales, conv.weights).tolist() == [15]
    assert settled.parameters["y"].scale * 32767 <= 16.0  # 12 bits are left


def test_int16_outputs_that_share_a_scale_are_raised_no_further_than_needed() -> None:
    shared = ClassRange(span=Range(low=0.0, high=1.0), dtype="int16", asymmetric=True, shared=True)
    settled = settle_ranges({"x": of(1.0), "y": shared}, [edge("conv", "x", "y", 2.0)])
    assert settled.parameters["y"].scale == pytest.approx(settled.parameters["x"].scale * 2.0 / 127, rel=2e-3)


def test_an_int16_input_gives_bits_to_the_weights_of_a_uint8_output() -> None:
    conv = edge("conv", "x", "y", 0.5)
    settled = settle_ranges({"x": of(1.0, "int16"), "y": of(3.0)}, [conv])
    scales = settled.parameters["x"].scale, settled.parameters["y"].scale
    wanted = 127 * scales[1] / (scales[0] * 0.5)
    assert 16000 < wanted <= 16383
    (raised,) = settled.raised
    assert raised.tensor == "x"
    assert raised.after / raised.before < 16.1


def test_an_accumulator_raises_nothing() -> None:
    assert not settle_ranges({"x": of(1.0)}, [edge("conv", "x", "", 1e6)]).raised


def test_dead_classes_take_zero_to_one() -> None:
    settled = settle_ranges({"x": of(0.0), "y": of(2.0)}, [edge("conv", "x", "y", 0.5)])
    assert settled.parameters["x"].high == 1.0
    assert not settled.raised
