"""Recipe room: files -> Recipe. Reads recipe files only; every fault of a recipe and its bases is raised at once."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path

from npubake.document.reader import Document, read_document
from npubake.document.schema import validate
from npubake.document.tree import Node, json_path
from npubake.errors import Fault, RecipeError
from npubake.nearest import did_you_mean
from npubake.recipe import convert
from npubake.recipe.extending import laid_on
from npubake.recipe.places import why_no_file
from npubake.recipe.recipe import Recipe
from npubake.recipe.rules import broken_rules

_MAX_BASES = 32  # recipes that build on one another; a longer chain was made by a machine, or is a mistake


def load_recipe(path: Path) -> Recipe:
    """Read, merge (``extends``), validate; opens nothing that the recipe names. Raises RecipeError with every fault."""
    whole = Document(file=str(path))
    files: list[Path] = []
    root = _merged(path, (), files, whole)
    own_name = _own_name(path, root)
    if root is not None and isinstance(root.value, dict):
        root = Node(value={key: child for key, child in root.value.items() if key != "extends"}, mark=root.mark)
        validate(whole, root, "recipe")
        if not whole.faults:
            whole.faults.extend(broken_rules(root))
    elif root is not None:
        kind = "a list" if isinstance(root.value, list) else "text" if isinstance(root.value, str) else "one value"
        what = f"the file is {kind} where a mapping belongs"
        whole.faults.append(Fault(what=what, where=str(root.mark), path="$", hint="Start with the line 'version: 1'."))
    if whole.faults or root is None:
        raise RecipeError(*in_reading_order(whole.faults))
    return _recipe(root, own_name, path, tuple(files))


def read_tree(path: Path) -> Node | None:
    """The merged tree of a recipe as far as its text can be read, valid or not; None where it cannot."""
    return _merged(path, (), [], Document(file=str(path)))


def in_reading_order(faults: Sequence[Fault]) -> list[Fault]:
    """By file, line and column."""
    return sorted(faults, key=_reading_order)


def _reading_order(fault: Fault) -> tuple[str, int, int]:
    parts = fault.where.rsplit(":", 2)
    line, column = (int(part) if part.isdigit() else 0 for part in [*parts[1:], "", ""][:2])
    return parts[0], line, column


def _merged(path: Path, above: tuple[Path, ...], files: list[Path], whole: Document) -> Node | None:
    """The tree of ``path`` laid on the tree of what it extends. Faults of the text go to ``whole``."""
    document = read_document(path)
    whole.faults.extend(document.faults)
    whole.faulty.update(document.faulty)
    root = document.root
    named = root.value.get("extends") if root is not None and isinstance(root.value, dict) else None
    if root is None or named is None or ("extends",) in document.faulty:
        files.append(path)
        return root
    chain = (*above, path)
    base = _base(named, chain)
    if isinstance(base, Fault):
        whole.faults.append(base)
        return root
    below = _merged(base, chain, files, whole)
    files.append(path)
    return laid_on(below, root)


def _base(named: Node, chain: tuple[Path, ...]) -> Path | Fault:
    """The file that ``extends`` names, or what is wrong with it. chain: the recipes that led here."""
    path = Path(os.path.normpath(chain[-1].parent / str(named.value)))
    if not (isinstance(named.value, str) and named.value):
        what, hint = (
            "no recipe is named here",
            "Write one file name, relative to this file; one recipe can be extended.",
        )
    elif path.resolve() in [link.resolve() for link in chain]:
        what = f"'extends' goes in a circle: {' -> '.join(link.name for link in (*chain, path))}"
        hint = "Remove one of them: the first recipe of a chain extends nothing."
    elif len(chain) > _MAX_BASES:
        what = f"more than {_MAX_BASES} recipes build on one another"
        hint = "Write the keys of some of them into one file."
    elif why_no_file(path):
        what = f"there is no recipe {named.value!r} to extend"
        others = [file.name for file in sorted(path.parent.glob("*.yaml"))]
        hint = did_you_mean(path.name, others) or "Name a recipe file, relative to this one."
    else:
        return path
    return Fault(what=what, where=str(named.mark), path="$.extends", hint=hint)


def _own_name(path: Path, root: Node | None) -> str:
    named = root.value.get("name") if root is not None and isinstance(root.value, dict) else None
    return named.value if named is not None and isinstance(named.value, str) else path.stem


def _recipe(root: Node, name: str, path: Path, files: tuple[Path, ...]) -> Recipe:
    data = root.plain()
    custom = "preprocess" in data
    request = data["preprocess"] if custom else data["preset"]
    options = data.get("platform_options", {})
    return Recipe(
        name=name,
        file=path,
        files=files,
        description=data.get("description", ""),
        model=convert.model_source(root, data["model"]),
        request=request,
        preprocessing=convert.preprocessing(request, custom),
        runtime_inputs=convert.runtime_inputs(data.get("runtime_input", {})),
        calibration=convert.calibration(root, data.get("calibration", {})),
        quant_config=convert.quant_config(root, data.get("quant_config", {})),
        layer_overrides=tuple(convert.layer_override(entry) for entry in data.get("layer_overrides", [])),
        remove=convert.remove(data.get("remove", {})),
        gates=convert.gates(data.get("gates", {})),
        metric=convert.metric(root, data.get("metric")),
        platforms=tuple(data["platforms"]) if "platforms" in data else (data["platform"],),
        single="platform" in data,
        platform_options={platform: convert.platform_options(entry) for platform, entry in options.items()},
        toolchain=data.get("toolchain"),
        toolchain_options=data.get("toolchain_options", {}),
        runtime_options=data.get("runtime_options", {}),
        licence=convert.licence(data.get("licence", {})),
        positions={json_path(place): str(node.mark) for place, node in root.walk()},
    )


def discover(project: Path) -> dict[str, Path]:
    """Recipes of a project, name -> file, in order of file names: ``recipes/*.yaml`` but for names that start with _.

    Only the name is read; a file that cannot be read counts under its own name, so that loading it explains why.
    Raises RecipeError where two files give the same name.
    """
    found: dict[str, Path] = {}
    faults = []
    files = (*(project / "recipes").glob("*.yaml"), *(project / "recipes").glob("*.yml"))
    for path in sorted(files):
        if path.name.startswith("_"):
            continue
        root = read_document(path).root
        name = _own_name(path, root)
        if name in found:
            where = str(root.find(("name",)).mark) if root else str(path)
            what = f"the recipe name {name!r} is taken by {found[name].name}"
            faults.append(Fault(what=what, where=where, path="$.name", hint="Give each recipe a name of its own."))
        else:
            found[name] = path
    if faults:
        raise RecipeError(*faults)
    return found
