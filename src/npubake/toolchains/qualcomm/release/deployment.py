"""Qualcomm toolchain: what a device needs to run a context binary, and what is to be done before it ships. Plain data.

Libraries and variables: QNN's own documents (80-63442-10, "HTP backend" and "qnn-net-run"); that stub and skeleton must
be of the binary's SDK is what loading errors 1008 and 14001 are about (executorch #8762, onnxruntime #23171, #26163).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_TERMS = (
    "the SDK's libraries are used and copied by whoever accepts it, and leave only in object form as part of an "
    "application; none is in this bundle"
)
_SOURCE = "Qualcomm migration guide, part 4: The smallest useful acceptance gate"


def licence_text(tools: Mapping[str, str]) -> str:
    """Under what the board's libraries stand. tools: of the metadata; a package is named where one made the binary."""
    whose = "Qualcomm_LICENSE.pdf of the package onnxruntime-qnn"
    if "onnxruntime_qnn" not in tools:
        whose = "the licence file in the folder of the QAIRT SDK that made this"
    return f"Qualcomm AI Stack License ({whose}): {_TERMS}"


def runtime_needs(arch: Sequence[str], version: str) -> dict[str, Any]:
    """Libraries of the runtime, of one SDK version. arch: HTP architectures of the binary (``v73``)."""
    libraries = [
        _library("libQnnHtp.so", "host", "the HTP backend"),
        _library("libQnnSystem.so", "host", "reads the metadata of the binary"),
    ]
    for name in arch:
        version_name = name.upper()
        libraries += [
            _library(f"libQnnHtp{version_name}Stub.so", "host", f"the host's side of the HTP {name}"),
            _library(f"libQnnHtp{version_name}Skel.so", "dsp", f"what runs on the HTP {name}"),
        ]
    return {
        "qnn_version": version,
        "libraries": libraries,
        "environment": {
            "LD_LIBRARY_PATH": "the folder of the libraries at host (aarch64)",
            "ADSP_LIBRARY_PATH": "the folder of the libraries at dsp (hexagon), entries separated by semicolons",
        },
        "note": "all of one SDK, the one that qnn_version names: a stub or skeleton of another is refused on the board "
        "(1008, 14001), and a binary of another SDK may be (5005, 30010)",
    }


def checklist() -> list[dict[str, str]]:
    """The guide's acceptance gate, item by item. by: ``gate`` (of the boundary ``where``; figures in the manifest),
    ``bundle`` (the entry ``where``), ``contract`` (its keys) or ``board``: what remains to be done on one.
    """
    return [
        _item("ONNX Runtime matches the training framework's baseline", "gate", "baseline"),
        _item("the float artifact matches ONNX Runtime", "gate", "converted"),
        _item("the quantised artifact passes the tensor thresholds", "gate", "compiled"),
        _item("the product metric is within its tolerance", "gate", "product"),
        _item("the HTP runtime loads and validates the binary", "board", "feed recorded.zip and compare its outputs"),
        _item("latency, frames a second and power are measured after correctness", "board", "under the product's load"),
        _item("the calibration set is archived with the build", "bundle", "calibration.zip"),
        _item("SDK, BSP, SoC and precision are recorded", "contract", "platform, htp, build, lane"),
    ]


def _library(file: str, side: str, purpose: str) -> dict[str, str]:
    return {"file": file, "side": side, "purpose": purpose}


def _item(item: str, by: str, where: str) -> dict[str, str]:
    return {"item": item, "by": by, "where": where, "source": _SOURCE}
