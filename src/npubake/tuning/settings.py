"""tuning: what a recipe asks of ``tune``, read once from the stage's JSON parameters. Data; no onnx."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from npubake.quant.request import TUNED_STEPS

Level = Literal["none", "default", "best"]
MAX_INT16: Mapping[str, int] = {"none": 0, "default": 2, "best": 8}
HELD_OUT = 0.25  # the share of schemas/recipe.schema.json; a test compares them


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One step. asked: groups of which the recipe asks it; forbidden: groups from which it keeps it; words: what it
    says of each group that it asks it of, where that is a word; settings: its block of the recipe.
    """

    asked: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    words: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any]

    def among(self, groups: Collection[str], *, free: bool) -> frozenset[str]:
        """Of ``groups`` those that it is asked of; with ``free`` all from which it is not kept."""
        return frozenset(groups) - self.forbidden if free else frozenset(groups) & self.asked

    def saying(self, word: str) -> frozenset[str]:
        """The groups that it is asked of by ``word``."""
        return frozenset(name for name, said in self.words.items() if said == word)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """level, judge, held_out, max_int16: as in the recipe; limited: it states max_int16; transformed: it asks
    for the transformed graph; choices: of each step.
    """

    level: Level
    judge: bool
    held_out: float
    max_int16: int
    limited: bool
    transformed: bool
    choices: Mapping[str, Choice]

    @classmethod
    def from_params(
        cls,
        params: Mapping[str, Any],
        groups: Sequence[str],
        overrides: Sequence[Mapping[str, Any]] = (),
        matched: Sequence[tuple[str, ...]] = (),
        taught: Collection[str] | None = None,
    ) -> TuneSettings:
        """params: the stage's; groups: all groups; matched: the groups of each of ``overrides``, in order; taught:
        those that ``mod.layers`` names, None for all.
        """
        tuning = params.get("tuning", {})
        level: Level = tuning.get("level", "default")
        return cls(
            level=level,
            judge=tuning.get("judge", True),
            held_out=tuning.get("held_out", HELD_OUT),
            max_int16=tuning.get("max_int16", MAX_INT16[level]),
            limited="max_int16" in tuning,
            transformed=params.get("equivalent_transformation", False),
            choices={
                step: _choice(
                    step,
                    params.get(step),
                    [name for name in groups if step != "mod" or taught is None or name in taught],
                    overrides,
                    matched,
                )
                for step in TUNED_STEPS
            },
        )


def _choice(
    step: str,
    asked: Any,
    groups: Sequence[str],
    overrides: Sequence[Mapping[str, Any]],
    matched: Sequence[tuple[str, ...]],
) -> Choice:
    """The recipe's own word for all groups, then its layer overrides in order."""
    said: dict[str, Any] = {}
    if asked is not None:
        said = dict.fromkeys(groups, asked)
    for entry, names in zip(overrides, matched, strict=True):
        word = entry.get("set", {}).get(step)
        if word is not None:
            said.update(dict.fromkeys(names, word))
    return Choice(
        asked=frozenset(name for name, word in said.items() if _wanted(word)),
        forbidden=frozenset(name for name, word in said.items() if not _wanted(word)),
        words={name: word for name, word in said.items() if isinstance(word, str) and _wanted(word)},
        settings=asked if isinstance(asked, Mapping) else {},
    )


def _wanted(word: Any) -> bool:
    return word is not False and word != "none"
