"""Room ``graph``: a recipe's ``bits`` as layer overrides. Plain data enters and leaves; pure Python.

The policy is applied before the layer overrides, so that any of these wins over it; within it a role (few layers) wins
over an operator type (many), and a later role of ``ROLES`` over an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npubake.graph.roles import ROLES


def with_bit_policy(bits: Mapping[str, Any], overrides: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """``bits`` (``{op_types: {type: precision}, roles: {role: precision}}``) as overrides, then ``overrides``.

    What comes of ``bits`` carries its place in the recipe as ``path``; ``override_paths`` names all of them.
    """
    types, roles = bits.get("op_types", {}), bits.get("roles", {})
    known = {role: index for index, role in enumerate(ROLES)}
    ordered = [("op_types", name, types[name]) for name in sorted(types)]
    ordered += [("roles", name, roles[name]) for name in sorted(roles, key=lambda name: (known.get(name, -1), name))]
    policy = [
        {"match": {kind: [name]}, "set": {"activation": precision}, "path": f"quant_config.bits.{kind}.{name}"}
        for kind, name, precision in ordered
    ]
    return (*policy, *overrides)


def override_paths(overrides: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The place of each in the recipe: its own ``path``, or ``layer_overrides[n]``, counting only those without one."""
    paths, position = [], 0
    for override in overrides:
        own = override.get("path")
        paths.append(own if own is not None else f"layer_overrides[{position}]")
        position += own is None
    return tuple(paths)


def setting_path(path: str, key: str) -> str:
    """The place of one setting of the override at ``path``; what comes of ``bits`` is one, at that very place."""
    return path if path.startswith("quant_config.") else f"{path}.set.{key}"
