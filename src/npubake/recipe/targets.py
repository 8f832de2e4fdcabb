"""Recipe room: recipes times platforms -> targets, and typed names -> targets. No I/O but for ``load_catalogue``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from npubake.document.tree import json_path
from npubake.errors import Fault, RecipeError, UsageError
from npubake.nearest import did_you_mean
from npubake.platforms import Platform, load_platforms
from npubake.recipe.loader import discover, in_reading_order, load_recipe, read_tree
from npubake.recipe.named import named_faults, platform_at
from npubake.recipe.recipe import PlatformOptions, Recipe, RuntimeInput

TRIAL_SUFFIX = "-fast"  # of the folder below build/ that a --fast trial goes to


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The precision of a target and who chose it. value: canonical, never ``platform``."""

    value: str
    decided_by: Literal["recipe", "platform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One recipe on one platform by one toolchain; the decided_by fields name who chose."""

    name: str
    recipe: Recipe
    platform: Platform
    toolchain: str
    toolchain_decided_by: Literal["command line", "recipe", "platform"]
    lane: Lane

    @property
    def options(self) -> PlatformOptions:
        return self.recipe.options(self.platform.name)

    @property
    def runtime_inputs(self) -> dict[str, RuntimeInput]:
        return self.recipe.runtime_inputs_on(self.platform.name)

    def place(self, path: str) -> str:
        """Where the recipe says what a stage found at a JSON path: a runtime input that the platform's own options
        state stands below them.
        """
        for name in self.options.runtime_inputs:
            general = f"$.runtime_input.{name}"
            if path == general or path.startswith(f"{general}."):
                return json_path(("platform_options", self.platform.name)) + path.removeprefix("$")
        return path


def targets(recipe: Recipe, platforms: Mapping[str, Platform], toolchain: str | None = None) -> tuple[Target, ...]:
    """The targets of one recipe in the order of its platforms; ``toolchain`` overrules the recipe's.

    Raises RecipeError: a platform that has no file, a toolchain that does not serve it, options it cannot take.
    """
    faults: list[Fault] = []
    found = []
    for index, name in enumerate(recipe.platforms):
        path = "$.platform" if recipe.single else f"$.platforms[{index}]"
        platform = platform_at(name, recipe.where(path), path, platforms)
        if isinstance(platform, tuple):
            faults.extend(platform)
            continue
        faults.extend(_misfits(recipe, platform, toolchain))
        found.append(_target(recipe, platform, toolchain))
    if len(found) == len(recipe.platforms) and toolchain is None:
        faults.extend(_unread(recipe, found))
    if faults:
        raise RecipeError(*faults)
    return tuple(found)


def _unread(recipe: Recipe, found: Sequence[Target]) -> Iterable[Fault]:
    """Options of a toolchain that makes none of the targets: they would be ignored. Inherited ones were for others."""
    path = "$.toolchain_options.qualcomm"
    stated = recipe.positions.get(path, "").startswith(f"{recipe.file}:")
    if stated and all(target.toolchain != "qualcomm" for target in found):
        makers = " and ".join(dict.fromkeys(target.toolchain for target in found))
        what = f"options of toolchain qualcomm, which makes no target of this recipe ({makers} makes them)"
        hint = "Remove them, or add a platform that it serves, as qcs9075."
        yield Fault(what=what, where=recipe.where(path), path=path, hint=hint)


def _target(recipe: Recipe, platform: Platform, asked: str | None) -> Target:
    default = platform.toolchains[0]
    toolchain = asked or recipe.toolchain or default
    name = recipe.name if recipe.single else f"{recipe.name}_{platform.name.replace('+', '-')}"
    stated = recipe.quant_config.lane
    return Target(
        name=name if toolchain == default else f"{name}_{toolchain}",
        recipe=recipe,
        platform=platform,
        toolchain=toolchain,
        toolchain_decided_by="command line" if asked else "recipe" if recipe.toolchain else "platform",
        lane=Lane(value=platform.lane.value, decided_by="platform")
        if stated == "platform"
        else Lane(value=stated, decided_by="recipe"),
    )


def _misfits(recipe: Recipe, platform: Platform, asked: str | None) -> Iterable[Fault]:
    """What the recipe asks of a platform that its file rules out."""
    toolchain = asked or recipe.toolchain
    if toolchain is not None and toolchain not in platform.toolchains:
        yield Fault(
            what=f"toolchain {toolchain!r} does not serve {platform.name}",
            where="--toolchain" if asked else recipe.where("$.toolchain"),
            path="" if asked else "$.toolchain",
            hint=f"{platform.name} is served by: {', '.join(platform.toolchains)}.",
        )
    yield from _option_misfits(recipe, platform)
    yield from _memory_misfits(recipe, platform)


def _option_misfits(recipe: Recipe, platform: Platform) -> Iterable[Fault]:
    """What ``platform_options`` asks that the platform's file rules out."""
    options = recipe.options(platform.name)
    base = json_path(("platform_options", platform.name))
    if options.core_num > platform.max_core_num.value:
        path = f"{base}.core_num"
        what = f"{options.core_num} cores on {platform.name}, which has at most {platform.max_core_num.value}"
        hint = platform.max_core_num.note or f"At most {platform.max_core_num.value}; 1 is the default."
        yield Fault(what=what, where=recipe.where(path), path=path, hint=hint)
    limit = platform.max_l2m_bytes.value
    if options.max_l2m_bytes and options.max_l2m_bytes > (limit or 0):
        path = f"{base}.max_l2m_size"
        what = f"{options.max_l2m_bytes} bytes of L2M on {platform.name}"
        hint = f"At most {limit} bytes ({limit / (1 << 20):g} MiB)." if limit else "This platform has no L2M."
        yield Fault(what=what, where=recipe.where(path), path=path, hint=hint)
    if platform.soc_model.value is not None:
        for name in ("input_no_padding", "output_no_padding"):
            if getattr(options, name):
                path = f"{base}.{name}"
                what = f"'{name}' on {platform.name}, whose binaries pad nothing"
                hint = "Remove it: tensors of an HTP binary are dense; the option is one of Horizon platforms."
                yield Fault(what=what, where=recipe.where(path), path=path, hint=hint)


def _memory_misfits(recipe: Recipe, platform: Platform) -> Iterable[Fault]:
    """Vector memory beyond the SoC's: the compiler would lower it without a word."""
    asked, limit = recipe.toolchain_options.get("qualcomm", {}).get("vtcm_mb"), platform.vtcm_bytes.value
    if asked is not None and limit is not None and asked << 20 > limit:
        path = "$.toolchain_options.qualcomm.vtcm_mb"
        what = f"{asked} MiB of vector memory on {platform.name}, which has {limit >> 20}"
        hint = f"At most {limit >> 20}; without the key the graph may use all of it."
        yield Fault(what=what, where=recipe.where(path), path=path, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All that can be built. targets: by name; broken: recipes that cannot be loaded, by name, with why.

    A broken recipe stops only those who ask for it, or for everything.
    """

    root: Path
    recipes: Mapping[str, Recipe]
    platforms: Mapping[str, Platform]
    targets: Mapping[str, Target]
    broken: Mapping[str, RecipeError] = field(default_factory=dict)


def load_catalogue(root: Path) -> Catalogue:
    """Read every recipe and platform. Raises RecipeError where names collide, PlatformError for a bad platform file."""
    platforms = load_platforms(root)
    recipes: dict[str, Recipe] = {}
    found: dict[str, tuple[Target, ...]] = {}
    broken: dict[str, RecipeError] = {}
    for name, path in discover(root).items():
        try:
            recipe = load_recipe(path)
            found[name] = targets(recipe, platforms)
        except RecipeError as error:
            broken[name] = _with_named(error, path, platforms)
        else:
            recipes[name] = recipe
    everything = [target for several in found.values() for target in several]
    refuse_collisions(everything, recipes)
    return Catalogue(
        root=root,
        recipes=recipes,
        platforms=platforms,
        targets={target.name: target for target in everything},
        broken=broken,
    )


def _with_named(error: RecipeError, path: Path, platforms: Mapping[str, Platform]) -> RecipeError:
    """The error with what else the recipe names that does not exist, where its text can be read."""
    root = read_tree(path)
    taken = {fault.where for fault in error.faults}
    named = named_faults(root, platforms) if root is not None else []
    return RecipeError(*in_reading_order([*error.faults, *(fault for fault in named if fault.where not in taken)]))


def refuse_collisions(found: Sequence[Target], recipes: Mapping[str, Recipe]) -> None:
    """Raise RecipeError where two targets, or a target and another recipe, have one name."""
    faults: dict[str, Fault] = {}
    seen: dict[str, Target] = {}
    for target in found:
        twin = seen.setdefault(target.name, target)
        owner = twin.recipe if twin is not target else recipes.get(target.name, target.recipe)
        if twin is not target or owner.name != target.recipe.name:
            faults[target.name] = Fault(
                what=f"the target name {target.name!r} is also made by recipe {owner.name!r} ({owner.file.name})",
                where=target.recipe.where("$.name"),
                path="$.name",
                hint="Rename one of the two recipes.",
            )
    for target in found:
        trial_of = seen.get(target.name.removesuffix(TRIAL_SUFFIX))
        if trial_of is not None and trial_of is not target and target.name not in faults:
            faults[target.name] = Fault(
                what=f"a --fast trial of {trial_of.name!r} has the target name {target.name!r} too",
                where=target.recipe.where("$.name"),
                path="$.name",
                hint=f"Rename the recipe: {TRIAL_SUFFIX} marks trials.",
            )
    if faults:
        raise RecipeError(*faults.values())


def resolve(names: str | Sequence[str], catalogue: Catalogue, toolchain: str | None = None) -> tuple[Target, ...]:
    """Targets for what was typed: target names, recipe names (all its targets), comma lists; each target once.

    A name that ends in a toolchain of its platform (``yolo_640_j6p_horizon``) asks for that toolchain. Raises
    UsageError for an empty or unknown name, RecipeError where the recipe itself is broken.
    """
    texts = [names] if isinstance(names, str) else list(names)
    words = [word.strip() for text in texts for word in text.split(",")]
    if not words or not all(words):
        hint = f"Name a target or a recipe: {', '.join([*catalogue.recipes, *catalogue.broken])}."
        raise UsageError(Fault(what="an empty recipe name", hint=hint))
    found: dict[str, Target] = {}
    faults = []
    for word in words:
        several = _named(word, catalogue, toolchain)
        if not several:
            known = {*catalogue.targets, *catalogue.recipes, *catalogue.broken}
            faults.append(Fault(what=f"there is no target or recipe {word!r}", hint=did_you_mean(word, known)))
        found.update({target.name: target for target in several})
    if faults:
        raise UsageError(*faults)
    return tuple(found.values())


def _named(word: str, catalogue: Catalogue, toolchain: str | None) -> tuple[Target, ...]:
    if word in catalogue.recipes:
        return targets(catalogue.recipes[word], catalogue.platforms, toolchain)
    target = catalogue.targets.get(word)
    if target is not None:
        return _again(target, toolchain)
    for target in catalogue.targets.values():
        for other in target.platform.toolchains:
            (candidate,) = _again(target, other)
            if candidate.name == word and toolchain in (None, other):
                return (candidate,)
    for name, error in catalogue.broken.items():
        if word == name or word.startswith(f"{name}_"):
            raise error
    return ()


def _again(target: Target, toolchain: str | None) -> tuple[Target, ...]:
    """The same recipe and platform by ``toolchain``; refused where it does not serve the platform."""
    faults = tuple(_misfits(target.recipe, target.platform, toolchain)) if toolchain else ()
    if faults:
        raise RecipeError(*faults)
    return (_target(target.recipe, target.platform, toolchain),) if toolchain else (target,)
