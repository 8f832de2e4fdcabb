"""Recipe room: the text of a first recipe for a model, from facts given as plain data. Pure; writes nothing itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SCHEMA = "schemas/recipe.schema.json"  # below the project; editors complete recipes by it
_PICTURE_CHANNELS = (1, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDescription:
    """One input or output. shape: a size, or a name where the model leaves the dimension open; dtype: numpy name."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What ``npubake new`` found in an ONNX file. path: as the recipe should write it, relative to the recipe."""

    path: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]


def recipe_name(text: str) -> str:
    """A legal recipe name from any text: ``My Model (v2)`` -> ``My_Model_v2``."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_.-") or "model"


def recipe_text(name: str, model: ModelDescription, platforms: Sequence[str] = ("generic",)) -> str:
    """A commented recipe, valid as it stands but for the data folders, which only its author knows.

    Open dimensions become 1 and say so. A model with one square picture input of 640 or 1280 gets the yolo preset;
    any other picture input a ``preprocess`` block; the rest the preset ``classification``, which prepares nothing.
    """
    lines = [
        f"# yaml-language-server: $schema=../{SCHEMA}",
        "version: 1",
        f"name: {_quoted(recipe_name(name))}",
        "",
        "model:",
        f"  path: {_quoted(model.path)}",
        "  inputs:",
        *(line for tensor in model.inputs for line in _input_lines(tensor)),
        *(f"  # output {_comment(tensor)}" for tensor in model.outputs),
        "  # baseline: golden.npz        # inputs and outputs of the training framework, compared first of all",
        "  # export_command: python export.py",
        "",
        *_preprocessing(model),
        "",
        "calibration:",
        "  data: ../data/calibration     # folder of pictures, npy or npz; a text list; a JSON list for several inputs",
        "  samples: 64",
        "  # purpose: smoke              # with data: random, for a first trial; not releasable",
        "",
        "quant_config:",
        "  lane: platform                # the platform's first; or a8w8, a16w8, a16w16, w4a16, fp16, fp16_a8w8",
        "  # calibration: {method: auto}   # the default tries several; a method that is named is never overruled",
        "  # tuning: {level: best}         # minutes instead of seconds, where a gate fails",
        "",
        "# layer_overrides:              # sensitive layers, by node name pattern or operator type",
        '#   - match: {names: ["/head/*"], op_types: [Conv]}',
        "#     set: {activation: int16}",
        "",
        "gates:",
        "  optimized: {cosine: 0.9999}",
        "  quantized: {cosine: 0.99, sqnr_db: 20}",
        "",
        "# metric: {name: top1, data: ../data/validation, max_drop: 0.01}   # or coco_map",
        "",
        f"platforms: [{', '.join(platforms)}]",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Plain where nothing can be misread, else in YAML's double quotes."""
    plain = re.fullmatch(r"(\.{0,2}/)*[A-Za-z_][A-Za-z0-9_./-]*", text)
    misread = text.lower() in ("true", "false", "null", "yes", "no", "on", "off")
    return text if plain and not misread else f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """The inside of YAML's double quotes: unlike JSON's it knows no surrogate pairs, so escapes have eight digits."""
    return "".join(_escape(letter) for letter in text)


def _escape(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() and ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"


def _comment(tensor: TensorDescription) -> str:
    return f'"{_escaped(tensor.name)}": {tensor.dtype} [{", ".join(_escaped(str(size)) for size in tensor.shape)}]'


def _input_lines(tensor: TensorDescription) -> list[str]:
    shape = [size if isinstance(size, int) else 1 for size in tensor.shape]
    open_ones = [_escaped(str(size)) for size in tensor.shape if not isinstance(size, int)]
    note = f"   # the model leaves {', '.join(open_ones)} open: state the size" if open_ones else ""
    sizes = f"shape: {shape}" if shape else ""
    layout = f", layout: {_layout(tensor)}" if _is_picture(tensor) else ""
    return [f"    {_quoted(tensor.name)}: {{{sizes}{layout}}}{note}"]


def _is_picture(tensor: TensorDescription) -> bool:
    return len(tensor.shape) == 4 and (tensor.shape[1] in _PICTURE_CHANNELS or tensor.shape[3] in _PICTURE_CHANNELS)


def _layout(tensor: TensorDescription) -> str:
    return "NCHW" if tensor.shape[1] in _PICTURE_CHANNELS else "NHWC"


def _preprocessing(model: ModelDescription) -> list[str]:
    pictures = [tensor for tensor in model.inputs if _is_picture(tensor)]
    if len(model.inputs) != 1 or not pictures:
        return ["preset: classification          # no preprocessing: the data are the model's own inputs, prepared"]
    (tensor,) = pictures
    first = tensor.shape.index(next(size for size in tensor.shape[1:] if size in _PICTURE_CHANNELS), 1) == 1
    height, width = tensor.shape[2:4] if first else tensor.shape[1:3]
    channels = "gray" if 1 in (tensor.shape[1] if first else tensor.shape[3],) else "rgb"
    if channels == "rgb" and (height, width) in ((640, 640), (1280, 1280)) and first:
        return [
            f"preset: yolo_{height}               # RGB, letterbox with 114, divided by 255: check that it is yours"
        ]
    size = [side if isinstance(side, int) else 224 for side in (height, width)]
    return [
        "# How a picture becomes the model's input. It must be what training did: check each line.",
        "# Where the data are the model's own inputs, prepared already: 'preset: classification' instead.",
        "preprocess:",
        f"  channels: {channels}",
        f"  resize: {{kind: resize_exact, size: {size}}}   # or letterbox, resize_shorter",
        "  scale: {divide_by: 255}",
        "  # mean: [0.485, 0.456, 0.406]",
        "  # std: [0.229, 0.224, 0.225]",
        "  # mean_domain: 0-1            # the domain that mean and std are stated in",
        f"  layout: {'NCHW' if first else 'NHWC'}",
    ]
