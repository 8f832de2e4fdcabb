"""docs/recipes.md and docs/platforms.md are current, and their examples load."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from npubake.document.reader import Document, read_text
from npubake.document.schema import schema_text
from npubake.platforms import load_platform
from npubake.recipe.loader import load_recipe
from tests.recipe.writing import SMALL, write

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_generated_parts_are_current() -> None:
    script = ROOT / "docs" / "generate_reference.py"
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, str(script), "--check"], env=environment, check=False)
    assert done.returncode == 0, "run: python docs/generate_reference.py"


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_of_the_recipe_page_load(tmp_path: Path, number: int) -> None:
    text = EXAMPLES[number]
    write(tmp_path, "yolo_640.yaml", (ROOT / "recipes" / "yolo_640.yaml").read_text(encoding="utf-8"))
    if "version:" not in text:
        replaced = "preset: classification\n" if text.startswith("pre") else ""
        text = SMALL.replace(replaced, "") + text
    assert load_recipe(write(tmp_path, "example.yaml", text)).name == "example"


def test_the_example_of_the_platform_page_loads(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "board_x.yaml").write_text(text, encoding="utf-8")
    assert load_platform(tmp_path / "board_x.yaml").nv12_stride_bytes.value == 16


@pytest.mark.parametrize("name", ["yolo_640", "digits_mobilenet", "digits_vit"])
def test_shipped_recipes_name_their_schema_for_editors(name: str) -> None:
    path = ROOT / "recipes" / f"{name}.yaml"
    first = path.read_text(encoding="utf-8").splitlines()[0]
    named = (path.parent / first.removeprefix("# yaml-language-server: $schema=")).resolve()
    assert named.read_text(encoding="utf-8") == schema_text("recipe")
    document = Document(file=str(path))
    read_text(path.read_bytes(), document)
    assert document.faults == []
