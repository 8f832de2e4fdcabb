"""The error family: who must act, where, what was found, what to do next. Imports nothing of the project.

Every refusal of npubake is a ``BuildError``; it carries one or more ``Fault``s, so that a bad document reports all of
them at once. Whatever is not a ``BuildError`` is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong.

    what: what was found, one sentence; where: ``file:line:column``, a file or a node's name; path: place in a document,
    ``$.layer_overrides[1].match``; hint: what to do next.
    """

    what: str
    where: str = ""
    path: str = ""
    hint: str = ""

    def __str__(self) -> str:
        head = ": ".join(part for part in (self.where, self.path, self.what) if part)
        return f"{head}\n    {self.hint}" if self.hint else head


class BuildError(Exception):
    """A refusal with its faults; ``exit_code`` is what the command line ends with.

    facts: what programs read besides, as JSON values; it comes across the border of a worker process.
    """

    exit_code: ClassVar[int] = 1
    who: ClassVar[str] = "stage"

    def __init__(self, *faults: Fault, facts: Mapping[str, Any] | None = None) -> None:
        if not faults:
            raise ValueError("a BuildError needs at least one Fault")
        super().__init__(*faults)
        self.faults = faults
        self.facts = dict(facts or {})

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults)


class UsageError(BuildError):
    """The command line asks for something that does not exist. Who must act: the person at the keyboard."""

    exit_code = 2
    who = "command line"


class RecipeError(BuildError):
    """A recipe, its data or its model is wrong. Who must act: the recipe's author."""

    exit_code = 2
    who = "recipe"


class PlatformError(BuildError):
    """A platform file is wrong. Who must act: the platform file's author."""

    exit_code = 2
    who = "platform"


class ToolchainError(BuildError):
    """A toolchain is missing or cannot serve. Who must act: whoever installs it."""

    exit_code = 2
    who = "toolchain"


class StageError(BuildError):
    """A stage could not do its work on the inputs it was given."""

    exit_code = 1
    who = "stage"


class GateError(StageError):
    """A gate failed: names the boundary, the suspected stage and the first action. facts: ``checks`` of the gate."""

    who = "gate"


class StoreError(BuildError):
    """The store cannot be read or written, or holds damaged bytes."""

    exit_code = 1
    who = "store"
