"""Names: the known one that was meant, for the hint of a refusal. Text in, text out; imports nothing of the project."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LIKE = 0.5  # difflib's ratio: "Convolution" still finds "Conv"
_LISTED, _SHORT = 40, 10  # so many are listed whole; of more, the first


def nearest(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names most like ``name``, whatever their case; at most ``most``, none where none is near."""
    lowered = {candidate.lower(): candidate for candidate in sorted(known)}
    return [lowered[found] for found in difflib.get_close_matches(name.lower(), list(lowered), n=most, cutoff=_LIKE)]


def did_you_mean(name: str, known: Iterable[str], most: int = 1) -> str:
    """A hint: the nearest known names, and all of them where they are few; '' where nothing is known."""
    names = sorted(set(known))
    near = " or ".join(repr(found) for found in nearest(name, names, most))
    asked = f"Did you mean {near}?" if near else ""
    if not names or (near and len(names) > _LISTED):
        return asked
    listed = ", ".join(names) if len(names) <= _LISTED else f"{', '.join(names[:_SHORT])} and others"
    return f"{asked} Accepted: {listed}.".lstrip()
