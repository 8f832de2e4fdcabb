"""Records of a compiled artifact, as its stages write them, for tests of the manifest."""

from __future__ import annotations

from typing import Any

DIGEST = "cd" * 32
FIGURES = {"cosine": 0.9999, "sqnr_db": 36.5, "max_abs": 0.07}
EDGE = {"valid_shape": [1, 10], "dtype": "uint8", "stride": [10, 1], "aligned_byte_size": 10, "scale": [0.5],
        "zero_point": 3, "axis": None}  # fmt: skip
BOARD = {"by": "board", "where": "feed recorded.zip", "item": "it runs", "source": "guide"}
CONTRACT: dict[str, Any] = {
    "io": "quantized",
    "inputs": [{**EDGE, "name": "x", "kind": "tensor", "plane": "", "model_input": "x"}],
    "outputs": [{**EDGE, "name": "logits", "model_output": "logits"}],
    "runtime_inputs": {},
    "removed": [{"side": "outputs", "tensor": "logits", "op_type": "DequantizeLinear", "why": "io: quantized"}],
    "notes": {"exact": "a note"},
    "htp": {"soc_models": [77], "arch": ["v73"], "soc_model": "77", "vtcm_bytes": 8388608, "graph": "g"},
    "build": {"qnn_build_id": "v2.51.0.1", "qnn": "2.51.0", "onnxruntime_qnn": "2.7.0", "onnxruntime": "1.32.0"},
    "files": {name: {"name": name, "sha256": DIGEST, "bytes": 5} for name in ("wrapper", "binary")},
    "platform": {"platform": "qcs9075", "bsp": ""},
    "cpu_nodes": [],
    "runtime": {"libraries": [], "qnn_version": "2.51.0"},
    "licence": "a licence",
    "checklist": [
        *({"by": "gate", "where": name, "item": name, "source": "guide"}
          for name in ("baseline", "converted", "compiled", "product")),
        BOARD,
        {"by": "bundle", "where": "calibration.zip", "item": "archived", "source": "guide"},
        {"by": "contract", "where": "platform, htp", "item": "SDK, BSP and SoC are recorded", "source": "guide"},
    ],
}  # fmt: skip
ADAPTED: dict[str, Any] = {
    "lane": "a16w8",
    "tensors": {"a": {"dtype": "uint16"}, "b": {"dtype": "uint16"}, "c": {"dtype": "uint8"}},
    "weights": {"w": {"dtype": "int8"}},
    "coverage": {"activations": 4, "quantized": 3, "float": [{"tensor": "d", "why": "no kernel"}]},
    "warnings": ["look at d"],
}
METADATA: dict[str, Any] = {
    "estimates": {"label": "simulated by the compiler; not a latency", "cycles": {"estimate": 9}}
}
VERIFIED: dict[str, Any] = {
    "exact": False,
    "tolerance": {"cosine": 0.95},
    "runs": [{}, {}],
    "comparisons": [{"output": "logits", "bitwise": False, "tolerance": 0.95, "equal": False, "max_difference": 0.07,
                     "min_cosine": 0.999}],
    "boxes": None,
    "agreement": {
        "between": "emulator and QDQ model",
        "outputs": {
            "logits": {
                **FIGURES,
                "min_cosine": 0.999,
                "largest_steps": 2,
                "quantised_sqnr_db": 33.0,
                "worst_example": "e",
                "worst": FIGURES,
            }
        },
    },
}  # fmt: skip
LICENCE = {"distribution": "onnxruntime-qnn", "version": "2.7.0",
           "files": [{"name": "LICENSE", "for": "MIT", "sha256": DIGEST}]}  # fmt: skip
