"""Toolchains room: how a picture becomes the model's inputs, the contract's ``preprocessing``. Plain data.

The block is the expanded preset (``recipe/presets.py``) and ``inputs``: for each model input that takes a picture, its
``layout``, and who does the linear step (scale, mean, std): the ``model``, into which it is baked, or the
``application``. It is null where the preset takes prepared tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npubake.calibration.preprocessing import Preprocessing
from npubake.errors import Fault, StageError


def picture_block(
    preset: Mapping[str, Any] | None, layouts: Mapping[str, str], contract: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The block of a contract whose ``inputs``, ``runtime_inputs`` and ``removed`` are known.

    preset: expanded; layouts: what the recipe states in place of the preset's, by model input.
    """
    if preset is None or preset["decode"] is None:
        return None
    inputs = {}
    count = 1 if preset["channels"] == "gray" else 3
    for name, (dtype, shape) in model_inputs(contract).items():
        layout = layouts.get(name, preset["layout"])
        if name in baked(contract):
            inputs[name] = {"layout": contract["runtime_inputs"][name]["layout"], "linear_step": "model"}
        elif dtype == "float32" and len(shape) == 4 and shape[layout.index("C")] == count:
            inputs[name] = {"layout": layout, "linear_step": "application"}
    return {**preset, "inputs": inputs}


def baked(contract: Mapping[str, Any]) -> frozenset[str]:
    """Model inputs that take pixels: their linear step is in the model."""
    return frozenset(name for name, facts in contract["runtime_inputs"].items() if facts["type"] != "featuremap")


def model_inputs(contract: Mapping[str, Any]) -> dict[str, tuple[str, list[int]]]:
    """(dtype, shape) of each input as the float model has it: pixels uint8 [H, W, C] where the linear step is baked in,
    else what the input was before nodes were removed behind it.
    """
    found: dict[str, tuple[str, list[int]]] = {}
    for entry in contract["inputs"]:
        name = entry["model_input"]
        if name in baked(contract):
            facts = contract["runtime_inputs"][name]
            found[name] = ("uint8", [facts["height"], facts["width"], 1 if facts["channels"] == "gray" else 3])
            continue
        outermost = next(
            (gone for gone in contract["removed"] if gone["tensor"] == name and gone["side"] == "inputs"), None
        )
        before = None if outermost is None else (outermost["before_dtype"], list(outermost["before_shape"]))
        found[name] = before or (entry["dtype"], list(entry["valid_shape"]))
    return found


def expanded(block: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The preset that a block was made from."""
    return None if block is None else {name: value for name, value in block.items() if name != "inputs"}


def require_fitting(contract: Mapping[str, Any], where: str) -> None:
    """Raises StageError where a baked input states no frame, or mean or std have another count than the channels."""
    hint = "npubake did not write this; take the file from the build again"
    faults = [
        Fault(where=where, path=f"$.runtime_inputs.{name}", what=f"{key} is missing", hint=hint)
        for name in sorted(baked(contract))
        for key in ("channels", "height", "width", "layout")
        if contract["runtime_inputs"][name].get(key) is None
    ]
    block = contract["preprocessing"]
    if block is not None:
        count = 1 if block["channels"] == "gray" else 3
        faults += [
            Fault(where=where, path=f"$.preprocessing.{name}", what=f"{block[name]} for {count} channels", hint=hint)
            for name in ("mean", "std")
            if block[name] is not None and (len(block[name]) not in (1, count) or (name == "std" and 0 in block[name]))
        ]
    if faults:
        raise StageError(*faults)


def steps(block: Mapping[str, Any], name: str) -> Preprocessing | None:
    """The work that a picture needs for one model input; None where the input takes no picture."""
    if name not in block["inputs"]:
        return None
    return Preprocessing.from_expanded(block, block["inputs"][name]["layout"])
