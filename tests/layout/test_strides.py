"""The vendor's own stride examples, and packing as a round trip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from npubake.errors import StageError
from npubake.layout.strides import MemoryRules, TensorLayout, align, pack, tensor_layout, unpack

J6E = MemoryRules(nv12_stride_bytes=32, tensor_unit_bytes=64)
J6B = MemoryRules(nv12_stride_bytes=32, tensor_unit_bytes=128)
J6P = MemoryRules(nv12_stride_bytes=64, tensor_unit_bytes=256)


@pytest.mark.parametrize(
    ("rules", "shape", "stride"),
    [
        (J6E, (1, 220, 220, 1), (49280, 224, 1, 1)),  # Horizon, "Dynamic input introduction": 32-byte alignment
        (J6E, (1, 110, 110, 2), (24640, 224, 2, 1)),
        (J6P, (1, 220, 220, 1), (56320, 256, 1, 1)),  # the same rule with 64 bytes (inferred)
        (J6P, (1, 110, 110, 2), (28160, 256, 2, 1)),
        (J6P, (1, 224, 224, 1), (57344, 256, 1, 1)),
        (J6E, (1, 224, 224, 1), (50176, 224, 1, 1)),  # hrt_model_exec's example of --input_stride
        (J6E, (1, 112, 112, 2), (25088, 224, 2, 1)),
        (J6E, (1, 1, 28, 28), (896, 896, 32, 1)),  # a gray plane, NCHW
    ],
)
def test_image_strides(rules: MemoryRules, shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    layout = tensor_layout(shape, "uint8", rules, "image")
    assert layout.stride == stride
    assert layout.aligned_byte_size == stride[0] * shape[0]


def test_roi_is_dense() -> None:
    assert tensor_layout((1, 4), "int32", J6E, "input").stride == (16, 4)


@pytest.mark.parametrize(
    ("rules", "size"),
    [(J6E, 4032), (J6B, 4096), (J6P, 4096)],
)
def test_thousand_floats(rules: MemoryRules, size: int) -> None:
    """hrt_model_exec shows (1, 1000) float32 with stride (4000, 4) and 4096 bytes; J6E/M's unit of 64 gives 4032."""
    layout = tensor_layout((1, 1000), "float32", rules, "output")
    assert (layout.stride, layout.aligned_byte_size) == ((4000, 4), size)


def test_no_padding_is_exact_for_the_side_it_names() -> None:
    rules = MemoryRules(nv12_stride_bytes=64, tensor_unit_bytes=256, output_no_padding=True)
    assert tensor_layout((1, 10), "float32", rules, "output").aligned_byte_size == 40
    assert tensor_layout((1, 10), "float32", rules, "input").aligned_byte_size == 256
    assert tensor_layout((1, 4, 10, 1), "uint8", rules, "image").aligned_byte_size == 256
    rules = MemoryRules(nv12_stride_bytes=64, tensor_unit_bytes=256, input_no_padding=True)
    assert tensor_layout((1, 10), "float32", rules, "input").aligned_byte_size == 40


def test_feature_map_height_padding_is_not_imitated() -> None:
    """The published U16 example pads height by an unknown rule: ours stays dense and says so."""
    layout = tensor_layout((1, 3, 212, 212), "uint16", J6P, "input")
    assert layout.stride == (3 * 212 * 212 * 2, 212 * 212 * 2, 424, 2)
    assert layout.stride != (301056, 100352, 448, 2)


@given(st.integers(0, 10**6), st.integers(1, 512))
def test_align(size: int, unit: int) -> None:
    assert align(size, unit) % unit == 0
    assert 0 <= align(size, unit) - size < unit


@given(st.data())
def test_pack_and_unpack_are_inverse(data: st.DataObject) -> None:
    shape = (1, data.draw(st.integers(1, 6)), data.draw(st.integers(1, 70)), data.draw(st.sampled_from([1, 2])))
    role: Any = data.draw(st.sampled_from(["image", "input", "output"]))
    dtype = "uint8" if role == "image" else data.draw(st.sampled_from(["uint8", "int16", "float32", "int32"]))
    array = data.draw(npst.arrays(dtype, shape, elements={"allow_nan": False} if dtype == "float32" else None))
    layout = tensor_layout(shape, dtype, data.draw(st.sampled_from([J6E, J6B, J6P])), role)
    buffer = pack(array, layout)
    assert buffer.size == layout.aligned_byte_size
    assert int(np.count_nonzero(buffer)) <= array.nbytes
    np.testing.assert_array_equal(unpack(buffer, layout), array)
    row, column = shape[1] - 1, shape[2] - 1
    at = row * layout.stride[1] + column * layout.stride[2]
    assert buffer[at : at + array.itemsize].tobytes() == array[0, row, column, 0].tobytes()


def test_scalar_and_refusals() -> None:
    layout = tensor_layout((), "float32", J6E, "output")
    assert (layout.stride, layout.aligned_byte_size) == ((), 64)
    assert unpack(pack(np.array(2.5, dtype=np.float32), layout), layout) == np.float32(2.5)
    with pytest.raises(StageError):
        pack(np.zeros((1, 3), np.float32), layout)
    with pytest.raises(StageError):
        unpack(np.zeros(63, np.uint8), layout)
    with pytest.raises(StageError):
        tensor_layout((1, 3, 8, 8), "uint8", J6E, "image")
    assert isinstance(layout, TensorLayout)
