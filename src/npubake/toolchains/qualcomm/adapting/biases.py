"""Qualcomm toolchain: biases beside 16-bit activations, as the HTP adds them up. numpy in, numpy out; no onnx.

With weights of 8 or 4 bits it sums in steps of 256 (QNN 2.51.0, v73 and v75): the sum of products is rounded down to
one, half a step too low in the mean, and the bias is cut towards zero to one. Where a channel's weights are coarse
beside its output that is seen: 17 steps of 16 bits of a text recogniser's first depthwise layer, 49 dB beside its QDQ
model. (tests/qualcomm/test_biases.py)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NARROW = ("int8", "int4")  # types of weights
_STEP = 256
_MOST = 2**31 - 2 * _STEP  # whole steps of an int32, and room for half a one


def summed_bias(codes: NDArray[np.int32], *, computed: bool) -> NDArray[np.int32]:
    """The codes to ask for: the nearest whole steps to bias + 128, which makes good what the sums lose, and half a step
    more, away from zero, which is cut (of whole steps the HTP takes one less now and then). computed: what those are
    worth, 128 less than whole steps.
    """
    wanted = codes.astype(np.int64) + _STEP // 2
    whole = np.clip(np.rint(wanted / _STEP).astype(np.int64) * _STEP, -_MOST, _MOST)
    made = whole - _STEP // 2 if computed else whole + np.sign(whole) * (_STEP // 2)
    return made.astype(np.int32)
