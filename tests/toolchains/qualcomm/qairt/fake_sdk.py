"""A FAKE SDK folder for contract tests: programs with the names of the SDK's tools that write down what they were told
and leave plausible files. It converts, quantises and compiles nothing; what a real SDK does is not tested by it.

Each program appends its name and words to ``argv.jsonl`` at the folder's root. What it "compiles" is JSON with the
ONNX model itself; its "qnn-net-run" runs that model in float with onnxruntime and rounds at the edges. ``faults.json``
at the root makes it fail in a chosen way.

This file is also the programs' own source: a copy of it lies in the folder, and imports nothing of the project.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

HOST = "x86_64-linux-clang"
TOOLS = (
    "qairt-converter",
    "qairt-quantizer",
    "qnn-onnx-converter",
    "qnn-model-lib-generator",
    "qnn-context-binary-generator",
    "qnn-context-binary-utility",
    "qnn-net-run",
)
LIBRARIES = ("libQnnHtp.so", "libQnnModelDlc.so", "libQnnHtpNetRunExtensions.so")
_RANGES = {8: "uint8", 16: "uint16"}


def make_sdk(root: Path, version: str = "2.39.0.250926") -> Path:
    """The folder, with a program for every tool; ``root`` again."""
    for folder, names in (("bin", TOOLS), ("lib", LIBRARIES)):
        place = root / folder / HOST
        place.mkdir(parents=True)
        for name in names:
            start = f"#!{sys.executable} -P\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
            (place / name).write_text(f"{start}import fake_sdk\nfake_sdk.main({name!r})\n" if folder == "bin" else "")
            (place / name).chmod(0o755)
    shutil.copy(__file__, root / "fake_sdk.py")
    (root / "sdk.yaml").write_text(f"product: qairt\nversion: {version}\n")
    return root


def told(root: Path) -> list[list[str]]:
    """Every command line so far: the tool, then its words."""
    path = root / "argv.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def fail(root: Path, **faults: Any) -> None:
    """exits: a tool that ends with status 1; fell: tensors that become float; unmatched: a name that no tensor has;
    silent: no statistics; soc: another SoC in the binary; short: files of qnn-net-run one byte short; drops: no output;
    stamps: other bytes each time.
    """
    (root / "faults.json").write_text(json.dumps(faults))


def main(tool: str) -> None:
    """One tool, in its working folder."""
    root, words = Path(__file__).parent, sys.argv[1:]
    with (root / "argv.jsonl").open("a") as stream:
        stream.write(json.dumps([tool, *words]) + "\n")
    path = root / "faults.json"
    faults = json.loads(path.read_text()) if path.is_file() else {}
    if faults.get("exits") == tool:
        sys.stderr.write(f"2026-11-30 00:00:00,123 - ERROR - {tool} could not (pid: 77) in 1.5 s\n")
        sys.exit(1)
    given = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("-")}
    if faults.get("drops") != tool:
        _TOOLS[tool](given, faults, words)


def _convert(given: dict[str, str], faults: dict[str, Any], words: list[str]) -> None:
    overrides = given.get("--quantization_overrides")
    held = {
        "model": base64.b64encode(Path(given["--input_network"]).read_bytes()).decode(),
        "encodings": json.loads(Path(overrides).read_text()) if overrides else None,
        "kept": _kept_types(words),
    }
    Path(given["--output_path"]).write_text(json.dumps(held))
    if "--output_path" in given and given["--output_path"].endswith(".cpp"):
        Path("model.bin").write_bytes(b"weights")
        Path("model_net.json").write_text("{}")
        _say(faults)
    if faults.get("unmatched"):
        sys.stdout.write(f"WARNING - encoding for tensor '{faults['unmatched']}' was not found in the graph\n")


def _kept_types(words: list[str]) -> list[str] | None:
    """Names after the flags that keep the source model's types; [] for every input and output, None for none."""
    kept: list[str] | None = None
    for at, word in enumerate(words):
        following = []
        for other in words[at + 1 :]:
            if other.startswith("-"):
                break
            following.append(other)
        if word == "--preserve_io_datatype" or (word == "--preserve_io" and following[:1] in ([], ["datatype"])):
            kept = [*(kept or []), *following[word == "--preserve_io" :]]
    return kept


def _quantize(given: dict[str, str], faults: dict[str, Any], _words: list[str]) -> None:
    shutil.copy(given["--input_dlc"], given["--output_dlc"])
    _say(faults)


def _say(faults: dict[str, Any]) -> None:
    """The lines of AIMET issue 4090."""
    fell = faults.get("fell", 0)
    if faults.get("silent"):
        return
    sys.stdout.write(f"[MISSING ENC.   ] {fell + 2} of 100 ({fell + 2}%) tensors were missing encodings.\n")
    sys.stdout.write(f"  [PROPAGATED   ] 2 of {fell + 2} (50%) tensors had encoding propagated.\n")
    if fell:
        sys.stdout.write(f"  [FP16 FALLBACK] {fell} of {fell + 2} (50%) tensors were assumed to be fp16.\n")


def _library(given: dict[str, str], _faults: dict[str, Any], _words: list[str]) -> None:
    place = Path(given["-o"]) / given["-t"]
    place.mkdir(parents=True)
    shutil.copy(given["-c"], place / "libmodel.so")


