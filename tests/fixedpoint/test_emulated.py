"""The same integers on CPUs without VNNI and without AVX: digests under qemu equal the native ones.

Skipped where qemu is missing (Debian: qemu-user-static), unless NPUBAKE_REQUIRE_QEMU=1 makes that a failure. The native
digests stand for the right integers: test_operators, test_weight_formats and test_models compare those models with the
evaluator.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npubake.graph.model_file import save_model
from tests.fixedpoint.builds import Case, calibrated
from tests.fixedpoint.emulated import digests
from tests.fixedpoint.operators import OPERATORS
from tests.fixedpoint.test_models import classifier, images
from tests.fixedpoint.test_operators import extremes, feeds_of
from tests.fixedpoint.test_weight_formats import FORMATS, formatted

Array = NDArray[Any]
QEMU = "qemu-x86_64-static"
SCRIPT = Path(__file__).with_name("emulated.py")


def store(folder: Path, name: str, case: Case, feeds: list[dict[str, Array]]) -> None:
    lowered = case.lower()
    assert not lowered.float_nodes
    save_model(lowered.model, folder / f"{name}.onnx")
    stacked: dict[str, Any] = {key: np.stack([feed[key] for feed in feeds]) for key in feeds[0]}
    np.savez(folder / f"{name}.npz", **stacked)


@pytest.fixture(scope="module")
def qemu() -> str:
    """The emulator, looked up before any model is made."""
    found = shutil.which(QEMU)
    if found is None and os.environ.get("NPUBAKE_REQUIRE_QEMU") == "1":
        pytest.fail(f"{QEMU} is not installed, and NPUBAKE_REQUIRE_QEMU=1 asks for it")
    if found is None:
        pytest.skip(f"{QEMU} is not installed (Debian package qemu-user-static)")
    return found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every operator, 8 and 16 bits by turns, every format of weights in two operators, and the two classifiers."""
    folder = tmp_path_factory.mktemp("models")
    for number, (name, build) in enumerate(OPERATORS.items()):
        rng = np.random.default_rng(number)
        model = build(rng)
        feeds = feeds_of(model, rng, 2.0)
        case = calibrated(model, [feeds], "a16w8" if number % 3 == 0 else "a8w8", calibration={"asymmetric": True})
        store(folder, name, case, [feeds, *extremes(feeds, rng)])
    others = itertools.cycle(("conv_depthwise", "conv_transpose", "gemm", "matmul_constant"))
    for number, (held_as, other) in enumerate(zip(FORMATS, others, strict=False)):
        for name, lane in (("conv", "a8w8" if number % 2 else "a16w8"), (other, "a16w8" if number % 2 else "a8w8")):
            store(folder, f"{held_as}_{name}", *formatted(name, held_as, lane, np.random.default_rng(number)))
    for name, lane in (("digits_mobilenet", "a8w8"), ("digits_mobilenet", "a16w8"), ("digits_vit", "a8w8")):
        case = classifier(name, lane)
        source = case.summary.inputs[0]
        store(folder, f"{name}_{lane}", case, [{source: images()[i : i + 1]} for i in range(3)])
    return folder


@pytest.fixture(scope="module")
def saturating(models: Path) -> str:
    """Trap 1 planted beside the others: a uint8 x int8 product. Returns the digest of the exact answer."""
    weights = np.full((64, 16), 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "planted",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [4, 64])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [4, 16])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    save_model(model, models / "planted.onnx")
    np.savez(models / "planted.npz", x=np.full((1, 4, 64), 255, np.uint8))
    exact = np.full((4, 16), 64 * 255 * 127, np.int32)
    return hashlib.sha256((str(exact.dtype).encode() + exact.tobytes()) * 2).hexdigest()


@pytest.mark.parametrize("cpu", ["Haswell", "Nehalem"])
def test_other_cpus_give_the_same_integers(qemu: str, models: Path, saturating: str, cpu: str) -> None:
    command = [qemu, "-cpu", cpu, sys.executable, str(SCRIPT), str(models)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    # AVX2 without VNNI saturates, so the emulation reaches other kernels; those of SSE4.1 widen to 16 bits first
    assert (found.pop("planted") == saturating) is (cpu != "Haswell")
    native = digests(models)
    del native["planted"]
    assert len(native) == len(OPERATORS) + 2 * len(FORMATS) + 3
    assert {name for name in native if found[name] != native[name]} == set()
