"""One small graph for each thing that a pass does, and for what it declines. Name -> a function that makes the model.

``CHANGED_BY`` says which pass must find work in a case; the contract suite runs every pass over every case.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from tests.graph.product_cases import PRODUCTS, SHOWN_EINSUMS, SHOWN_FACTORS
from tests.graph.writing import build, floats, integers, normal, scalar

IMAGE = "float[1,3,8,8] x => float[1,4,8,8] y"
PADS = "pads=[1,1,1,1]"


def _conv_bn() -> onnx.ModelProto:
    return build(
        IMAGE,
        f"t = Conv<{PADS}>(x, w, b) y = BatchNormalization<epsilon=0.001>(t, gamma, beta, mean, variance)",
        w=normal(4, 3, 3, 3), b=normal(4), gamma=floats(1, -2, 0.5, 3), beta=normal(4, seed=1),
        mean=normal(4, seed=2), variance=floats(0.5, 2, 1e-4, 9),
    )  # fmt: skip


def _conv_transpose_bn() -> onnx.ModelProto:
    return build(
        "float[1,4,5,5] x => float[1,6,10,10] y",
        "t = ConvTranspose<group=2, strides=[2,2], kernel_shape=[2,2]>(x, w)"
        " y = BatchNormalization(t, gamma, beta, mean, variance)",
        w=normal(4, 3, 2, 2), gamma=normal(6, seed=3) + 1, beta=normal(6, seed=1), mean=normal(6, seed=2),
        variance=np.abs(normal(6, seed=4)) + np.float32(0.1),
    )  # fmt: skip


def _gemm_bn(transposed: int) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        weight = normal(5, 7)
        return build(
            "float[2,5] x => float[2,7] y",
            f"t = Gemm<transB={transposed}>(x, w, b) y = BatchNormalization(t, gamma, beta, mean, variance)",
            w=weight.T.copy() if transposed else weight, b=normal(7), gamma=normal(7, seed=3) + 1,
            beta=normal(7, seed=1), mean=normal(7, seed=2), variance=np.abs(normal(7, seed=4)) + np.float32(0.1),
        )  # fmt: skip

    return make


def _lone_bn() -> onnx.ModelProto:
    return build(
        "float[1,4,6,6] x => float[1,4,6,6] y",
        "r = Relu(x) y = BatchNormalization(r, gamma, beta, mean, variance)",
        gamma=floats(1, -2, 0.5, 3), beta=normal(4), mean=normal(4, seed=2), variance=floats(0.5, 2, 1, 9),
    )  # fmt: skip


def _shared_bn() -> onnx.ModelProto:
    return build(
        "float[1,3,8,8] x => float[1,4,8,8] y, float[1,4,8,8] t",
        f"t = Conv<{PADS}>(x, w, b) y = BatchNormalization(t, gamma, beta, mean, variance)",
        w=normal(4, 3, 3, 3), b=normal(4), gamma=floats(1, -2, 0.5, 3), beta=normal(4, seed=1),
        mean=normal(4, seed=2), variance=floats(0.5, 2, 1, 9),
    )  # fmt: skip


def _layer_norm(square: str) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        return build(
            "float[2,5,16] x => float[2,5,16] y",
            f"m = ReduceMean(x, axes) d = Sub(x, m) d2 = Sub(x, m) q = {square} v = ReduceMean(q, axes)"
            " s = Add(v, eps) r = Sqrt(s) n = Div(d, r) g = Mul(n, gamma) y = Add(g, beta)",
            axes=integers(-1), eps=scalar(1e-5), two=scalar(2), gamma=normal(16) + 1, beta=normal(16, seed=1),
        )  # fmt: skip

    return make


def _layer_norm_wrong_axis() -> onnx.ModelProto:
    return build(
        "float[2,16,16] x => float[2,16,16] y",
        "m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, axes)"
        " s = Add(v, eps) r = Sqrt(s) n = Div(d, r) g = Mul(n, gamma) y = Add(g, beta)",
        axes=integers(1), eps=scalar(1e-5), gamma=normal(16) + 1, beta=normal(16, seed=1),
    )  # fmt: skip


def _gelu(body: str) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        return build(
            "float[2,9] x => float[2,9] y", body,
            root=scalar(1.41421354), inverse=scalar(0.70710677), one=scalar(1), half=scalar(0.5),
        )  # fmt: skip

    return make


def _hard_swish(body: str) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        return build(
            "float[2,30] x0 => float[2,30] y", "x = Mul(x0, four) " + body,
            four=scalar(4), three=scalar(3), zero=scalar(0), six=scalar(6), sixth=scalar(1 / 6),
        )  # fmt: skip

    return make


def _mask(constant: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        return build(
            "float[1,6,8] x => float[1,6,8] y",
            "q = MatMul(x, wq) xt = Transpose<perm=[0,2,1]>(x) s = MatMul(q, xt) a = Add(s, mask)"
            " p = Softmax<axis=-1>(a) y = MatMul(p, x)",
            wq=normal(8, 8), mask=constant,
        )  # fmt: skip

    return make


def _computed_mask() -> onnx.ModelProto:
    return build(
        "float[2,4,6] x, int64[2,6] attention => float[2,4,6] y",
        "f = Cast<to=1>(attention) u = Unsqueeze(f, axis) n = Sub(one, u) m = Mul(n, low) a = Add(x, m)"
        " p = Softmax<axis=-1>(a) b = Add(p, m0) y = Softmax<axis=-1>(b)",
        axis=integers(1), one=scalar(1), low=scalar(float(np.finfo(np.float32).min)), m0=normal(6),
    )  # fmt: skip


def _where_mask() -> onnx.ModelProto:
    return build(
        "float[2,4,6] x, bool[2,1,6] hidden => float[2,4,6] y",
        "m = Where(hidden, x0, low) a = Add(x, m) y = Softmax<axis=-1>(a)",
        x0=scalar(0), low=scalar(-1e9),
    )  # fmt: skip


def _shapes() -> onnx.ModelProto:
    return build(
        "float[1,6,4,4] x => float[1,2,3,16] y",
        "s = Shape(x) n = Gather(s, zero) c = Gather(s, one) h = Div(c, two) k = Concat<axis=0>(n, two, h, rest)"
        " e = Exp(base) f = MatMul(left, right) r = Reshape(x, k) t = Mul(r, e) y = Add(t, f)",
        zero=integers(0), one=integers(1), two=integers(2), rest=integers(-1), base=normal(1, 16),
        left=normal(3, 5), right=normal(5, 16),
    )  # fmt: skip


_SHARED = {"w": normal(3, 3, 3, 3), "b": normal(3)}
_ROW_MASK = np.zeros((6, 6), dtype=np.float32)
_ROW_MASK[2] = -3e38
_COLUMN_MASK = np.zeros((6, 6), dtype=np.float32)
_COLUMN_MASK[:, 4:] = np.finfo(np.float32).min

CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "fold shapes, exp, product": _shapes,
    "identities": lambda: build(
        "float[1,4,6,6] x => float[1,4,6,6] y, float[1,4,6,6] z",
        "a = Identity(x) b = Dropout(a) c = Relu(b) d = Reshape(c, same) e = Transpose<perm=[0,1,2,3]>(d)"
        " f = Add(e, nothing) g = Mul(one, f) h = Cast<to=1>(g) i = Pad(h, pads) j = Concat<axis=1>(i)"
        " k = Relu(j) y = Identity(k) l = Clip(x) m = MaxPool<kernel_shape=[1,1]>(l) z = Abs(m)",
        same=integers(0, 4, 6, 6), nothing=scalar(0), one=scalar(1), pads=integers(0, 0, 0, 0, 0, 0, 0, 0),
    ),
    "identity from input to output": lambda: build("float[2,3] x => float[2,3] y", "y = Identity(x)"),
    "resize that shifts": lambda: build(
        "float[1,1,4,4] x => float[1,1,4,4] y", 'y = Resize<mode="linear">(x, , scales)', scales=floats(1, 1, 1.2, 1.2)
    ),
    "slice backwards": lambda: build(
        "float[2,5] x => float[2,5] y", "y = Slice(x, start, end, axis, step)",
        start=integers(-1), end=integers(-9), axis=integers(1), step=integers(-1),
    ),
    "broadcasting zero": lambda: build("float[1,5] x => float[4,5] y", "y = Add(x, zeros)", zeros=normal(4, 5) * 0),
    "sums": lambda: build(
        "float[2,5] a, float[2,5] b, float[1,5] c => float[2,5] y", "t = Sum(a, b, c) u = Sum(t) y = Relu(u)"
    ),
    "pad into conv": lambda: build(
        IMAGE, "p = Pad(x, pads) y = Conv<pads=[0,1,0,1]>(p, w, b)",
        pads=integers(0, 0, 1, 0, 0, 0, 1, 0), w=normal(4, 3, 3, 3), b=normal(4),
    ),
    "pad into average": lambda: build(
        "float[1,3,8,8] x => float[1,3,4,4] y", "p = Pad(x, pads) y = AveragePool<kernel_shape=[3,3],strides=[2,2]>(p)",
        pads=integers(0, 0, 1, 1, 0, 0, 0, 0),
    ),
    "pad into max": lambda: build(
        "float[1,3,8,8] x => float[1,3,8,8] y", "r = Relu(x) p = Pad(r, pads) y = MaxPool<kernel_shape=[3,3]>(p)",
        pads=integers(0, 0, 1, 1, 0, 0, 1, 1),
    ),
    "pad into max, negative values": lambda: build(
        "float[1,3,8,8] x => float[1,3,8,8] y",
        "n = Softplus(x) r = Neg(n) p = Pad(r, pads) y = MaxPool<kernel_shape=[3,3]>(p)",
        pads=integers(0, 0, 1, 1, 0, 0, 1, 1),
    ),
    "pad by another value": lambda: build(
        IMAGE, "p = Pad(x, pads, value) y = Conv(p, w, b)",
        pads=integers(0, 0, 1, 1, 0, 0, 1, 1), value=scalar(0.5), w=normal(4, 3, 3, 3), b=normal(4),
    ),
    "gemm, every part": lambda: build(
        "float[5,2] x => float[2,7] y", "y = Gemm<alpha=0.5, beta=4.0, transA=1, transB=1>(x, w, b)",
        w=normal(7, 5), b=normal(1, 7),
    ),
    "gemm, rows of bias": lambda: build(
        "float[2,5] x => float[2,7] y", "y = Gemm<beta=2.0>(x, w, b)", w=normal(5, 7), b=normal(2, 7)
    ),
    "gemm, a column of bias": lambda: build(
        "float[2,5] x => float[2,7] y", "y = Gemm<beta=2.0>(x, w, b)", w=normal(5, 7), b=normal(2, 1)
    ),
    "gemm, computed bias": lambda: build(
        "float[2,5] x, float[1,7] c => float[2,7] y", "y = Gemm<beta=-0.5>(x, w, c)", w=normal(5, 7)
    ),
    **PRODUCTS,
    "empty parts": lambda: build(
        "float[2,5] x => float[2,5] y",
        "a, e = Split<axis=1>(x, sizes) r = Relu(e) c = Concat<axis=1>(r, a) y = Sigmoid(c)", sizes=integers(5, 0),
    ),
    "results that nobody reads": lambda: build(
        "float[1,2,4,6] x => float[1,2,2,6] y",
        "m, i = MaxPool<kernel_shape=[3,1]>(x) y, mean, inverse = LayerNormalization(m, gamma)",
        gamma=normal(6) + 1,
    ),
    "sums of nothing": lambda: build(
        "float[2,5] x => float[2,5] y",
        "n = Slice(x, zero, zero, one) p = MatMul(n, w) q = ReduceSum(n, one) s = Add(p, q) y = Add(s, x)",
        zero=integers(0), one=integers(1), w=normal(0, 5),
    ),
    "an output without elements": lambda: build(
        "float[2,5] x => float[2,0] e, float[2,5] y", "e = Slice(x, five, five, one) y = Relu(x)",
        five=integers(5), one=integers(1),
    ),
    "casts like another tensor": lambda: build(
        "float[2,5] x => float[2,5] y", "c = CastLike(k, x) r = CastLike(x, c) y = Mul(r, c)", k=integers(3)
    ),
    "maxima, rounded up": lambda: build(
        "float[1,2,6,7] x => float[1,2,3,3] y", "y = MaxPool<kernel_shape=[3,3],strides=[2,3],ceil_mode=1>(x)"
    ),
    "averages that leave padding out": lambda: build(
        "float[1,2,6,5] x => float[1,2,6,5] y", "y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)"
    ),
    "averages, rounded up": lambda: build(
        "float[1,2,6,6] x => float[1,2,3,3] y", "y = AveragePool<kernel_shape=[3,3],strides=[2,2],ceil_mode=1>(x)"
    ),
    "averages of padding, rounded up": lambda: build(
        "float[1,2,6,6] x => float[1,2,4,4] y",
        "y = AveragePool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1],ceil_mode=1,count_include_pad=1>(x)"
    ),
    "conv and batch norm": _conv_bn,
    "transposed conv and batch norm": _conv_transpose_bn,
    "gemm and batch norm": _gemm_bn(0),
    "transposed gemm and batch norm": _gemm_bn(1),
    "batch norm alone": _lone_bn,
    "batch norm of an output": _shared_bn,
    "layer norm, pow": _layer_norm("Pow(d2, two)"),
    "layer norm, mul": _layer_norm("Mul(d, d)"),
    "layer norm over channels": _layer_norm_wrong_axis,
    "gelu, div": _gelu("d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)"),
    "gelu, mul": _gelu("d = Mul(inverse, x) e = Erf(d) a = Add(one, e) h = Mul(x, half) y = Mul(h, a)"),
    "gelu, half first": _gelu("d = Div(x, root) e = Erf(d) a = Add(e, one) h = Mul(half, a) y = Mul(x, h)"),
    "erf alone": _gelu("d = Div(x, root) e = Erf(d) y = Add(e, one)"),
    "hard sigmoid": _hard_swish("h = HardSigmoid<alpha=0.16666667, beta=0.5>(x) y = Mul(x, h)"),
    "hard sigmoid of another slope": _hard_swish("h = HardSigmoid<alpha=0.2, beta=0.5>(x) y = Mul(x, h)"),
    "clip, product, division": _hard_swish("p = Add(x, three) c = Clip(p, zero, six) m = Mul(x, c) y = Div(m, six)"),
    "clip, division, product": _hard_swish("p = Add(three, x) c = Clip(p, zero, six) d = Div(c, six) y = Mul(x, d)"),
    "clip, sixth, product": _hard_swish("p = Add(x, three) c = Clip(p, zero, six) d = Mul(c, sixth) y = Mul(d, x)"),
    "division by constants": lambda: build(
        "float[2,3] x => float[2,3] y", "y = Div(x, c)", c=floats(3, 0.25, -7)
    ),
    "division by zero": lambda: build("float[2,3] x => float[2,3] y", "a = Div(x, c) y = Atan(a)", c=floats(1, 0, 2)),
    "conv times scalar": lambda: build(
        IMAGE, f"t = Conv<{PADS}>(x, w, b) u = Mul(t, k) y = Mul(u, k2)",
        w=normal(4, 3, 3, 3), b=normal(4), k=scalar(50), k2=floats(0.125),
    ),
    "conv times channels plus channels": lambda: build(
        IMAGE, f"t = Conv<{PADS}>(x, w) u = Mul(k, t) v = Sub(d, u) y = Relu(v)",
        w=normal(4, 3, 3, 3), k=normal(4, 1, 1), d=normal(1, 4, 1, 1),
    ),
    "conv times zero": lambda: build(
        IMAGE, f"t = Conv<{PADS}>(x, w, b) y = Mul(t, k)", w=normal(4, 3, 3, 3), b=normal(4), k=scalar(0)
    ),
    "conv times rows": lambda: build(
        IMAGE, f"t = Conv<{PADS}>(x, w, b) y = Mul(t, k)", w=normal(4, 3, 3, 3), b=normal(4), k=normal(8, 1)
    ),
    "mask": _mask(_COLUMN_MASK),
    "mask that hides a row": _mask(_ROW_MASK),
    "mask from inputs": _computed_mask,
    "mask by where": _where_mask,
    "no bias": lambda: build(IMAGE, f"y = Conv<{PADS}>(x, w)", w=normal(4, 3, 3, 3)),
    "shared weight and bias": lambda: build(
        "float[1,3,8,8] x => float[1,3,8,8] y",
        f"b0 = Conv<{PADS}>(x, w, b) r = Relu(b0) y = Conv<{PADS}>(r, w, b)", **_SHARED,
    ),
}  # fmt: skip

CHANGED_BY: dict[str, tuple[str, ...]] = {
    "fold_constants": ("fold shapes, exp, product", "casts like another tensor"),
    "eliminate_identities": ("identities", "casts like another tensor"),
    "replace_sums": ("sums",),
    "fold_pad": ("pad into conv", "pad into average", "pad into max"),
    "normalise_gemm": (
        "gemm, every part",
        "gemm, rows of bias",
        "gemm, a column of bias",
        "gemm, computed bias",
        "gemm of two inputs",
        "gemm of a constant and an input",
    ),
    "unfold_computed_convolutions": ("conv of two inputs", "conv of a computed bias"),
    "replace_einsums": SHOWN_EINSUMS,
    "place_constant_factors": SHOWN_FACTORS,
    "drop_unread_outputs": ("results that nobody reads",),
    "drop_empty_parts": ("empty parts", "sums of nothing"),
    "count_padding": ("averages that leave padding out", "averages, rounded up", "maxima, rounded up"),
    "fold_batch_normalization": (
        "conv and batch norm",
        "transposed conv and batch norm",
        "gemm and batch norm",
        "transposed gemm and batch norm",
    ),
    "replace_batch_normalization": ("batch norm alone",),
    "fuse_layer_normalization": ("layer norm, pow", "layer norm, mul"),
    "fuse_gelu": ("gelu, div", "gelu, mul", "gelu, half first"),
    "fuse_hard_swish": (
        "hard sigmoid",
        "clip, product, division",
        "clip, division, product",
        "clip, sixth, product",
    ),
    "replace_constant_divisions": ("division by constants",),
    "fold_affine": ("conv times scalar", "conv times channels plus channels"),
    "clamp_mask_constants": ("mask", "mask from inputs", "mask by where"),
    "add_bias": ("no bias",),
    "split_shared_initializers": ("shared weight and bias",),
}
DECLINED_BY: dict[str, tuple[str, ...]] = {
    "eliminate_identities": ("identity from input to output",),
    "fold_pad": ("pad into max, negative values", "pad by another value"),
    "normalise_gemm": ("gemm of doubles",),
    "unfold_computed_convolutions": ("conv of a large window",),
    "replace_einsums": ("einsum, a diagonal", "einsum of integers"),
    "drop_empty_parts": ("an output without elements",),
    "count_padding": ("averages of padding, rounded up",),
    "fold_batch_normalization": ("batch norm of an output",),
    "fuse_gelu": ("erf alone",),
    "replace_constant_divisions": ("division by zero",),
    "fold_affine": ("conv times zero",),
    "clamp_mask_constants": ("mask that hides a row",),
}
