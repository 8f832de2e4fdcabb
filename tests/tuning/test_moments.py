"""Moments against sums over the columns themselves, and a whole pass against activations of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from npubake.calibration.inference import TensorSession
from npubake.calibration.samples import SampleSet
from npubake.graph.summary import GraphSummary
from npubake.stages import import_model, optimize
from npubake.tuning.matrix_form import MatrixForm, chosen_positions, columns_at, matrix_forms
from npubake.tuning.moments import Moments, accumulate, float_inputs, positions_of
from tests.calibration.sets import PREPARED, build, job, request
from tests.tuning.layers import LAYERS, layer

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "digits_mobilenet.onnx"


def all_columns(form: MatrixForm, examples: NDArray[np.float32]) -> NDArray[np.float64]:
    read = [columns_at(form, x, np.arange(form.positions)) for x in examples]
    return np.concatenate(read, axis=2).astype(np.float64)


@pytest.mark.parametrize("name", LAYERS)
def test_all_positions_of_a_few_examples(name: str) -> None:
    made = layer(name)
    form = matrix_forms(made.model, made.summary, ["layer"])["layer"]
    examples = made.inputs(3)
    moments = Moments.empty(form)
    for index, x in enumerate(examples):
        accumulate(moments, form, x, index, positions=4 * form.positions)
    columns = all_columns(form, examples)
    assert moments.count == columns.shape[2]
    np.testing.assert_allclose(moments.mean(), columns.mean(axis=2), atol=1e-6)
    np.testing.assert_allclose(moments.raw(), np.einsum("gip,gjp->gij", columns, columns) / moments.count, atol=1e-5)
    wanted = np.stack([np.cov(group, bias=True).reshape(form.columns, form.columns) for group in columns])
    np.testing.assert_allclose(moments.centred(), wanted, atol=1e-5)
    np.testing.assert_array_equal(moments.centred_cross(), moments.centred())
    np.testing.assert_array_equal(moments.target_mean(), moments.mean())


def test_moments_against_a_target() -> None:
    made = layer("grouped")
    form = matrix_forms(made.model, made.summary, ["layer"])["layer"]
    floats, rounded = made.inputs(4), made.inputs(4, seed=2)
    moments = Moments.empty(form, asymmetric=True)
    for index in range(4):
        accumulate(moments, form, rounded[index], index, positions=4 * form.positions, target=floats[index])
    t, x = all_columns(form, floats), all_columns(form, rounded)
    np.testing.assert_allclose(moments.mean(), x.mean(axis=2), atol=1e-6)
    np.testing.assert_allclose(moments.target_mean(), t.mean(axis=2), atol=1e-6)
    cross = np.einsum("gip,gjp->gij", t - t.mean(axis=2, keepdims=True), x - x.mean(axis=2, keepdims=True))
    np.testing.assert_allclose(moments.centred_cross(), cross / x.shape[2], atol=1e-5)


@pytest.mark.parametrize("asymmetric", [True, False])
def test_a_target_belongs_to_asymmetric_moments(asymmetric: bool) -> None:
    made = layer("plain")
    form = matrix_forms(made.model, made.summary, ["layer"])["layer"]
    x = made.inputs(1)[0]
    with pytest.raises(ValueError, match="target"):
        accumulate(Moments.empty(form, asymmetric), form, x, 0, target=None if asymmetric else x)


def test_kernels_of_few_columns_take_a_quarter_of_the_positions() -> None:
    made = layer("depthwise")
    form = matrix_forms(made.model, made.summary, ["layer"])["layer"]
    assert (form.columns, positions_of(form, 256), positions_of(form, 2)) == (9, 64, 1)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the optimised classifier, its graph.json and three examples."""
    folder = tmp_path_factory.mktemp("classifier")
    import_model.run(job(folder, {}, ("model",), model=MODEL))
    (folder / "model").rename(folder / "imported.onnx")
    optimize.run(job(folder, {}, ("model", "graph"), model=folder / "imported.onnx"))
    graph = GraphSummary.load(folder / "graph")
    files = sorted((ROOT / "data" / "digits_cls" / "calibration").glob("*.npy"))[:3]
    build([{"": file} for file in files], graph, request(PREPARED), folder / "samples")
    return folder


def weighted(folder: Path) -> list[str]:
    return [group.name for group in GraphSummary.load(folder / "graph").groups if group.kind in ("conv", "linear")]


def examples(folder: Path) -> dict[int, dict[str, NDArray[Any]]]:
    with SampleSet.open(folder / "samples") as samples:
        return {index: samples.read(index) for index in range(samples.count)}


def test_a_pass_over_the_classifier(classifier: Path) -> None:
    """By float64 sums over what ONNX Runtime says that each layer reads."""
    path, names = classifier / "model", weighted(classifier)
    forms = matrix_forms(onnx.load(path), GraphSummary.load(classifier / "graph"), names)
    feeds = examples(classifier)
    made = float_inputs(onnx.load(path), feeds, list(forms.values()), 40, threads=1)
    session = TensorSession(path, [form.tensor for form in forms.values() if form.tensor != "image"], 1)
    runs = [example | session.run(example) for example in feeds.values()]
    assert list(made) == names
    for name, form in forms.items():
        columns = np.concatenate(
            [
                columns_at(form, run[form.tensor], chosen_positions(form, index, positions_of(form, 40)))
                for index, run in enumerate(runs)
            ],
            axis=2,
        ).astype(np.float64)
        wanted = np.einsum("gip,gjp->gij", columns, columns) / columns.shape[2]
        np.testing.assert_allclose(made[name].raw(), wanted, atol=1e-5 * max(wanted.max(), 1e-30))


def test_the_same_bits_for_any_thread_count(classifier: Path) -> None:
    model, graph = onnx.load(classifier / "model"), GraphSummary.load(classifier / "graph")
    forms = list(matrix_forms(model, graph, weighted(classifier)).values())
    one, three = (float_inputs(model, examples(classifier), forms, 32, threads) for threads in (1, 3))
    for name, entry in one.items():
        assert entry.products.tobytes() == three[name].products.tobytes()
        assert entry.total.tobytes() == three[name].total.tobytes()
        assert np.array_equal(entry.products, entry.products.swapaxes(1, 2))
