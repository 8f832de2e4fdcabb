"""Import and optimise against outputs that PyTorch recorded: the small converted models in the onnx distribution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from npubake.errors import RecipeError
from npubake.graph.execution import run_model
from npubake.graph.importing import import_model
from npubake.graph.optimizing import optimize_model
from tests.graph.test_groups import assert_well_formed

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
CASES = sorted(
    path.parent for kind in ("pytorch-converted", "pytorch-operator") for path in DATA.glob(f"{kind}/*/model.onnx")
)
# The converter of onnx does not give PRelu's slopes of opset 6 the shape that opset 7 broadcasts.
REFUSED = [folder for folder in CASES if "PReLU" in folder.name and "multiparam" in folder.name]


def test_the_recorded_models_are_there() -> None:
    assert len(CASES) > 70


@pytest.mark.parametrize("folder", REFUSED, ids=lambda folder: folder.name)
def test_an_upgrade_that_breaks_the_model_is_refused(folder: Path) -> None:
    with pytest.raises(RecipeError):
        import_model((folder / "model.onnx").read_bytes(), {})


@pytest.mark.parametrize(
    "folder", [folder for folder in CASES if folder not in REFUSED], ids=lambda folder: folder.name
)
def test_outputs_are_the_recorded_ones(folder: Path) -> None:
    def arrays(kind: str) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        files = sorted(folder.glob(f"test_data_set_0/{kind}_*.pb"))
        return [numpy_helper.to_array(onnx.load_tensor(str(path))) for path in files]

    model = import_model((folder / "model.onnx").read_bytes(), {})
    optimized = optimize_model(model)
    given = [value.astype(np.float32) if value.dtype == np.float64 else value for value in arrays("input")]
    feeds = dict(zip((value.name for value in model.graph.input), given, strict=True))  # doubles became float32
    for candidate in (model, optimized.model):
        for actual, expected in zip(run_model(candidate, feeds).values(), arrays("output"), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
    assert_well_formed(optimized.model, optimized.summary.groups)
