"""``npubake plan --layers``: what each layer is set to, and who decided."""

from __future__ import annotations

from tests.e2e.workspace import Workspace


def test_layers_name_the_line_that_decided(built: Workspace) -> None:
    recipe = built.root / "recipes" / "small.yaml"
    line = 1 + recipe.read_text().splitlines().index("  - match: {op_types: [GlobalAveragePool]}")
    asked = built.run("plan", "small", "--layers", "--match", "GlobalAveragePool", "--json")
    (layer,) = asked.json["layers"]["small"]
    activation = layer["settings"]["activation"]
    assert activation == {"value": "int16", "decided_by": f"layer_overrides[0] (recipes/small.yaml:{line})"}
    table = built.run("plan", "small", "--layers").out
    assert f"layer_overrides[0] (recipes/small.yaml:{line})" in table
    assert "lane a8w8 of platform generic" in table


def test_layers_follow_the_recipe_and_run_nothing(built: Workspace) -> None:
    built.edit("set: {activation: int16}", "set: {activation: float32}")
    (layer,) = built.run("plan", "--layers", "--match", "average", "--json").json["layers"]["small"]
    assert layer["settings"]["activation"]["value"] == "float32"
    built.edit("op_types: [GlobalAveragePool]", "op_types: [GlobalAveragePol]")
    refused = built.run("plan", "--layers")
    assert (refused.code, "'GlobalAveragePool'" in refused.err, "small.yaml:" in refused.err) == (2, True, True)


def test_layers_show_the_scales_that_are_loaded(built: Workspace) -> None:
    (built.root / "kept.json").write_bytes((built.root / "build" / "small" / "small_parameters.json").read_bytes())
    asked = "  calibration: {method: percentile, percentile: 0.9999, asymmetric: true}\n"
    built.edit(asked, "  tuning: {level: none}\n  load: {scales: ../kept.json}\n")
    line = 1 + built.recipe.read_text().splitlines().index("  load: {scales: ../kept.json}")
    (layer,) = built.run("plan", "small", "--layers", "--match", "GlobalAveragePool", "--json").json["layers"]["small"]
    loaded = {"value": "loaded scale", "decided_by": f"quant_config.load.scales (recipes/small.yaml:{line})"}
    assert layer["settings"]["method"] == loaded


def test_layers_that_cannot_be_shown_are_refused(built: Workspace) -> None:
    for words in (["--layers", "--match", "nothing"], ["--match", "x"], ["--layers", "--graph", "dot"]):
        assert built.run("plan", "small", *words).code == 2, words


def test_a_graph_that_is_not_made_yet_is_asked_for(fresh: Workspace) -> None:
    refused = fresh.run("plan", "--layers")
    assert (refused.code, "npubake build small --until optimize" in refused.err) == (2, True)


def test_steps_that_no_layer_can_take_are_refused_with_their_lines(built: Workspace) -> None:
    """All at once: of the whole model and of a layer."""
    built.edit("quant_config:", "quant_config:\n  lane: fp16\n  hessian: true\n  weights: {bits: 4}")
    built.edit("set: {activation: int16}", "set: {activation: int16, hessian: true}")
    lines = (built.root / "recipes" / "small.yaml").read_text().splitlines()
    refused = built.run("check", "small")
    assert refused.code == 2
    for key in ("  hessian: true", "  weights: {bits: 4}", "    set: {activation: int16, hessian: true}"):
        assert f"small.yaml:{1 + lines.index(key)}:" in refused.err
