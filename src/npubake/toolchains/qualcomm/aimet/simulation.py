"""Qualcomm toolchain: AIMET itself. Run as ``python -m`` in a folder of its own (``toolchains.process.run_module``).

Request: ``model`` (a file in the folder), ``samples`` (path of a sample set), ``settings`` (``settings.Settings``).
Written: ``quantised.onnx``, ``aimet.encodings`` (1.0.0), ``progress`` (examples seen). Answer: ``versions``, ``fused``.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aimet_onnx
import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.calibration.samples import SampleSet
from npubake.errors import Fault, StageError
from npubake.toolchains.process import serve
from npubake.toolchains.qualcomm.aimet.settings import ENCODINGS, PROGRESS, QUANTISED, fused_by_htp, fused_pairs

CONFIGURATION = "configuration.json"
ENCODING_VERSION = "1.0.0"
ONE_THREAD = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}  # the order of sums, and so the bytes
DISTRIBUTIONS = ("aimet-onnx", "onnx-ir", "torch")


def simulate(request: Mapping[str, Any]) -> dict[str, Any]:
    """Quantise, and write what the module's docstring says."""
    logging.getLogger().setLevel(logging.WARNING)
    random.seed(0)
    np.random.seed(0)  # AIMET draws inputs for shapes of the global generator
    settings = request["settings"]
    configuration = _configuration(settings["architecture"])
    Path(CONFIGURATION).write_text(json.dumps(configuration), encoding="utf-8")
    simulation = aimet_onnx.QuantizationSimModel(
        onnx.load(request["model"]),
        param_type=settings["weights"],
        activation_type=settings["activations"],
        quant_scheme=settings["scheme"],
        config_file=CONFIGURATION,
        providers=["CPUExecutionProvider"],
        session_options_kwargs=ONE_THREAD,
    )
    with SampleSet.open(Path(request["samples"])) as samples:
        simulation.compute_encodings(_examples(samples))
    # int32 biases: without them the compiler computes LayerNormalization in float.
    quantised = simulation.to_onnx_qdq(prequantize_constants=True, export_int32_bias=True)
    Path(QUANTISED).write_bytes(quantised.SerializeToString(deterministic=True))
    simulation.export(".", Path(ENCODINGS).stem, export_model=False, encoding_version=ENCODING_VERSION)
    return {"versions": {name: version(name) for name in DISTRIBUTIONS}, "fused": fused_pairs(configuration)}


def _configuration(architecture: str) -> dict[str, Any]:
    folder = Path(aimet_onnx.__file__).parent / "common" / "quantsim_config"
    path = folder / f"htp_quantsim_config_{architecture}.json"
    if not path.is_file():
        what = f"aimet-onnx {version('aimet-onnx')} has no configuration for HTP {architecture}"
        raise StageError(Fault(what=what, where=architecture))
    return fused_by_htp(json.loads(path.read_text(encoding="utf-8")))


def _examples(samples: SampleSet) -> Iterator[dict[str, NDArray[Any]]]:
    """The examples as the model sees them, one in memory at a time."""
    for index in range(samples.count):
        yield samples.read(index)
        Path(PROGRESS).write_text(str(index + 1), encoding="utf-8")


if __name__ == "__main__":
    serve(simulate)
