"""Small graphs of products, spelt in the ways that exporters differ: sides, batches, equations. As ``cases``."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from tests.graph.writing import build, normal, scalar

# name -> (shape of x, shape of the constant, which of them comes first, shape of the result)
FACTORS: dict[str, tuple[str, tuple[int, ...], str, str]] = {
    "constant matrix first": ("4,6", (5, 4), "w, x", "5,6"),
    "constant matrix first, in a batch": ("2,3,4,6", (5, 4), "w, x", "2,3,5,6"),
    "constant batch first": ("3,4,6", (3, 5, 4), "w, x", "3,5,6"),
    "constant batch second": ("2,3,4,6", (3, 6, 5), "x, w", "2,3,4,5"),
    "constant batch of one second": ("4,6", (1, 1, 6, 5), "x, w", "1,1,4,5"),
    "constant batch widens": ("1,4,6", (3, 6, 5), "x, w", "3,4,5"),
    "both batches widen": ("2,1,4,6", (3, 6, 5), "x, w", "2,3,4,5"),
    "constant vector second": ("2,4,6", (6,), "x, w", "2,4"),
    "constant vector first": ("2,4,6", (4,), "w, x", "2,6"),
    "constant matrix times vector": ("6", (5, 6), "w, x", "5"),
    "vector times constant batch": ("6", (2, 6, 5), "x, w", "2,5"),
}
# equation, shapes of the operands (w: a constant), shape of the result
EINSUMS: dict[str, tuple[str, dict[str, str], str]] = {
    "einsum, linear": ("bik,kj->bij", {"x": "2,4,6", "w": "6,5"}, "2,4,5"),
    "einsum, weight first": ("oc,bchw->bohw", {"w": "5,3", "x": "2,3,4,6"}, "2,5,4,6"),
    "einsum, heads": ("bhid,bhjd->bhij", {"x": "2,3,4,6", "z": "2,3,5,6"}, "2,3,4,5"),
    "einsum, heads behind": ("bihd,bjhd->bhij", {"x": "2,4,3,6", "z": "2,5,3,6"}, "2,3,4,5"),
    "einsum, two summed": ("bhwc,hwcf->bf", {"x": "2,3,4,5", "w": "3,4,5,6"}, "2,6"),
    "einsum, relative position": ("bhwc,hkc->bhwk", {"x": "2,3,4,5", "w": "3,6,5"}, "2,3,4,6"),
    "einsum, a scale": ("bij,j->bij", {"x": "2,4,6", "w": "6"}, "2,4,6"),
    "einsum, outer": ("i,j->ij", {"x": "4", "z": "5"}, "4,5"),
    "einsum, a row of each": ("ij,jk->k", {"x": "4,6", "w": "6,5"}, "5"),
    "einsum, transposed": ("bij->bji", {"x": "2,4,6"}, "2,6,4"),
    "einsum, a sum": ("bij->j", {"x": "2,4,6"}, "6"),
    "einsum, as it is": ("ij->ij", {"x": "4,6"}, "4,6"),
    "einsum, an ellipsis": ("...ik,...kj->...ij", {"x": "2,3,4,6", "z": "2,1,6,5"}, "2,3,4,5"),
    "einsum, an ellipsis of unlike length": ("...k,jk->...j", {"x": "2,3,4", "w": "5,4"}, "2,3,5"),
    "einsum, no arrow": ("ik,kj", {"x": "4,6", "w": "6,5"}, "4,5"),
    "einsum, three": ("bi,ij,bj->b", {"x": "3,4", "w": "4,6", "z": "3,6"}, "3"),
    "einsum, all summed": ("ij,ij->", {"x": "4,6", "w": "4,6"}, ""),
}


def _factor(name: str) -> Callable[[], onnx.ModelProto]:
    shape, constant, operands, result = FACTORS[name]
    signature = f"float[{shape}] x => float[{result}] y"
    return lambda: build(signature, f"y = MatMul({operands})", w=normal(*constant))


def _einsum(name: str) -> Callable[[], onnx.ModelProto]:
    equation, shapes, result = EINSUMS[name]
    inputs = ", ".join(f"float[{shape}] {tensor}" for tensor, shape in shapes.items() if tensor != "w")
    constants = {"w": normal(*map(int, shapes["w"].split(",")))} if "w" in shapes else {}
    body = f'y = Einsum<equation="{equation}">({", ".join(shapes)})'
    return lambda: build(f"{inputs} => float[{result}] y", body, **constants)


SPELLINGS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: _factor(name) for name in FACTORS},
    **{name: _einsum(name) for name in EINSUMS},
}
# Those that every pass is run over; ``test_products`` runs the two passes whose work they are over all of them.
SHOWN_FACTORS = ("constant matrix first", "constant batch second")
SHOWN_EINSUMS = ("einsum, weight first", "einsum, heads behind")
PRODUCTS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: SPELLINGS[name] for name in (*SHOWN_FACTORS, *SHOWN_EINSUMS)},
    "einsum, a diagonal": lambda: build("float[4,4] x => float[4] y", 'y = Einsum<equation="ii->i">(x)'),
    "einsum of integers": lambda: build(
        "int32[4,6] x, int32[6,5] z => int32[4,5] y", 'y = Einsum<equation="ij,jk->ik">(x, z)'
    ),
    "gemm of two inputs": lambda: build(
        "float[5,2] x, float[7,5] z, float[7] c => float[2,7] y",
        "y = Gemm<alpha=0.5, beta=3.0, transA=1, transB=1>(x, z, c)",
    ),
    "gemm of a constant and an input": lambda: build(
        "float[5,7] x => float[2,7] y", "y = Gemm<alpha=0.5>(w, x, c)", w=normal(2, 5), c=scalar(0.25)
    ),
    "conv of two inputs": lambda: build(
        "float[2,4,6,7] x, float[6,2,3,2] z, float[6] c => float[2,6,3,6] y",
        "y = Conv<group=2, strides=[2,1], pads=[1,0,0,1], dilations=[1,2]>(x, z, c)",
    ),
    "conv of a computed bias": lambda: build(
        "float[1,3,4] x, float[5] c => float[1,5,4] y", "y = Conv(x, w, c)", w=normal(5, 3, 1)
    ),
    "conv of a large window": lambda: build(
        "float[1,2,10,10] x, float[1,2,9,9] z => float[1,1,2,2] y", "y = Conv(x, z)"
    ),
    "gemm of doubles": lambda: build(
        "double[2,5] x, double[5,7] z => double[2,7] y", "y = Gemm<alpha=0.5>(x, z)"
    ),
}  # fmt: skip
