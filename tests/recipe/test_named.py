"""What a recipe names outside itself is told together with what is wrong inside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from npubake.errors import RecipeError
from npubake.recipe.targets import load_catalogue, resolve
from tests.recipe.writing import SMALL, write

LOST = """\
version: 1
model: {path: ../lost.onnx, baseline: ../lost.npz}
preset: classification
calibration: {data: ../lost}
metric: {name: top1, data: ../lost_too}
platforms: [generic, j6q]
"""
NAMED = ["$.model.path", "$.model.baseline", "lost", "lost_too", "$.platforms[1]"]


def told(folder: Path, name: str = "r") -> list[str]:
    """The path of each fault, or the last part of what a data path is."""
    with pytest.raises(RecipeError) as caught:
        resolve(name, load_catalogue(folder))
    return [fault.path or Path(fault.what.split(" ")[-1]).name for fault in caught.value.faults]


def test_paths_are_told_with_an_unknown_platform(tmp_path: Path) -> None:
    write(tmp_path, "r.yaml", LOST)
    assert told(tmp_path) == NAMED


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("nmae: x", "$.nmae"),  # the schema's
        ("description: no", "$.description"),  # a trap of YAML
        (
            "quant_config: {calibration: {percentile: 0.9}}",
            "$.quant_config.calibration.percentile",
        ),  # a rule between keys
    ],
)
def test_paths_and_platforms_are_told_with_other_faults(tmp_path: Path, more: str, path: str) -> None:
    write(tmp_path, "r.yaml", f"{LOST}{more}\n")
    assert told(tmp_path) == [*NAMED, path]


def test_a_key_that_is_faulty_itself_gets_one_fault(tmp_path: Path) -> None:
    write(tmp_path, "r.yaml", SMALL.replace("../m.onnx", "3").replace("{data: ../data}", "no"))
    assert told(tmp_path) == ["$.model.path", "$.calibration"]


def test_random_data_and_what_exists_are_no_faults(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    write(tmp_path, "r.yaml", SMALL.replace("../data", "random") + "nmae: x\n")
    assert told(tmp_path) == ["$.nmae"]


def test_what_a_base_names_is_looked_for_beside_the_base(tmp_path: Path) -> None:
    (tmp_path / "recipes" / "m.onnx").parent.mkdir()
    (tmp_path / "recipes" / "m.onnx").touch()
    write(tmp_path, "deep/_base.yaml", SMALL)
    write(tmp_path, "r.yaml", "version: 1\nextends: deep/_base.yaml\nnmae: x\n")
    assert told(tmp_path) == ["data", "$.nmae"]


def test_loaded_files_that_are_not_there_are_told_too(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    digest = "0123456789abcdef" * 4
    for samples, paths in (
        ("../lost.npz", ["$.quant_config.load.samples", "$.nmae"]),
        (f"{{path: ../lost.npz, digest: '{digest}'}}", ["$.quant_config.load.samples.path", "$.nmae"]),
        (f"'{digest}'", ["$.nmae"]),
    ):
        text = SMALL.replace("{data: ../data}", "{purpose: smoke}")
        write(tmp_path, "r.yaml", text + f"quant_config: {{load: {{samples: {samples}}}}}\nnmae: x\n")
        assert told(tmp_path) == paths
