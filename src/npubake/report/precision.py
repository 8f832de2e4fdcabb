"""Report room: what an artifact computes in, and who decided it. Records of stages in, plain data out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One layer override and the groups that it matched. declined: matched, but no kernel for what was asked."""

    path: str
    match: Mapping[str, Any]
    change: Mapping[str, Any]
    groups: tuple[str, ...]
    declined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The lane, who decided it (``recipe`` or ``platform``), and what came of it. counts: ``{tensors: {dtype: n},
    weights: {dtype: n}, groups: {precision: n}}``; float_groups: what stays in float, each ``{group, kind, precision,
    why}``.
    """

    lane: str
    decided_by: str
    counts: Mapping[str, Mapping[str, int]]
    overrides: tuple[Override, ...] = ()
    float_groups: tuple[Mapping[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any], decided_by: str, lowered: Mapping[str, Any]) -> Precision:
        """From the records of ``calibrate`` (or ``tune``) and, ``lowered``, of ``quantize``."""
        return cls(
            lane=record["lane"],
            decided_by=decided_by,
            counts={name: record["counts"][name] for name in ("tensors", "weights", "groups")},
            overrides=tuple(
                Override(
                    path=entry["path"],
                    match=entry["match"],
                    change=entry["change"],
                    groups=tuple(entry["groups"]),
                    declined=tuple(entry["declined"]),
                )
                for entry in record["overrides"]
            ),
            float_groups=tuple(record["float_groups"]),
            warnings=(*record["warnings"], *lowered["warnings"]),
        )

    @classmethod
    def from_adapted(
        cls,
        adapted: Mapping[str, Any],
        decided_by: str,
        decided: Mapping[str, Any] | None,
        groups: Mapping[str, str],
    ) -> Precision:
        """Of a toolchain whose ``adapt`` says what the compiler was given. adapted: its record; decided: that of
        ``calibrate`` or ``tune``, None where neither ran; groups: name and kind of every fusion group, for a model that
        is left in float.
        """
        tensors = Counter(entry["dtype"] for entry in adapted["tensors"].values())
        weights = Counter(entry["dtype"] for entry in adapted["weights"].values())
        counts = {"tensors": dict(sorted(tensors.items())), "weights": dict(sorted(weights.items()))}
        if decided is not None:
            known = cls.from_record(decided, decided_by, adapted)
            return replace(known, counts={**counts, "groups": known.counts["groups"]})
        left = groups if not adapted["tensors"] else {}
        why = f"lane {adapted['lane']} quantises nothing"
        return cls(
            lane=adapted["lane"],
            decided_by=decided_by,
            counts={**counts, "groups": {"float16": len(left)} if left else {}},
            float_groups=tuple(
                {"group": name, "kind": kind, "precision": "float16", "why": why} for name, kind in left.items()
            ),
            warnings=tuple(adapted["warnings"]),
        )
