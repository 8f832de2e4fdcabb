"""Binaries that the real compiler made, read back, whole and damaged; and a multi-SoC one in the emulator."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npubake.errors import StageError
from npubake.toolchains.process import run_module
from npubake.toolchains.qualcomm.facts import CompilerOptions
from npubake.toolchains.qualcomm.htp.compiling import Asked, Attempt, attempt
from npubake.toolchains.qualcomm.htp.context_archive import context_binaries, is_archive, without_time
from npubake.toolchains.qualcomm.htp.htp_files import BINARY, WRAPPER, file_name
from npubake.toolchains.qualcomm.htp.metadata import Metadata, read_metadata
from npubake.toolchains.qualcomm.htp.options import SOCS
from tests.qualcomm import needs_qnn
from tests.qualcomm.networks import Builder, convolution, platform

pytestmark = needs_qnn


def made(model: onnx.ModelProto, soc_model: str = "77") -> Attempt:
    return attempt(
        Asked(model=model.SerializeToString(), platform=platform(soc_model), options=CompilerOptions(optimization=1))
    )


@pytest.fixture(scope="module")
def one() -> Attempt:
    return made(convolution("Relu"))


@pytest.fixture(scope="module")
def two() -> Attempt:
    return made(convolution("Relu"), "77,82")


def integer_edges() -> onnx.ModelProto:
    """``x`` uint8 with scale 0.5 and zero point 7, ``y`` uint16 with scale 0.25 and zero point 9."""
    made = Builder()
    scales = {"x": (0.5, np.uint8(7)), "y": (0.25, np.uint16(9))}
    for name, (scale, zero) in scales.items():
        made._constant(f"{name}/scale", np.float32(scale))
        made._constant(f"{name}/zero", zero)
    made.add("DequantizeLinear", ["x", "x/scale", "x/zero"], "real")
    made.add("Sigmoid", ["real"], "curved")
    made.add("QuantizeLinear", ["curved", "y/scale", "y/zero"], "y")
    kinds = {"x": onnx.TensorProto.UINT8, "y": onnx.TensorProto.UINT16}
    edges = {name: onnx.helper.make_tensor_value_info(name, kind, [1, 4, 6]) for name, kind in kinds.items()}
    graph = onnx.helper.make_graph(made.nodes, "edges", [edges["x"]], [edges["y"]], made.constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def test_that_scales_offsets_types_and_shapes_are_read() -> None:
    (part,) = read_metadata(made(integer_edges()).binary).parts
    (graph,) = part.graphs
    (source,), (result,) = graph.inputs, graph.outputs
    assert (source.name, source.dtype, source.qnn_dtype, source.shape) == ("x", "uint8", "UFIXED_POINT_8", (1, 4, 6))
    assert (source.scale, source.offset) == (0.5, -7)  # QNN: real = scale * (code + offset)
    assert (result.name, result.dtype, result.scale, result.offset) == ("y", "uint16", 0.25, -9)


def test_that_metadata_survives_json(two: Attempt) -> None:
    metadata = read_metadata(two.binary)
    assert Metadata.from_json(json.loads(json.dumps(metadata.to_json()))) == metadata


def test_that_a_binary_for_two_socs_names_both(two: Attempt) -> None:
    parts = read_metadata(two.binary).parts
    assert [(part.soc_model, part.arch) for part in parts] == [(77, "v73"), (82, "v75")]
    assert parts[0].graphs == parts[1].graphs
    assert is_archive(two.binary)
    assert without_time(two.binary) == two.binary


def test_that_the_emulator_takes_no_binary_for_several_socs(two: Attempt, one: Attempt, tmp_path: Path) -> None:
    """It looks for the SoC that it runs on, and an x86 machine is none: such a binary is emulated by its parts' own."""
    values = np.random.default_rng(1).uniform(-1, 1, (1, 3, 16, 16)).astype(np.float32)

    def run(name: str, artifact: Attempt) -> np.ndarray[Any, Any]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / WRAPPER).write_bytes(artifact.wrapper)
        (folder / BINARY).write_bytes(artifact.binary)
        np.save(folder / file_name(0, 0, "in"), values)
        request = {"inputs": ["x"], "outputs": ["y"], "examples": [0], "strict": True}
        run_module("npubake.toolchains.qualcomm.htp.htp_emulator", request, folder=folder, timeout=100)
        answer: np.ndarray[Any, Any] = np.load(folder / file_name(0, 0, "out"))
        return answer

    assert np.ptp(run("one", one)) > 0
    with pytest.raises(StageError, match="CREATE_FROM_BINARY"):
        run("two", two)


@pytest.mark.parametrize("soc_model", sorted(SOCS))
def test_that_the_table_of_socs_is_what_the_compiler_makes(soc_model: int, tmp_path: Path) -> None:
    """The table's architecture beside the one in a binary that was compiled for that soc_model alone."""
    (tmp_path / "model.onnx").write_bytes(convolution().SerializeToString())
    request = {"provider": {"soc_model": str(soc_model)}, "strict": True, "reasons": False}
    run_module("npubake.toolchains.qualcomm.htp.htp_compiler", request, folder=tmp_path, timeout=100)
    (part,) = read_metadata((tmp_path / BINARY).read_bytes()).parts
    assert (part.soc_model, part.arch) == (soc_model, SOCS[soc_model].arch)


def test_that_damage_is_refused_or_read_and_never_a_crash(one: Attempt, two: Attempt) -> None:
    chance = random.Random(5)
    whole = {"one": one.binary, "two": two.binary}
    cut = [data[: chance.randrange(len(data))] for data in whole.values() for _ in range(3)]
    noise = [b"", b"PK\x03\x04", chance.randbytes(5000)]
    for damaged in (*cut, *noise):
        with pytest.raises(StageError):
            read_metadata(damaged)
    header = bytearray(one.binary)
    for place in range(0, 256, 5):
        header[place] ^= 0xFF
    with pytest.raises(StageError):
        read_metadata(bytes(header))


def test_that_an_archive_with_a_damaged_part_is_refused(two: Attempt) -> None:
    (first, *_) = context_binaries(two.binary).values()
    place = two.binary.index(first)
    with pytest.raises(StageError, match="whole context binary"):
        read_metadata(two.binary[:place] + bytes(64) + two.binary[place + 64 :])


def test_a_library_that_cannot_be_loaded_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import onnxruntime_qnn

    from npubake.toolchains.qualcomm.htp import context_reader

    (tmp_path / "libQnnSystem.so").write_bytes(b"half of it")
    monkeypatch.setattr(onnxruntime_qnn, "LIB_DIR_FULL_PATH", str(tmp_path))
    with pytest.raises(StageError) as caught:
        context_reader.answer({"binaries": []})
    assert [fault.where for fault in caught.value.faults] == ["libQnnSystem.so"]
