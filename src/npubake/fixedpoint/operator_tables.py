"""Room ``fixedpoint``: elementwise operators by arity, in one number system. Names and operands in, values out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTables:
    """one, two: operators of one and of two operands without attributes; with_attributes: of (operands, attributes)."""

    one: Mapping[str, Callable[[Any], Any]]
    two: Mapping[str, Callable[[Any, Any], Any]]
    with_attributes: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], Any]]

    @property
    def operators(self) -> frozenset[str]:
        return frozenset((*self.one, *self.two, *self.with_attributes))

    def apply(self, op_type: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """The operator's result; KeyError for an operator that no table holds."""
        if op_type in self.one:
            return self.one[op_type](operands[0])
        if op_type in self.two:
            return self.two[op_type](operands[0], operands[1])
        return self.with_attributes[op_type](operands, attributes)
