"""One quantisation by one peer, in a process of that peer's own environment: run by ``peers.py``, needs no npubake.

    python peer_runner.py TOOL OPTIONS.json MODEL.onnx DATA.npz OUTPUTS.npz STARTED

Quantises MODEL on ``DATA['calibration']``, prints one JSON line with the seconds of the call, the seconds since
STARTED (``time.time()`` of the parent: the whole cold process) and the peak resident size (VmHWM, MB) up to then; then
runs the quantised model on ``DATA['held_out']`` and saves its outputs, ``0000``, ``0001``, ... in the model's order.
Where OUTPUTS ends in ``.onnx`` it gets the quantised QDQ model instead, and nothing is run.
QDQ models are evaluated without graph optimisation: what the model says, not what a kernel makes of it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Options = dict[str, Any]
THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """evaluate: feed -> outputs; save: writes the QDQ model."""

    evaluate: Callable[[dict[str, Any]], list[Any]]
    save: Callable[[Path], Any]


class Samples:
    """The calibration samples, as every peer wants them: a list of feeds, an iterator, or ORT's reader."""

    def __init__(self, name: str, arrays: Any) -> None:
        self.name, self._arrays = name, arrays
        self._rest = iter(self)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({self.name: array[None]} for array in self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._rest, None)

    def rewind(self) -> None:
        self._rest = iter(self)


def quantise_ort(options: Options, model: Path, samples: Samples, folder: Path) -> Quantised:
    """``quantize_static``; ``bins``: of the entropy calibrator, which the call itself leaves at 128."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    if "bins" in options:
        module = sys.modules["onnxruntime.quantization.quantize"]  # the package's name for it is a function
        plain = module.create_calibrator

        def create_calibrator(*arguments: Any, extra_options: Options, **rest: Any) -> Any:
            bins = {"num_bins": options["bins"], "num_quantized_bins": 128}
            return plain(*arguments, extra_options={**extra_options, **bins}, **rest)

        setattr(module, "create_calibrator", create_calibrator)  # noqa: B010
    target = folder / "quantised.onnx"
    quantize_static(
        model,
        target,
        samples,
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        reduce_range=False,
        activation_type=QuantType[options["activation"]],
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod[options["method"]],
        extra_options=options.get("extra", {}),
    )
    return evaluated(target)


def quantise_nncf(options: Options, model: Path, samples: Samples, folder: Path) -> Quantised:
    """``nncf.quantize`` on the ONNX model."""
    import nncf
    import onnx

    advanced = nncf.AdvancedQuantizationParameters()
    if "bits" in options:
        advanced.activations_quantization_params = nncf.quantization.advanced_parameters.QuantizationParameters(
            num_bits=options["bits"]
        )
    quantised = nncf.quantize(
        onnx.load(model),
        nncf.Dataset(list(samples)),
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(samples),
        fast_bias_correction=options.get("fast_bias_correction", True),
        model_type=nncf.ModelType.TRANSFORMER if options.get("transformer") else None,
        advanced_parameters=advanced,
    )
    onnx.save(quantised, folder / "quantised.onnx")
    return evaluated(folder / "quantised.onnx")


def quantise_aimet(options: Options, model: Path, samples: Samples, _folder: Path) -> Quantised:
    """``QuantizationSimModel``, with cross-layer equalisation before it, or sequential MSE or AdaRound (``adaround``
    iterations a layer) after it, where asked; its simulation counts.
    """
    import aimet_onnx
    import onnx
    from aimet_onnx import quantsim_config

    loaded = onnx.load(model)
    if options.get("equalise"):
        from aimet_onnx.cross_layer_equalization import equalize_model

        equalize_model(loaded)
    configurations = [Path(entry) for entry in quantsim_config.__path__]
    configurations += [Path(aimet_onnx.__path__[0]) / "common" / "quantsim_config"]
    (file,) = [found for entry in configurations for found in entry.glob(f"{options['configuration']}.json")][:1]
    simulation = aimet_onnx.QuantizationSimModel(
        loaded,
        param_type="int8",
        activation_type=options["activation"],
        quant_scheme=options["scheme"],
        config_file=str(file),
    )
    if options.get("sequential_mse"):
        aimet_onnx.apply_seq_mse(simulation, list(samples))
    if "adaround" in options:
        aimet_onnx.apply_adaround(simulation, list(samples), num_iterations=options["adaround"])
    simulation.compute_encodings(list(samples))
    return Quantised(
        evaluate=lambda feed: list(simulation.session.run(None, feed)),
        save=lambda target: onnx.save(simulation.to_onnx_qdq(), target),
    )


def quantise_quark(options: Options, model: Path, samples: Samples, folder: Path) -> Quantised:
    """``ModelQuantizer`` with a preset, one of the older presets (``legacy``), or a preset's parts per channel."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType
    from quark.onnx import ModelQuantizer, get_library_path
    from quark.onnx.quantization.config import custom_config
    from quark.onnx.quantization.config.config import Config
    from quark.onnx.quantization.config.legacy import QuantizationConfig

    if "preset" in options:
        asked: Any = getattr(custom_config, options["preset"])
    elif "legacy" in options:
        asked = Config(global_quant_config=custom_config.get_default_config(options["legacy"]))
    else:
        extra = dict(options.get("extra", {}))
        if options.get("adaround"):
            extra["FastFinetune"] = custom_config.DEFAULT_ADAROUND_PARAMS
        asked = Config(
            global_quant_config=QuantizationConfig(
                calibrate_method=CalibrationMethod[options["method"]],
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType[options["activation"]],
                weight_type=QuantType.QInt8,
                per_channel=True,
                include_cle=options.get("equalise", False),
                include_fast_ft=options.get("adaround", False),
                enable_npu_transformer=options.get("transformer", False),
                extra_options=extra,
            )
        )
    target = folder / "quantised.onnx"
    ModelQuantizer(asked).quantize_model(str(model), str(target), samples)
    return evaluated(target, get_library_path())


