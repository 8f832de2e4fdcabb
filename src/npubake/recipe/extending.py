"""Recipe room: a recipe's tree laid on the tree of what it extends. Trees in, a tree out; places stay."""

from __future__ import annotations

from npubake.document.tree import Node
from npubake.document.tree import Path as Place

# A recipe that states one of a pair takes the other of the pair away from what it extends.
_ALTERNATIVES = (("platform", "platforms"), ("preset", "preprocess"))
# A recipe that states the first takes away the second, which only refined what the first said before.
_REFINEMENTS = {"method": "percentile", "type": "range", "kind": "fill", "granularity": "group_size"}
_NEVER_INHERITED = ("name", "extends")


def laid_on(base: Node | None, over: Node, place: Place = ()) -> Node:
    """``over`` laid on ``base``: mappings merge deeply, lists and scalars replace, null takes an inherited key away.

    A null that takes nothing away stays, for the schema to refuse.
    """
    if base is None or not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    inherited = base.value if place else _without_foreign_options(base.value, over.value)
    merged = {name: child for name, child in inherited.items() if name not in _yielding(over.value, place)}
    for name, child in over.value.items():
        if child.value is None and name in merged and not _null_is_a_value((*place, name)):
            del merged[name]
        else:
            merged[name] = laid_on(merged.get(name), child, (*place, name))
    return Node(value=merged, mark=over.mark, key=over.key)


def _yielding(stated: dict[str, Node], place: Place) -> set[str]:
    """Inherited keys that what the recipe states at ``place`` takes away without naming them."""
    if not place:
        others = {name for pair in _ALTERNATIVES if any(name in stated for name in pair) for name in pair}
        return {*_NEVER_INHERITED, *(others - set(stated))}
    if place[0] in ("toolchain_options", "runtime_options"):
        return set()  # handed on as they are
    return {refined for name, refined in _REFINEMENTS.items() if name in stated}


def _without_foreign_options(inherited: dict[str, Node], stated: dict[str, Node]) -> dict[str, Node]:
    """Without the inherited options of platforms that the recipe, which states its own, neither builds nor names."""
    options = inherited.get("platform_options")
    if options is None or not isinstance(options.value, dict) or not {"platform", "platforms"} & stated.keys():
        return inherited
    named = [stated[key] for key in ("platform", "platforms", "platform_options") if key in stated]
    kept = {name for node in named for name in _names(node)}
    value = {name: child for name, child in options.value.items() if name in kept}
    return {**inherited, "platform_options": Node(value=value, mark=options.mark, key=options.key)}


def _names(node: Node) -> list[str]:
    """A name, those of a list, or the keys of a mapping."""
    if isinstance(node.value, dict):
        return list(node.value)
    items = node.value if isinstance(node.value, list) else [node]
    return [item.value for item in items if isinstance(item.value, str)]


def _null_is_a_value(place: Place) -> bool:
    """Whether null means something of its own there: a threshold that is measured, not judged."""
    return place[0] == "gates" and len(place) == 3
