"""quant: precisions that a platform or a layer does not have."""

from __future__ import annotations

from typing import Any

from npubake.graph.resolve import match_overrides
from npubake.quant.impossible import kernel_faults, kernel_warnings, precision_faults
from tests.graph.summaries import summary

FIXED_POINT = {"name": "board", "precisions": ["int8", "int16", "float32"]}


def override(precision: str, *names: str, **more: Any) -> dict[str, Any]:
    return {"match": {"names": list(names)}, "set": {"activation": precision}, **more}


def test_each_precision_that_the_platform_lacks_is_told_at_its_place() -> None:
    params = {"lane": "fp16_a8w8", "platform": FIXED_POINT}
    policy = override("float16", "/head/Softmax", path="quant_config.bits.op_types.Softmax")
    overrides = [policy, override("int16", "/stem/Conv"), override("float16", "/head/Conv")]
    faults = list(precision_faults(params, overrides))
    places = ["quant_config.lane", "quant_config.bits.op_types.Softmax", "layer_overrides[1].set.activation"]
    assert [fault.path for fault in faults] == [f"$.{place}" for place in places]
    assert all("int8, int16, float32" in fault.hint for fault in faults)
    assert list(precision_faults({"lane": "a8w8", "platform": FIXED_POINT}, overrides[1:2])) == []
    assert list(precision_faults({"lane": "fp16"}, overrides)) == []


def test_integers_of_layers_without_a_kernel() -> None:
    graph = summary()
    overrides = [override("int8", "/head/Lstm"), override("int16", "/head/*"), override("float32", "/head/Lstm")]
    resolved, faults = match_overrides(graph, overrides)
    assert faults == []
    (fault,) = kernel_faults(graph, overrides, resolved)
    assert (fault.path, "/head/Lstm" in fault.what) == ("$.layer_overrides[0].set.activation", True)
    warned = list(kernel_warnings(graph, overrides, resolved))
    assert [text.partition(":")[0] for text in warned] == ["layer_overrides[0]", "layer_overrides[1]"]
    assert all("/head/Lstm" in text for text in warned)