def quantise_olive(options: Options, model: Path, samples: Samples, folder: Path) -> Quantised:
    """The pass OnnxStaticQuantization."""
    from olive.data.config import DataConfig
    from olive.data.registry import Registry
    from olive.hardware import AcceleratorSpec
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict
    from olive.passes.onnx.quantization import OnnxStaticQuantization

    class Rows:
        def __len__(self) -> int:
            return len(samples)

        def __getitem__(self, index: int) -> Any:
            if index >= len(samples):
                raise IndexError(index)
            return {samples.name: samples._arrays[index]}, 0

    Registry.register_dataset("benchmark_rows")(lambda **_: Rows())
    data = DataConfig(name="rows", load_dataset_config={"type": "benchmark_rows"})
    data.dataloader_config.params = {"batch_size": 1, "drop_last": False}
    settings = {**options["settings"], "data_config": data}
    made = create_pass_from_dict(
        OnnxStaticQuantization,
        settings,
        disable_search=True,
        accelerator_spec=AcceleratorSpec(accelerator_type="CPU", execution_provider="CPUExecutionProvider"),
    )
    result = made.run(ONNXModelHandler(model_path=str(model)), str(folder / "olive"))
    return evaluated(Path(result.model_path))


TOOLS: dict[str, Callable[[Options, Path, Samples, Path], Quantised]] = {
    "ort": quantise_ort,
    "nncf": quantise_nncf,
    "aimet": quantise_aimet,
    "quark": quantise_quark,
    "olive": quantise_olive,
}


def evaluated(path: Path, library: str | None = None) -> Quantised:
    """The model's outputs by ONNX Runtime without graph optimisation; the session is made on the first call."""
    import onnxruntime

    sessions: list[Any] = []

    def run(feed: dict[str, Any]) -> list[Any]:
        if not sessions:
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.intra_op_num_threads = THREADS
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            if library:
                options.register_custom_ops_library(library)
            sessions.append(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
        return list(sessions[0].run(None, feed))

    return Quantised(evaluate=run, save=lambda target: shutil.copy(path, target))


def peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) / 1024


def main() -> None:
    tool, options_file, model, data_file, outputs_file, started = sys.argv[1:]
    options = json.loads(Path(options_file).read_text(encoding="utf-8"))
    with np.load(data_file) as data:
        calibration, held_out, name = data["calibration"], data["held_out"], str(data["input"])
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        quantised = TOOLS[tool](options, Path(model), Samples(name, calibration), Path(folder))
        facts = {
            "seconds": time.perf_counter() - begin,
            "process_seconds": time.time() - float(started),
            "peak_mb": peak_megabytes(),
        }
        if outputs_file.endswith(".onnx"):
            quantised.save(Path(outputs_file))
        else:
            rows = [quantised.evaluate({name: sample[None]}) for sample in held_out]
            columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
            np.savez(outputs_file, **{f"{index:04d}": column for index, column in enumerate(columns)})
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
