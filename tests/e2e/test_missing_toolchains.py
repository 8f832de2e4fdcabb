"""Recipes whose targets are of several toolchains, where one of these is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.workspace import Workspace

DOIT_LIST = [sys.executable, "-m", "doit", "list"]
CARD = {"name: generic": "name: card", "toolchains: [reference]": "toolchains: [mobilint]"}


@pytest.fixture
def mixed(built: Workspace) -> Workspace:
    """The built project with a second platform, whose toolchain no machine has."""
    folder = built.root / "platforms"
    text = (folder / "generic.yaml").read_text(encoding="utf-8")
    for old, new in CARD.items():
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "card.yaml").write_text(text, encoding="utf-8")
    built.edit("platform: generic", "platforms: [generic, card]")
    return built


@pytest.mark.untuned
@pytest.mark.parametrize("words", [("build", "small"), ("check", "recipe=small"), ("plan", "small"), ("build",)])
def test_the_whole_recipe_is_refused_with_what_to_install_and_what_can_be_built(
    mixed: Workspace, words: tuple[str, ...]
) -> None:
    refused = mixed.run(*words, "--json")
    assert refused.code == 2
    error = refused.json["error"]
    assert error["who"] == "toolchain"
    (fault,) = error["faults"]
    assert fault["where"] == "mobilint"
    assert "small_card needs it" in fault["what"]
    assert "recipe=small_generic" in fault["hint"]


@pytest.mark.untuned
def test_what_needs_nothing_is_built_by_name(mixed: Workspace) -> None:
    done = mixed.run("build", "recipe=small_generic", "--json")
    assert (done.code, list(done.json["targets"])) == (0, ["small_generic"])
    assert mixed.run("check", "small_generic").code == 0
    kept = mixed.run("build", "-k", "small", "--json")
    assert kept.code == 2
    assert kept.json["targets"]["small_generic"]["manifest"]
    assert kept.json["targets"]["small_card"]["manifest"] is None
    assert ["small_card needs it" in fault["what"] for fault in kept.json["faults"]] == [True]


@pytest.mark.untuned
def test_looking_at_the_project_needs_no_toolchain(mixed: Workspace) -> None:
    mixed.build("small_generic")
    rows = mixed.run("status", "--json").json["targets"]
    assert (rows["small_generic"]["current"], "needs" in rows["small_generic"]) == (True, False)
    assert rows["small_card"]["current"] is False
    assert "qb SDK" in rows["small_card"]["needs"][0]
    text = mixed.run("status")
    assert text.code == 0
    assert "toolchain missing" in text.out
    alone = mixed.run("status", "small_card")
    assert (alone.code, "never built" in alone.out) == (0, True)
    listed = mixed.run("list", "recipes", "--json").json["recipes"]
    assert listed[0]["targets"] == "small_generic small_card"
    assert mixed.run("doctor").code == 0
    tasks = subprocess.run(DOIT_LIST, cwd=mixed.root, env=mixed.env(), capture_output=True, text=True, check=False)
    assert (tasks.returncode, "small_generic" in tasks.stdout) == (0, True)
