"""MOD of one layer, from the recipe to the manifest."""

from __future__ import annotations

import json

from tests.e2e.workspace import Workspace

CHOICE = "  calibration: {method: percentile, percentile: 0.9999, asymmetric: true}\n"
LAYER = "/stem/stem.0/Conv"


def test_a_recipe_teaches_one_layer(built: Workspace) -> None:
    before = built.bundle()
    built.edit(CHOICE, CHOICE + f'  tuning: {{level: none, judge: false}}\n  mod: {{layers: ["{LAYER}"], epochs: 5}}\n')
    done = built.run("build", "small", "--json")
    assert done.code == 0, done.err
    assert not {"observe", "calibrate"} & set(done.ran())
    manifest = json.loads((built.root / "build" / "small" / "manifest.json").read_text())["reproducible"]
    (trial,) = manifest["tuning"]["trials"]
    assert (trial["step"], trial["kept"], trial["settings"]["layers"]) == ("mod", True, 1)
    assert built.bundle() != before
    layers = built.run("plan", "small", "--layers", "--json").json["layers"]["small"]
    taught = {layer["layer"] for layer in layers if layer["settings"].get("mod", {}).get("value") is True}
    assert taught == {LAYER}


def test_layers_that_are_not_there_are_refused(built: Workspace) -> None:
    built.edit(CHOICE, CHOICE + "  mod: {layers: [nowhere]}\n")
    done = built.run("build", "small")
    assert done.code != 0
    assert "nowhere" in done.err
