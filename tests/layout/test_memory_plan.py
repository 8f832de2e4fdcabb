"""No two live tensors share a byte; the peak lies between its bounds; liveness by hand on a small graph."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from npubake.errors import StageError
from npubake.layout.l2m import l2m_faults
from npubake.layout.memory_plan import Interval, model_intervals, plan_memory


@st.composite
def interval_lists(draw: st.DrawFn) -> list[Interval]:
    entries = draw(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 20), st.integers(0, 8)), max_size=25))
    return [
        Interval(name=f"t{index}", size=64 * size, first=first, last=first + length)
        for index, (size, first, length) in enumerate(entries)
    ]


@given(interval_lists(), st.randoms(use_true_random=False))
def test_plan_properties(intervals: list[Interval], random: Random) -> None:
    plan = plan_memory(intervals)
    assert sorted(entry.interval.name for entry in plan.placements) == sorted(entry.name for entry in intervals)
    for index, left in enumerate(plan.placements):
        assert left.offset >= 0
        assert left.offset + left.interval.size <= plan.peak_bytes
        for right in plan.placements[index + 1 :]:
            alive_together = set(range(left.interval.first, left.interval.last + 1)) & set(
                range(right.interval.first, right.interval.last + 1)
            )
            apart = (
                left.offset + left.interval.size <= right.offset or right.offset + right.interval.size <= left.offset
            )
            assert apart or not alive_together
    bound = max((sum(e.size for e in intervals if e.first <= s <= e.last) for s in range(40)), default=0)
    assert plan.lower_bound_bytes == bound
    assert bound <= plan.peak_bytes <= sum(entry.size for entry in intervals)
    shuffled = list(intervals)
    random.shuffle(shuffled)
    assert plan_memory(shuffled) == plan


def test_chain_reuses_memory() -> None:
    chain = [Interval(name=f"t{step}", size=100, first=step, last=step + 1) for step in range(10)]
    assert plan_memory(chain).peak_bytes == 200


def test_best_gap_is_taken() -> None:
    """big [0, 300) for ever; two gaps open between neighbours, 100 and 60 bytes: 60 go into the smaller one."""
    intervals = [
        Interval(name="a", size=400, first=0, last=9),
        Interval(name="gap100", size=100, first=0, last=4),
        Interval(name="b", size=90, first=0, last=9),
        Interval(name="gap60", size=60, first=0, last=4),
        Interval(name="c", size=50, first=0, last=9),
        Interval(name="late", size=40, first=5, last=9),
    ]
    offsets = {entry.interval.name: entry.offset for entry in plan_memory(intervals).placements}
    assert offsets["late"] == offsets["gap60"]


MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[1,3,4,5] x) => (uint8[12,5] y, float[1,3,4,5] z)
<float s = {1.0}, uint8 zp = {0}, int64[2] sh = {12, 5}>
{
  q = QuantizeLinear(x, s, zp)
  r = Reshape(q, sh)
  z = Relu(x)
  y = Identity(r)
}
"""


def test_liveness_of_a_small_model() -> None:
    """x: 240 bytes read by steps 0 and 2; q: 60 bytes, y is a view of it and lives to the end; z to the end."""
    intervals = {entry.name: entry for entry in model_intervals(parser.parse_model(MODEL), 64)}
    assert set(intervals) == {"x", "q", "z"}
    assert (intervals["x"].size, intervals["x"].first, intervals["x"].last) == (256, 0, 2)
    assert (intervals["q"].size, intervals["q"].first, intervals["q"].last) == (64, 0, 4)
    assert (intervals["z"].size, intervals["z"].first, intervals["z"].last) == (256, 2, 4)
    assert plan_memory(list(intervals.values())).peak_bytes == 256 + 64 + 256


def test_unknown_shapes_are_all_named() -> None:
    model = parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[N] x) => (float[N] y) { a = Relu(x)  b = Abs(a)  y = Neg(b) }
    """)
    with pytest.raises(StageError) as caught:
        model_intervals(model, 64)
    assert len(caught.value.faults) == 3


def test_l2m() -> None:
    assert l2m_faults(None, None, "j6e") == []
    assert l2m_faults(6 * 2**20, 25165824, "j6p") == []
    assert l2m_faults(25165824, 25165824, "j6p") == []
    assert "no L2M" in l2m_faults(0, None, "j6m")[0].what
    assert l2m_faults(16 * 2**20, 12 * 2**20, "s6p")[0].path == "$.platform_options.s6p.max_l2m_size"
    assert l2m_faults(-1, 25165824, "j6h")