def _generate(given: dict[str, str], faults: dict[str, Any], _words: list[str]) -> None:
    held = json.loads(Path(given.get("--dlc_path", given["--model"])).read_text())
    outer = json.loads(Path(given["--config_file"]).read_text())["backend_extensions"]
    device = json.loads(Path(outer["config_file_path"]).read_text())["devices"][0]
    soc = device.get("soc_model", device.get("soc_id"))
    held |= {"soc": faults.get("soc", soc), "arch": int(device["dsp_arch"][1:])}
    if faults.get("stamps"):
        held |= {"stamp": time.monotonic_ns()}
    (Path(given["--output_dir"]) / f"{given['--binary_file']}.bin").write_text(json.dumps(held))


def _encodings(held: dict[str, Any]) -> dict[str, tuple[int, float, int]]:
    """Tensor -> bits, scale, offset, of either version of the file; without those that keep the source's type."""
    content, kept = held["encodings"], held["kept"]
    if content is None or kept == []:
        return {}
    found = _integers(content)
    return {name: row for name, row in found.items() if name not in (kept or [])}


def _integers(content: dict[str, Any]) -> dict[str, tuple[int, float, int]]:
    entries = content["activation_encodings"]
    if content["version"] == "0.6.1":
        rows = {name: found[0] for name, found in entries.items() if found[0]["dtype"] == "int"}
        return {name: (row["bitwidth"], row["scale"], row["offset"]) for name, row in rows.items()}
    return {row["name"]: (row["bw"], row["scale"][0], row["offset"][0]) for row in entries if row["dtype"] == "INT"}


def _describe(given: dict[str, str], _faults: dict[str, Any], _words: list[str]) -> None:
    import onnx

    held = json.loads(Path(given["--context_binary"]).read_text())
    graph = onnx.load_from_string(base64.b64decode(held["model"])).graph
    encodings = _encodings(held)

    def tensor(value: Any) -> dict[str, Any]:
        info: dict[str, Any] = {
            "id": 1,
            "name": _c_name(value.name),
            "dimensions": [dim.dim_value for dim in value.type.tensor_type.shape.dim],
            "dataType": {1: "QNN_DATATYPE_FLOAT_32", 2: "QNN_DATATYPE_UINT_8"}[value.type.tensor_type.elem_type],
        }
        if value.name in encodings:
            bits, scale, offset = encodings[value.name]
            info["dataType"] = f"QNN_DATATYPE_UFIXED_POINT_{bits}"
            info["quantizeParams"] = {"definition": 1, "scaleOffset": {"scale": scale, "offset": offset}}
        return {"version": 1, "info": info}

    sides = {"graphInputs": graph.input, "graphOutputs": graph.output}
    info = {"graphName": "model", **{name: [tensor(value) for value in values] for name, values in sides.items()}}
    content = {
        "info": {
            "buildId": "v2.39.0.fake",
            "coreApiVersion": {"major": 2, "minor": 29, "patch": 0},
            "backendApiVersion": {"major": 5, "minor": 39, "patch": 0},
            "contextBlobVersion": {"major": 3, "minor": 3, "patch": 4},
            "contextBlobSize": Path(given["--context_binary"]).stat().st_size,
            "graphs": [{"version": 3, "info": info}],
            "contextMetadata": {"info": {"dspArch": held["arch"]}},
        },
        "socModel": held["soc"],
    }
    Path(given["--json_file"]).write_text(json.dumps(content))


def _net_run(given: dict[str, str], faults: dict[str, Any], words: list[str]) -> None:
    import numpy as np
    import onnxruntime

    held = json.loads(Path(given["--retrieve_context"]).read_text())
    session = onnxruntime.InferenceSession(base64.b64decode(held["model"]), providers=["CPUExecutionProvider"])
    native = "--use_native_input_files" in words  # else every file is float32
    encodings = _encodings(held) if native else {}
    for index, line in enumerate(Path(given["--input_list"]).read_text().split("\n")[:-1]):
        paths = dict(part.split(":=") for part in line.split(" ")) if ":=" in line else {"": line}
        feeds = {}
        for value in session.get_inputs():
            data = Path(paths.get(_c_name(value.name), paths.get("", ""))).read_bytes()
            bits, scale, offset = encodings.get(value.name, (0, 1.0, 0))
            plain = "uint8" if native and value.type == "tensor(uint8)" else "float32"
            codes = np.frombuffer(data, _RANGES.get(bits, plain)).reshape(value.shape)
            codes = codes.astype("uint8") if value.type == "tensor(uint8)" else codes
            feeds[value.name] = ((codes.astype(np.float64) + offset) * scale).astype(np.float32) if bits else codes
        place = Path(given["--output_dir"]) / f"Result_{index}"
        place.mkdir(parents=True)
        names = [value.name for value in session.get_outputs()]
        for name, found in zip(names, session.run(names, feeds), strict=True):
            bits, scale, offset = encodings.get(name, (0, 1.0, 0))
            codes = np.clip(np.rint(found / scale) - offset, 0, 2**bits - 1).astype(_RANGES[bits]) if bits else found
            data = codes.tobytes()
            (place / f"{_c_name(name)}{'_native' if native else ''}.raw").write_bytes(
                data[:-1] if faults.get("short") else data
            )


def _c_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)


_TOOLS = {
    "qairt-converter": _convert,
    "qairt-quantizer": _quantize,
    "qnn-onnx-converter": _convert,
    "qnn-model-lib-generator": _library,
    "qnn-context-binary-generator": _generate,
    "qnn-context-binary-utility": _describe,
    "qnn-net-run": _net_run,
}
