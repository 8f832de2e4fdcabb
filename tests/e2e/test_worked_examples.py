"""Each worked example of "How it is quantised" passes ``check`` on a shipped model that has what it speaks of."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from npubake.recipe.loader import load_recipe
from tests.e2e.workspace import REPOSITORY, Workspace

BASES = ("digits_mobilenet", "digits_vit")


def test_each_worked_example_is_taken_by_a_shipped_model(tmp_path: Path) -> None:
    for part in ("models", "data", "recipes"):
        (tmp_path / part).mkdir()
    for base in BASES:
        shutil.copy(REPOSITORY / "models" / f"{base}.onnx", tmp_path / "models")
        shutil.copy(REPOSITORY / "recipes" / f"{base}.yaml", tmp_path / "recipes" / f"_{base}.yaml")
    shutil.copytree(REPOSITORY / "data" / "digits_cls", tmp_path / "data" / "digits_cls")
    examples = _examples()
    for number, text in examples.items():
        for base in BASES:
            recipe = f"version: 1\nextends: _{base}.yaml\nplatforms: [generic]\n{text}"
            (tmp_path / "recipes" / f"e{number}_{base}.yaml").write_text(recipe, encoding="utf-8")
    told = Workspace(tmp_path).run("check", "--quiet", "--json").out
    refused = [number for number in examples if all(f"/e{number}_{base}.yaml:" in told for base in BASES)]
    assert len(examples) > 10
    assert not refused, told


def test_recipes_that_are_shown_whole_can_be_read(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "recipes", tmp_path / "recipes")
    page = (REPOSITORY / "docs" / "recipes.md").read_text(encoding="utf-8")
    found = [
        text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if _is_whole(text) and "extends:" in text
    ]
    for number, text in enumerate(found):
        path = tmp_path / "recipes" / f"whole{number}.yaml"
        path.write_text(text, encoding="utf-8")
        assert load_recipe(path).name == path.stem
    assert found


def _examples() -> dict[int, str]:
    """By number; those that load what another build saved are not among them."""
    page = (REPOSITORY / "docs" / "recipes.md").read_text(encoding="utf-8")
    section = page[page.index("## How it is quantised") : page.index("## Removing operators")]
    blocks = enumerate(re.findall(r"```yaml\n(.*?)```", section, re.DOTALL))
    return {number: text for number, text in blocks if "load:" not in text and not _is_whole(text)}


def _is_whole(text: str) -> bool:
    """Whether it is a recipe by itself, which asks for a vendor's toolchain."""
    return text.startswith("version:")
