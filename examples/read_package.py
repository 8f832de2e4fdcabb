"""Run a picture through a package (.npub) that takes nv12 or gray, without npubake: docs/deployable.md as a program.

python examples/read_package.py model.npub picture.jpg
"""

import json
import sys
import zipfile

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

RGB_TO_YUV = {  # rows Y, U, V over R, G, B, 14 fraction bits; what black's luma is; lowest and highest Y, U, V
    "full": ([[4899, 9617, 1868], [-2765, -5427, 8192], [8192, -6860, -1332]], 0, (0, 0, 0), (255, 255, 255)),
    "video": ([[4207, 8260, 1604], [-2428, -4768, 7196], [7196, -6026, -1170]], 16, (16, 16, 16), (235, 240, 240)),
}


def framed(path, how):
    """uint8 [H, W, C] by the contract's ``preprocessing``: RGB or grey, resized, on a canvas of the fill."""
    if how["crop"] or not how["resize"] or how["resize"]["kind"] not in ("letterbox", "resize_exact"):
        raise SystemExit("this example knows letterbox and resize_exact; docs/deployable.md has the others")
    image = ImageOps.exif_transpose(Image.open(path)).convert("L" if how["channels"] == "gray" else "RGB")
    (high, wide), fill, filters = how["resize"]["size"], how["resize"]["fill"] or 0, Image.Resampling
    ratio = min(high / image.height, wide / image.width)
    size = (max(round(image.width * ratio), 1), max(round(image.height * ratio), 1))
    size = size if how["resize"]["kind"] == "letterbox" else (wide, high)
    image = image if image.size == size else image.resize(size, filters[how["resize"]["interpolation"].upper()])
    canvas = np.full((high, wide, len(image.getbands())), fill, np.uint8)
    top, left = (high - size[1]) // 2, (wide - size[0]) // 2
    canvas[top : top + size[1], left : left + size[0]] = np.asarray(image).reshape(size[1], size[0], -1)
    return canvas


def yuv(sums, colour_range, bits):
    """BT.601 of [..., 3] sums of 2**bits pixels each."""
    rows, black, low, high = RGB_TO_YUV[colour_range]
    rounded = (sums.astype(np.int32) @ np.array(rows, np.int32).T + (1 << (13 + bits))) >> (14 + bits)
    return np.clip(rounded + np.array([black, 128, 128]), low, high).astype(np.uint8)


def planes(pixels, contract):
    """The dense planes that the board's camera side makes, by the contract's name of the plane."""
    if {entry["plane"] for entry in contract["inputs"]} == {"gray"}:
        return {"gray": pixels.transpose(2, 0, 1)[None]}
    if {entry["plane"] for entry in contract["inputs"]} != {"y", "uv"}:
        raise SystemExit("this example feeds nv12 and gray")
    (facts,) = contract["runtime_inputs"].values()
    blocks = sum(pixels[row::2, column::2].astype(np.int32) for row in (0, 1) for column in (0, 1))
    return {"y": yuv(pixels, facts["range"], 0)[None, ..., :1], "uv": yuv(blocks, facts["range"], 2)[None, ..., 1:]}


def run(package, picture):
    """Real outputs by name. Each plane passes a buffer as a board allocates it, at the contract's strides."""
    with zipfile.ZipFile(package) as entries:
        contract, model = json.loads(entries.read("contract.json")), entries.read("model.onnx")
    made, feeds = planes(framed(picture, contract["preprocessing"]), contract), {}
    for entry in contract["inputs"]:
        buffer = np.zeros(entry["aligned_byte_size"], np.uint8)
        feeds[entry["name"]] = np.ndarray(entry["valid_shape"], entry["dtype"], buffer, strides=entry["stride"])
        feeds[entry["name"]][...] = made[entry["plane"]]
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs = dict(zip((entry["name"] for entry in contract["outputs"]), session.run(None, feeds), strict=True))
    for entry in (entry for entry in contract["outputs"] if entry["scale"] is not None):  # real = scale * (q - zero)
        centred = outputs[entry["name"]].astype(np.int64) - entry["zero_point"]
        scale = np.array(entry["scale"], np.float32)
        shape = [-1 if scale.size > 1 and axis == entry["axis"] else 1 for axis in range(centred.ndim)]
        outputs[entry["name"]] = centred.astype(np.float32) * scale.reshape(shape)
    return outputs


if __name__ == "__main__":
    for name, value in run(*sys.argv[1:]).items():
        print(name, value.dtype, value.shape)
        for index in np.argsort(-value, axis=None, kind="stable")[:5]:
            print(" ", tuple(map(int, np.unravel_index(index, value.shape))), value.flat[index])
