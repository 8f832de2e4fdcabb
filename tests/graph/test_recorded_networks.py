"""Import and optimise against outputs that PyTorch recorded: the small converted models in the onnx distribution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

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

DOUBLES = [folder for folder in CASES if "double[" in onnx.printer.to_text(onnx.load(folder / "model.onnx"))]


def test_the_recorded_models_are_there() -> None:
    assert len(CASES) > 70


@pytest.mark.parametrize("folder", REFUSED, ids=lambda folder: folder.name)
def test_an_upgrade_that_breaks_the_model_is_refused(folder: Path) -> None:
    with pytest.raises(RecipeError):
        import_model((folder / "model.onnx").read_bytes(), {})


@pytest.mark.parametrize(
    "folder", [folder for folder in CASES if folder not in (*REFUSED, *DOUBLES)], ids=lambda folder: folder.name
)
def test_outputs_are_the_recorded_ones(folder: Path) -> None:
    def arrays(kind: str) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        files = sorted(folder.glob(f"test_data_set_0/{kind}_*.pb"))
        return [numpy_helper.to_array(onnx.load_tensor(str(path))) for path in files]

    model = import_model((folder / "model.onnx").read_bytes(), {})
    optimized = optimize_model(model)
    feeds = dict(zip((value.name for value in model.graph.input), arrays("input"), strict=True))
    for candidate in (model, optimized.model):
        for actual, expected in zip(run_model(candidate, feeds).values(), arrays("output"), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
    assert_well_formed(optimized.model, optimized.summary.groups)


@pytest.mark.parametrize("folder", DOUBLES, ids=lambda folder: folder.name)
def test_doubles_become_float32(folder: Path) -> None:
    """What was recorded of them lies beyond float32: other numbers, and onnx's evaluator on the source."""
    source = onnx.load(folder / "model.onnx")
    optimized = optimize_model(import_model(source.SerializeToString(), {})).model
    generator = np.random.default_rng(2)
    feeds = {
        value.name: generator.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim])
        for value in source.graph.input
    }
    narrow = {name: value.astype(np.float32) for name, value in feeds.items()}
    for actual, expected in zip(
        run_model(optimized, narrow).values(), ReferenceEvaluator(source).run(None, feeds), strict=True
    ):
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
