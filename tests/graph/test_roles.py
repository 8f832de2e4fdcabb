"""graph.roles: parts of layers, read off the graph alone."""

from __future__ import annotations

import onnx

from npubake.graph.roles import roles_of
from npubake.graph.summarising import summarise
from tests.graph.networks import detector
from tests.graph.writing import build, floats, integers, normal, scalar


def _players(model: onnx.ModelProto) -> dict[str, set[str]]:
    """Role -> first outputs of the groups' anchors (nodes are called after them)."""
    played: dict[str, set[str]] = {}
    for group, roles in roles_of(summarise(model, ())).items():
        for role in roles:
            played.setdefault(role, set()).add(group.split("_", 1)[1])
    return played


def test_a_transformer_block_with_its_residual_stream() -> None:
    """Separate projections with bias and mask; the post-projection residual Add is no part of the attention."""
    model = build(
        "float[1,4,8] x => float[1,4,3] y",
        """
        n = LayerNormalization<axis=-1>(x, g, b)
        q = MatMul(n, wq) qb = Add(q, b) k = MatMul(n, wk) v = MatMul(n, wv)
        qh = Reshape(qb, heads) qt = Transpose<perm=[0,2,1,3]>(qh) qs = Mul(qt, half)
        kh = Reshape(k, heads) kt = Transpose<perm=[0,2,3,1]>(kh)
        vh = Reshape(v, heads) vt = Transpose<perm=[0,2,1,3]>(vh)
        s = MatMul(qs, kt) masked = Add(s, mask) p = Softmax<axis=-1>(masked)
        o = MatMul(p, vt) ot = Transpose<perm=[0,2,1,3]>(o) oh = Reshape(ot, rows)
        proj = MatMul(oh, wo) r = Add(x, proj)
        m = LayerNormalization<axis=-1>(r, g, b)
        up = MatMul(m, w1) upb = Add(up, b1) act = Gelu(upb) down = MatMul(act, w2) r2 = Add(r, down)
        y = MatMul(r2, wy)
        """,
        g=floats(*[1] * 8), b=normal(8), wq=normal(8, 8), wk=normal(8, 8), wv=normal(8, 8), wo=normal(8, 8),
        heads=integers(1, 4, 2, 4), rows=integers(1, 4, 8), half=scalar(0.5), mask=normal(1, 1, 4, 4),
        w1=normal(8, 16), b1=normal(16), w2=normal(16, 8), wy=normal(8, 3),
    )  # fmt: skip
    assert _players(model) == {
        "first_layer": {"q", "k", "v"},
        "query": {"q"},
        "key": {"k"},
        "value": {"v"},
        "attention_output": {"proj"},
        "norm_adjacent": {"q", "k", "v", "proj", "up"},
        "ffn": {"up", "down"},
        "last_layer": {"y"},
        "head": {"y"},
    }


def test_one_projection_for_three_and_a_gated_ffn() -> None:
    """A fused QKV with turned heads (RoPE: a * cos + b * sin), then SwiGLU, as decoders have them."""
    model = build(
        "float[1,4,8] x => float[1,4,8] y",
        """
        qkv = MatMul(x, w) q, k, v = Split<axis=2>(qkv, eights)
        q1 = Mul(q, cos) qf, qr = Split<axis=2>(q, fours) qn = Neg(qr) qh = Concat<axis=2>(qn, qf) q2 = Mul(qh, sin)
        turned = Add(q1, q2) kt = Transpose<perm=[0,2,1]>(k) s = MatMul(turned, kt) sc = Div(s, two)
        p = Softmax<axis=-1>(sc) o = MatMul(p, v) proj = MatMul(o, wo) r = Add(x, proj)
        gate = MatMul(r, wg) sg = Sigmoid(gate) act = Mul(gate, sg) up = MatMul(r, wu) both = Mul(act, up)
        down = MatMul(both, wd) y = Add(r, down)
        """,
        w=normal(8, 24), eights=integers(8, 8, 8), fours=integers(4, 4), cos=normal(1, 4, 8), sin=normal(1, 4, 8),
        two=scalar(2), wo=normal(8, 8), wg=normal(8, 12), wu=normal(8, 12, seed=1), wd=normal(12, 8),
    )  # fmt: skip
    players = _players(model)
    assert players["query"] == players["key"] == players["value"] == {"qkv"}
    assert players["attention_output"] == {"proj"}
    assert players["ffn"] == {"gate", "up", "down"}


def test_a_classifiers_own_layers_are_no_ffn_and_a_softmax_at_the_end_no_attention() -> None:
    model = build(
        "float[1,8] x => float[1,3] y",
        "a = Gemm(x, w1, b1) r = Relu(a) c = Gemm(r, w2, b2) y = Softmax(c)",
        w1=normal(8, 6), b1=normal(6), w2=normal(6, 3), b2=normal(3),
    )  # fmt: skip
    assert _players(model) == {"first_layer": {"a"}, "last_layer": {"c"}, "head": {"c"}}


def test_a_detector_has_as_many_last_layers_as_levels() -> None:
    players = _players(detector())
    assert players["first_layer"] == {"c1"}
    assert players["last_layer"] == players["head"] == {"h8", "h4"}
    assert not {"query", "ffn"} & players.keys()


def test_the_head_of_several_branches_starts_where_they_part() -> None:
    """x -> trunk -> (a -> box, c -> score): a and c serve one output each."""
    model = build(
        "float[1,2,4,4] x => float[1,2,4,4] box, float[1,2,4,4] score",
        "t = Conv(x, w, b) a = Conv(t, w, b) box = Conv(a, w, b) c = Conv(t, w, b) score = Conv(c, w, b)",
        w=normal(2, 2, 1, 1), b=normal(2),
    )  # fmt: skip
    players = _players(model)
    assert players["head"] == {"a", "box", "c", "score"}
    assert (players["first_layer"], players["last_layer"]) == ({"t"}, {"box", "score"})


def test_two_towers_are_no_heads() -> None:
    model = build(
        "float[1,2,4,4] x, float[1,2,4,4] z => float[1,2,4,4] y, float[1,2,4,4] o",
        "t = Conv(x, w, b) y = Conv(t, w, b) u = Conv(z, w, b) o = Conv(u, w, b)",
        w=normal(2, 2, 1, 1), b=normal(2),
    )  # fmt: skip
    players = _players(model)
    assert players["head"] == players["last_layer"] == {"y", "o"}
    assert players["first_layer"] == {"t", "u"}


def test_features_that_leave_the_graph_on_the_way_are_a_head_too() -> None:
    model = build(
        "float[1,2,4,4] x => float[1,2,4,4] features, float[1,2,4,4] y",
        "t = Conv(x, w, b) features = Relu(t) y = Conv(features, w, b)",
        w=normal(2, 2, 1, 1), b=normal(2),
    )  # fmt: skip
    assert _players(model)["head"] == {"t", "y"}
