"""Digests of what ``adapt`` makes of one small model with assumed ranges, in several lanes. A program: JSON on stdout.

Its nodes are those that adapting spells otherwise: a runtime input, SiLU on a small plane, a Clip, a nearest Resize,
MatMul of two computed tensors and with a bias, a normalisation, weights of 4 bits.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.metadata import version
from typing import Any

import onnx

from npubake.graph.model_file import serialise
from npubake.graph.summarising import summarise
from npubake.toolchains.qualcomm.adapting.assumed import assumed_adaptation
from tests.graph.writing import build, floats, integers, normal, scalar

LANES = ("a8w8", "a16w8", "w4a16", "a16w16")
TOOLS = ("numpy", "onnx", "protobuf")
RGB = {"type": "rgb", "channels": "rgb", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
BODY = """
c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w, b)
g = Sigmoid (c)
s = Mul (c, g)
d = Conv <kernel_shape = [3, 3], pads = [2, 2, 2, 2], dilations = [2, 2], group = 2> (s, w2, b2)
k = Clip (d, low, high)
u = Resize <mode = "nearest", coordinate_transformation_mode = "half_pixel"> (k, , scales)
p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (u)
r = Reshape (p, rows)
n = LayerNormalization <axis = -1> (r, factor, shift)
q = MatMul (n, w3)
a = Add (q, b3)
t = Transpose <perm = [0, 2, 1]> (a)
m = MatMul (n, t)
z = Softmax <axis = -1> (m)
y = MatMul (z, r)
"""


def model() -> onnx.ModelProto:
    """x [1, 3, 12, 12] -> y [1, 8, 144]."""
    return build(
        "float[1,3,12,12] x => float[1,8,144] y",
        BODY,
        w=normal(8, 3, 3, 3),
        b=normal(8),
        w2=normal(8, 4, 3, 3),
        b2=normal(8),
        low=scalar(-0.25),
        high=scalar(0.75),
        scales=floats(1, 1, 2, 2),
        rows=integers(1, 8, 144),
        factor=normal(144),
        shift=normal(144, seed=8),
        w3=normal(144, 144),
        b3=normal(144, seed=9),
    )


def digests() -> dict[str, dict[str, str]]:
    """Lane -> sha256 of each output's bytes, as the stage writes them."""
    made, source = {}, model()
    summary = summarise(source, ())
    for lane in LANES:
        adapted = assumed_adaptation(source, summary, {"lane": lane, "runtime_input": {"x": RGB}})
        record = json.dumps(adapted.record, sort_keys=True, indent=1, allow_nan=False) + "\n"
        written = {
            "model": serialise(adapted.model),
            "compilable": serialise(adapted.compilable),
            "record": record.encode("utf-8"),
        }
        made[lane] = {port: hashlib.sha256(data).hexdigest() for port, data in written.items()}
    return made


def facts() -> dict[str, Any]:
    return {"digests": digests(), "tools": {name: version(name) for name in TOOLS}}


if __name__ == "__main__":
    json.dump(facts(), sys.stdout)
