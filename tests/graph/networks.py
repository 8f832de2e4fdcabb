"""Larger graphs: the shapes of real networks with random weights, as ONNX text."""

from __future__ import annotations

import onnx

from tests.graph.writing import build, floats, integers, normal, scalar


def detector() -> onnx.ModelProto:
    """A YOLO-like graph: SiLU convolutions, Split, residual Add, SPP pools, nearest Resize, Concat, two outputs."""
    return build(
        "float[1,3,32,32] images => float[1,4,80] boxes, float[1,2,80] scores",
        """
        c1 = Conv<pads=[1,1,1,1],strides=[2,2]>(images, w1, b1) s1 = Sigmoid(c1) a1 = Mul(c1, s1)
        c2 = Conv<pads=[1,1,1,1],strides=[2,2]>(a1, w2, b2) s2 = Sigmoid(c2) a2 = Mul(c2, s2)
        left, right = Split<axis=1>(a2, halves)
        c3 = Conv<pads=[1,1,1,1]>(right, w3, b3) s3 = Sigmoid(c3) a3 = Mul(c3, s3) r3 = Add(right, a3)
        k3 = Concat<axis=1>(left, right, r3)
        c4 = Conv<pads=[1,1,1,1],strides=[2,2]>(k3, w4, b4) s4 = Sigmoid(c4) a4 = Mul(s4, c4)
        m1 = MaxPool<kernel_shape=[5,5],pads=[2,2,2,2]>(a4) m2 = MaxPool<kernel_shape=[5,5],pads=[2,2,2,2]>(m1)
        spp = Concat<axis=1>(a4, m1, m2)
        up = Resize<mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor">(spp, , scales)
        neck = Concat<axis=1>(up, k3)
        h8 = Conv(neck, w5, b5) h4 = Conv(spp, w6, b6)
        f8 = Reshape(h8, flat) f4 = Reshape(h4, flat) all = Concat<axis=2>(f8, f4)
        box = Slice(all, zero, four, one) raw = Slice(all, four, six, one)
        near, far = Split<axis=1>(box, twos)
        low = Sub(anchors, near) high = Add(anchors, far) sum = Add(low, high) middle = Div(sum, two)
        size = Sub(high, low) joined = Concat<axis=1>(middle, size) boxes = Mul(joined, strides)
        scores = Sigmoid(raw)
        """,
        w1=normal(8, 3, 3, 3), b1=normal(8), w2=normal(8, 8, 3, 3), b2=normal(8), halves=integers(4, 4),
        w3=normal(4, 4, 3, 3), b3=normal(4), w4=normal(8, 12, 3, 3), b4=normal(8), scales=floats(1, 1, 2, 2),
        w5=normal(6, 36, 1, 1), b5=normal(6), w6=normal(6, 24, 1, 1), b6=normal(6), flat=integers(1, 6, -1),
        zero=integers(0), four=integers(4), six=integers(6), one=integers(1), twos=integers(2, 2), two=scalar(2),
        anchors=normal(1, 2, 80, scale=5), strides=floats(*[4.0] * 64, *[8.0] * 16).reshape(1, 1, 80),
    )  # fmt: skip
