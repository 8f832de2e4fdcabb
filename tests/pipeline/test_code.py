"""The digest of a stage's source, on a small package of its own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from npubake.pipeline.code import CodeDigests

FILES = {
    "__init__.py": "",
    "errors.py": "",
    "pipeline/__init__.py": "",
    "pipeline/stage.py": "",
    "stages/__init__.py": "from bake.stages import scale\n",
    "stages/scale.py": "import bake.pipeline.stage\nfrom bake.errors import Fault\nfrom bake.quant import rounding\n",
    "stages/other.py": "import json\n",
    "quant/__init__.py": "",
    "quant/rounding.py": "def run() -> None:\n    from . import tables\n",
    "quant/tables.py": 'LAZY = "bake.graph.passes:fold"\nfrom ..verify import metrics\n',
    "graph/__init__.py": "",
    "graph/passes.py": "import bake.graph.deep\n",
    "graph/deep.py": "",
    "graph/unused.py": "",
    "verify/__init__.py": "from bake.verify.cosine import cosine as metrics\n",
    "verify/cosine.py": "",
}
STAGE = "bake.stages.scale:run"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    for name, text in FILES.items():
        path = tmp_path / "src/bake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src/bake"


def digest(package: Path, run: str = STAGE) -> str | None:
    code = CodeDigests(package, package.parent.parent / "code.json")
    found = code.digest(run)
    code.save()
    return found


@pytest.mark.parametrize("name", FILES)
def test_only_what_a_stage_imports_counts(package: Path, name: str) -> None:
    before = digest(package)
    time.sleep(0.03)
    assert digest(package) == before
    (package / name).write_text(FILES[name] + "# edited\n")
    reached = {
        "stages/scale.py", "quant/rounding.py", "quant/tables.py", "graph/passes.py", "graph/deep.py",
        "verify/__init__.py", "verify/cosine.py",
    }  # fmt: skip
    assert (digest(package) != before) == (name in reached)


def test_stages_differ(package: Path) -> None:
    assert digest(package) != digest(package, "bake.stages.other:run")


def test_none_in_an_installed_wheel_and_outside_the_package(package: Path) -> None:
    assert digest(package, "elsewhere.stage:run") is None
    (package.parent.parent / "pyproject.toml").unlink()
    assert digest(package) is None


def test_the_cache_is_only_a_cache(package: Path) -> None:
    before = digest(package)
    time.sleep(0.03)
    digest(package)
    cache = package.parent.parent / "code.json"
    assert "bake.quant.tables" in cache.read_text()
    cache.write_text("{broken")
    assert digest(package) == before


def test_edit_during_the_process_is_seen_when_asked_again(package: Path) -> None:
    code = CodeDigests(package, package.parent.parent / "code.json")
    before = code.digest(STAGE)
    (package / "quant/tables.py").write_text("")
    assert code.digest(STAGE) == before
    code.forget()
    assert code.digest(STAGE) != before


def test_the_real_package_is_a_checkout_with_digests(tmp_path: Path) -> None:
    import npubake

    code = CodeDigests(Path(npubake.__file__).parent, tmp_path / "code.json")
    found = code.digest("npubake.pipeline.stage:Job")
    assert found is not None
    assert len(found) == 64
