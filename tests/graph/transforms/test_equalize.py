"""graph.transforms.equalize: the function keeps its bits, what changes changes its name, and where it stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npubake.errors import StageError
from npubake.graph.execution import random_feeds, run_model
from npubake.graph.model_file import serialise
from npubake.graph.passes.fuse_hard_swish import fuse_hard_swish
from npubake.graph.provenance import computed_tensors
from npubake.graph.transforms.channels import WriterKind
from npubake.graph.transforms.equalize import Equalized, Scaling, equalize
from tests.graph.transforms.observing import observed, spread
from tests.graph.writing import Array, assert_provenance, build, constants_of, floats, integers, normal, scalar

EVERY: frozenset[WriterKind] = frozenset(("weighted", "norm", "function"))


def _equalized(model: onnx.ModelProto, **asked: Any) -> Equalized:
    """Everything asked for, whatever is predicted to be won; checked: bits of outputs, records, input untouched."""
    before = serialise(model)
    made = equalize(model, observed(model), Scaling(writers=EVERY, **{"alphas": (1.0,), "gain": -1e9, **asked}))
    assert serialise(model) == before
    onnx.checker.check_model(made.model, full_check=True)
    for seed in (21, 22):
        feeds = random_feeds(model, seed)
        old, new = run_model(model, feeds), run_model(made.model, feeds)
        for name, value in old.items():
            np.testing.assert_array_equal(new[name], value, err_msg=name)
    assert_provenance(model, made.model, made.provenance, tolerance=0.0)
    return made


def _scaled_names(made: Equalized) -> set[str]:
    return {name.removesuffix("/equalized") for name in computed_tensors(made.model) if name.endswith("/equalized")}


IMAGE = "float[1,3,8,8] x => float[1,5,8,8] y"
CONVOLUTIONS = {"w1": spread(6, 3, 1, 1), "b1": spread(6), "w2": normal(5, 6, 1, 1), "b2": normal(5)}
CASES: dict[str, tuple[str, str, dict[str, Array], set[str]]] = {
    "relu": (IMAGE, "t = Conv(x, w1, b1) r = Relu(t) y = Conv(r, w2, b2)", CONVOLUTIONS, {"t", "r"}),
    "leaky relu and a pool": (
        "float[1,3,8,8] x => float[1,5,4,4] y",
        """t = Conv(x, w1, b1) r = LeakyRelu(t) p = MaxPool<kernel_shape=[2,2],strides=[2,2]>(r) y = Conv(p, w2, b2)""",
        CONVOLUTIONS,
        {"t", "r", "p"},
    ),
    "slopes of each channel, an average and a resize": (
        "float[1,3,8,8] x => float[1,5,8,8] y",
        """
        t = Conv(x, w1, b1) r = PRelu(t, slope) a = AveragePool<kernel_shape=[2,2],strides=[2,2]>(r)
        u = Resize<mode="linear">(a, , scales) y = Conv(u, w2, b2)
        """,
        {**CONVOLUTIONS, "slope": normal(6, 1, 1), "scales": floats(1, 1, 2, 2)},
        {"t", "r", "a", "u"},
    ),
    "a depthwise chain": (
        IMAGE,
        "t = Conv(x, w1, b1) r = Relu(t) d = Conv<group=6,pads=[1,1,1,1]>(r, wd, bd) s = Relu(d) y = Conv(s, w2, b2)",
        {**CONVOLUTIONS, "wd": spread(6, 1, 3, 3), "bd": spread(6, seed=9)},
        {"t", "r", "d", "s"},
    ),
    "a residual sum, read twice": (
        IMAGE,
        """
        t = Conv(x, w1, b1) r = Relu(t) c = Conv(r, wr, b1) s = Add(r, c) u = Add(s, k)
        y1 = Conv(u, w2, b2) y2 = Conv(s, w2, b2) y = Add(y1, y2)
        """,
        {**CONVOLUTIONS, "wr": spread(6, 6, 1, 1), "k": normal(1, 6, 1, 1)},
        {"t", "r", "c", "s", "u"},
    ),
    "side by side and apart": (
        IMAGE,
        """
        a = Conv(x, w1, b1) b = Conv(x, w3, b3) k = Concat<axis=1>(a, b) l, m = Split<axis=1>(k, sizes)
        n = Slice(m, one, three, one) y1 = Conv(l, w4, b2) y2 = Conv(n, w5, b2) y = Add(y1, y2)
        """,
        {**CONVOLUTIONS, "w3": spread(4, 3, 1, 1, seed=2), "b3": normal(4), "sizes": integers(5, 5), "one": integers(1),
         "three": integers(3), "w4": normal(5, 5, 1, 1), "w5": normal(5, 2, 1, 1)},
        {"a", "b", "k", "l", "m", "n"},
    ),
    "flattened": (
        "float[1,3,2,2] x => float[1,5] y",
        "t = Conv(x, w1, b1) r = Relu(t) f = Flatten(r) y = Gemm<transB=1>(f, w, b2)",
        {**CONVOLUTIONS, "w": normal(5, 24)},
        {"t", "r", "f"},
    ),
    "pooled, turned and squeezed": (
        "float[1,3,4,4] x => float[16,5] y",
        """
        t = Conv(x, w1, b1) p = Transpose<perm=[0,2,3,1]>(t) f = Reshape(p, rows) s = Squeeze(f, none)
        n = Neg(s) u = Sub(k, n) y = MatMul(u, w)
        """,
        {**CONVOLUTIONS, "rows": integers(1, 16, 6), "none": integers(0), "w": normal(6, 5), "k": scalar(0.5)},
        {"t", "p", "f", "s", "n", "u"},
    ),
    "a gate": (
        IMAGE,
        """
        t = Conv(x, w1, b1) r = Relu(t) g = GlobalAveragePool(r) q = Conv(g, wq, bq) h = HardSigmoid(q)
        m = Mul(r, h) y = Conv(m, w2, b2)
        """,
        {**CONVOLUTIONS, "wq": normal(6, 6, 1, 1), "bq": normal(6)},
        {"t", "r", "g", "m"},
    ),
    "transposed convolutions": (
        "float[1,4,3,3] x => float[1,5,5,5] y",
        "t = ConvTranspose<group=2>(x, wt, bt) r = Relu(t) y = ConvTranspose(r, w2, b2)",
        {"wt": spread(4, 3, 2, 2), "bt": spread(6), "w2": normal(6, 5, 2, 2), "b2": normal(5)},
        {"t", "r"},
    ),
    "a normalisation": (
        "float[1,4,6] x => float[1,4,3] y",
        "n = LayerNormalization<axis=-1>(x, g, b) q = MatMul(n, w) k = MatMul(n, w) y = Sub(q, k)",
        {"g": spread(6), "b": normal(6), "w": normal(6, 3)},
        {"n"},
    ),
    "a normalisation by the root mean square": (
        "float[1,4,6] x => float[1,4,3] y",
        """
        s = Mul(x, x) m = ReduceMean(s, last) e = Add(m, eps) r = Sqrt(e) d = Div(x, r) n = Mul(g, d)
        y = MatMul(n, w)
        """,
        {"g": spread(6), "last": integers(-1), "eps": scalar(1e-5), "w": normal(6, 3)},
        {"n"},
    ),
    "values of an attention": (
        "float[1,4,6] x => float[1,4,3] y",
        """
        xt = Transpose<perm=[0,2,1]>(x) a = MatMul(x, xt) p = Softmax(a) v = MatMul(x, wv) o = MatMul(p, v)
        y = MatMul(o, w)
        """,
        {"wv": np.ascontiguousarray(spread(6, 6).T), "w": normal(6, 3)},
        {"v", "o"},
    ),
    "hard swish": (IMAGE, "t = Conv(x, w1, b1) h = HardSwish(t) y = Conv(h, w2, b2)", CONVOLUTIONS, {"h"}),
    "a function of two nodes": (
        IMAGE,
        "t = Conv(x, w1, b1) s = Sigmoid(t) h = Mul(t, s) p = Relu(h) y = Conv(p, w2, b2)",
        CONVOLUTIONS,
        {"h", "p"},
    ),
}  # fmt: skip


def _case(name: str, **others: Array) -> onnx.ModelProto:
    signature, body, constants, _ = CASES[name]
    return build(signature, body, **{**constants, **others})


@pytest.mark.parametrize("case", CASES)
def test_what_is_scaled(case: str) -> None:
    assert _scaled_names(_equalized(_case(case))) == CASES[case][3]


STOPS: dict[str, tuple[str, str, dict[str, Array], str]] = {
    "a Relu with a ceiling": (
        IMAGE, "t = Conv(x, w1, b1) r = Clip(t, zero, six) y = Conv(r, w2, b2)",
        {**CONVOLUTIONS, "zero": scalar(0), "six": scalar(6)}, "Clip_r",
    ),
    "an output": (
        "float[1,3,8,8] x => float[1,5,8,8] y, float[1,6,8,8] r",
        "t = Conv(x, w1, b1) r = Relu(t) y = Conv(r, w2, b2)", CONVOLUTIONS, "an output of the graph",
    ),
    "a sum with an input": (
        "float[1,3,8,8] x, float[1,6,8,8] z => float[1,5,8,8] y",
        "t = Conv(x, w1, b1) s = Add(t, z) y = Conv(s, w2, b2)", CONVOLUTIONS, "Add_s",
    ),
    "a product of two": (
        IMAGE, "t = Conv(x, w1, b1) u = Conv(x, w1, b1) s = Mul(t, u) y = Conv(s, w2, b2)", CONVOLUTIONS, "Mul_s",
    ),
    "a softmax": (IMAGE, "t = Conv(x, w1, b1) s = Softmax<axis=1>(t) y = Conv(s, w2, b2)", CONVOLUTIONS, "Softmax_s"),
    "channels that are mixed": (
        "float[1,3,4,4] x => float[32,5] y", "t = Conv(x, w1, b1) f = Reshape(t, flat) y = Gemm(f, w, b2)",
        {**CONVOLUTIONS, "flat": integers(32, 3), "w": normal(3, 5)}, "Reshape_f",
    ),
    "a sum over the channels": (
        "float[1,3,8,8] x => float[1,1,8,8] y", "t = Conv(x, w1, b1) y = ReduceMean(t, one)",
        {**CONVOLUTIONS, "one": integers(1)}, "ReduceMean_y",
    ),
    "a padding that is no zero": (
        "float[1,3,8,8] x => float[1,5,10,10] y",
        "t = Conv(x, w1, b1) p = Pad(t, around, one) y = Conv(p, w2, b2)",
        {**CONVOLUTIONS, "around": integers(0, 0, 1, 1, 0, 0, 1, 1), "one": scalar(1)}, "Pad_p",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STOPS)
def test_where_it_stops_and_for_whose_sake(case: str) -> None:
    signature, body, constants, keeper = STOPS[case]
    made = _equalized(build(signature, body, **constants))
    assert not _scaled_names(made)
    assert f"kept for {keeper}" in {entry.why for entry in made.declined if entry.node == "Conv_t"}


def test_a_mul_stands_behind_a_function_only_where_asked() -> None:
    model = _case("hard swish")
    made = equalize(model, observed(model), Scaling(writers={"weighted"}, gain=-1e9))
    assert [node.op_type for node in made.model.graph.node] == ["Conv", "HardSwish", "Conv"]
    made = _equalized(model)
    assert [node.op_type for node in made.model.graph.node] == ["Conv", "HardSwish", "Mul", "Conv"]
    (entry,) = made.scaled
    factors = constants_of(made.model)["h/equalized/factors"]
    assert (entry.writer, entry.kind, entry.readers) == ("HardSwish_h", "function", ("Conv_y",))
    assert (entry.least, entry.most, entry.channels) == (factors.min(), factors.max(), int((factors != 1).sum()))
    assert (np.log2(factors) % 1 == 0).all()


def test_the_import_form_of_hard_swish_is_one_function() -> None:
    model = build(
        IMAGE,
        """
        t = Conv(x, w1, b1) p = Add(t, three) c = Clip(p, zero, six) m = Mul(t, c) h = Div(m, six)
        y = Conv(h, w2, b2)
        """,
        **CONVOLUTIONS, three=scalar(3), zero=scalar(0), six=scalar(6),
    )  # fmt: skip
    assert _scaled_names(_equalized(fuse_hard_swish(model).model)) == {"h"}


def test_ranges_of_channels_become_alike_and_are_handed_on() -> None:
    """alpha = 1 leaves no channel below half of the largest."""
    model = _case("relu")
    made = _equalized(model)
    fresh = observed(made.model)
    after = fresh["r/equalized"]
    for key in ("low", "high", "mean", "square"):
        np.testing.assert_array_equal(getattr(made.observed["r/equalized"], key), getattr(after, key))
    assert after.magnitude.min() > 0.49 * after.magnitude.max()
    before = observed(model)["r"].magnitude
    assert before.min() < 0.1 * before.max()


def test_nothing_is_done_for_a_gain_that_is_not_predicted() -> None:
    constants = {**CONVOLUTIONS, "w1": np.full((6, 3, 1, 1), 0.5, np.float32), "b1": np.zeros(6, np.float32)}
    model = _case("relu", **constants)
    made = equalize(model, observed(model), Scaling(writers=EVERY))
    assert (made.scaled, made.provenance) == ((), ())
    assert any("nothing is won" in entry.why for entry in made.declined)


def test_excluded_nodes_keep_what_they_read_and_make() -> None:
    model = _case("a depthwise chain")
    asked = Scaling(writers=EVERY, alphas=(1.0,), gain=-1e9)
    made = equalize(model, observed(model), asked, excluded={"Conv_d"})
    assert _scaled_names(made) == set()
    made = equalize(model, observed(model), asked, excluded={"Conv_y"})
    assert _scaled_names(made) == {"t", "r"}
    assert "kept for Conv_y: excluded" in {entry.why for entry in made.declined}


def test_without_observations_the_weights_alone_are_evened_out() -> None:
    """Cross-layer equalisation as in the paper: rows and columns of one magnitude, up to the powers of 2."""
    model = _case("relu")
    made = equalize(model, {}, Scaling(writers={"weighted"}))
    constants = constants_of(made.model)
    rows = np.abs(constants["w1/equalized"]).max(axis=(1, 2, 3))
    columns = np.abs(CONVOLUTIONS["w2"]) / np.abs(CONVOLUTIONS["w2"]).max(axis=1, keepdims=True)
    scale = np.abs(CONVOLUTIONS["w1"]).max(axis=(1, 2, 3)) / rows
    quotient = rows / (columns.max(axis=0).reshape(-1) * scale)
    assert quotient.max() / quotient.min() <= 4.0  # each factor is within 2^(+-1/2) .. 2 of its ideal, squared
    before = np.abs(CONVOLUTIONS["w1"]).max(axis=(1, 2, 3))
    assert before.max() / before.min() > 16.0


def test_a_bias_at_the_edge_of_float32_is_refused() -> None:
    constants = {**CONVOLUTIONS, "b1": np.full(6, 3e38, np.float32)}
    model = _case("relu", **constants)
    with pytest.raises(StageError) as caught:
        equalize(model, {}, Scaling(writers={"weighted"}))
    assert caught.value.faults[0].where == "Conv_t"


STEPS = (
    "{o} = Relu({a})",
    "{o} = LeakyRelu({a})",
    "{o} = Clip({a}, zero)",
    "{o} = Sigmoid({a})",
    "{o} = HardSwish({a})",
    "{o} = Add({a}, {b})",
    "{o} = Sub({a}, {b})",
    "{o} = Sub(channels, {a})",
    "{o} = Add({a}, row)",
    "{o} = Mul({a}, {b})",
    "{o} = Div({a}, channels)",
    "{o} = Conv<pads=[1,1,1,1]>({a}, w3, b4)",
    "{o} = Conv({a}, w1, b4)",
    "{o} = Conv<group=4>({a}, wd, b4)",
    "{o} = Conv<group=2>({a}, wg, b4)",
    "{o} = ConvTranspose<group=2,pads=[1,1,1,1]>({a}, wt, b4)",
    "{o} = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>({a})",
    "{o} = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>({a})",
    "{i}p, {i}q = Split<axis=1>({a}, halves) {o} = Concat<axis=1>({i}q, {i}p)",
    "{i}p = Slice({a}, one, four, one) {i}q = Slice({b}, zero_, one, one) {o} = Concat<axis=1>({i}p, {i}q)",
    "{i}p = Concat<axis=2>({a}, {b}) {i}q = Pad({i}p, around) {o} = Slice({i}q, one, seven, two_)",
    "{i}p = Transpose<perm=[0,2,3,1]>({a}) {i}q = MatMul({i}p, w) {o} = Transpose<perm=[0,3,1,2]>({i}q)",
    """{i}p = Transpose<perm=[0,2,3,1]>({a}) {i}q = LayerNormalization({i}p, g, b4)
    {i}r = Reshape({i}q, rows) {i}s = Reshape({i}r, back) {o} = Transpose<perm=[0,3,1,2]>({i}s)""",
    "{i}p = GlobalAveragePool({a}) {i}q = HardSigmoid({i}p) {o} = Mul({b}, {i}q)",
    "{i}p = ReduceMean<keepdims=0>({a}, two_) {i}q = Unsqueeze({i}p, two_) {o} = Add({i}q, {a})",
    "{i}p = Gather<axis=2>({a}, order) {o} = Resize<mode=\"nearest\">({i}p, , ones)",
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 5), st.integers(0, 5)), max_size=9))
def test_random_graphs_keep_their_bits(steps: list[tuple[int, int, int]]) -> None:
    made, body = ["start"], ["start = Conv(x, w0, b4)"]
    for number, (step, first, second) in enumerate(steps):
        a, b = made[-1 - first % len(made)], made[-1 - second % len(made)]
        body.append(STEPS[step].format(a=a, b=b, o=f"t{number}", i=f"i{number}"))
        made.append(f"t{number}")
    body.append(f"y = Conv({made[-1]}, w1, b4)")
    model = build(
        "float[1,2,6,6] x => float[1,4,6,6] y", "\n".join(body),
        w0=spread(4, 2, 1, 1), b4=spread(4), w1=spread(4, 4, 1, 1), w3=spread(4, 4, 3, 3), wd=spread(4, 1, 1, 1),
        wg=spread(4, 2, 1, 1), wt=spread(4, 2, 3, 3), w=spread(4, 4), g=spread(4, seed=3), zero=scalar(0),
        channels=spread(1, 4, 1, 1), row=normal(6), halves=integers(2, 2), one=integers(1), four=integers(4),
        zero_=integers(0), seven=integers(7), two_=integers(2), around=integers(0, 0, 0, 0, 0, 0, 1, 0),
        rows=integers(36, 4), back=integers(1, 6, 6, 4), order=integers(5, 4, 3, 2, 1, 0), ones=floats(1, 1, 1, 1),
    )  # fmt: skip
    _equalized(model)
