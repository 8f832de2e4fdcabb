"""AIMET as the quantiser, with a process that writes a recorded form in AIMET's place: record, coverage, faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from npubake.errors import StageError
from npubake.graph.model_file import save_model
from npubake.toolchains.qualcomm.aimet import quantising
from npubake.toolchains.qualcomm.aimet.quantising import Quantised, quantise
from npubake.toolchains.qualcomm.aimet.settings import settings_of
from tests.toolchains.qualcomm.aimet import models

SETTINGS = settings_of({"lane": "a8w8", "march": "v73"})
X = {"name": "x", "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR", "is_sym": False, "scale": [0.02], "offset": [-128]}


def encodings(**changed: Any) -> str:
    return json.dumps({"version": "1.0.0", "activation_encodings": [{**X, **changed}], "param_encodings": []})


def run(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: onnx.ModelProto,
    text: str = encodings(),
    fused: tuple[tuple[str, str], ...] = (("Conv", "Relu"),),
) -> tuple[Quantised, list[int]]:
    """``quantise`` with ``model`` and ``text`` as what the process wrote; what progress was told."""

    def process(
        module: str, request: Mapping[str, Any], *, folder: Path, timeout: float, watch: Callable[[], None]
    ) -> dict[str, Any]:
        assert module.endswith(".aimet.simulation")
        assert (folder / request["model"]).is_file()
        assert timeout > 0
        for said in ("1", "", "2", "2"):
            (folder / "progress").write_text(said, encoding="utf-8")
            watch()
        onnx.save(model, folder / "quantised.onnx")
        (folder / "aimet.encodings").write_text(text, encoding="utf-8")
        return {"versions": {"aimet-onnx": "2.42.0"}, "fused": [list(pair) for pair in fused]}

    monkeypatch.setattr(quantising, "run_module", process)
    save_model(models.floating(), folder / "float.onnx")
    told: list[int] = []
    made = quantise(folder / "float.onnx", folder / "samples.npz", models.summary(), SETTINGS, told.append)
    return made, told


def test_the_record_says_what_became_of_every_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, told = run(tmp_path, monkeypatch, models.quantised())
    record = made.record
    assert told == [1, 2]
    assert record["coverage"]["activations"] == 4
    assert record["coverage"]["quantized"] == 3
    assert [entry["tensor"] for entry in record["coverage"]["float"]] == ["c"]
    assert record["weights"] == {"w": {"dtype": "int8", "axis": 0, "granularity": "per_channel"}}
    assert record["tensors"].keys() == {"x", "r", "y"}
    assert record["tensors"]["x"]["zero_point"] == 128
    assert record["quantiser"]["versions"] == {"aimet-onnx": "2.42.0"}
    assert made.encodings == encodings()
    json.dumps(record, allow_nan=False)


def test_a_tensor_without_encoding_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StageError) as caught:
        run(tmp_path, monkeypatch, models.quantised(), fused=())
    assert [fault.where for fault in caught.value.faults] == ["c"]
    assert caught.value.facts["coverage"]["quantized"] == 3


@pytest.mark.parametrize("changed", [{"scale": [0.021]}, {"offset": [-127]}, {"bw": 16}])
def test_a_model_that_contradicts_the_encodings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    with pytest.raises(StageError) as caught:
        run(tmp_path, monkeypatch, models.quantised(), encodings(**changed))
    assert [fault.where for fault in caught.value.faults] == ["x"]
