"""Room ``graph``: what the import changed, as it travels in the model, and as a person reads it. Data and text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import onnx

from npubake.graph.outlining import Outlined
from npubake.graph.summary import Provenance

_KEY = "npubake.import"  # in the model's metadata_props
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportNotes:
    """What the import changed. promoted: names that were half precision; narrowed: that were double; named: nodes that
    got a name, and why; inlined: If nodes that went; opset_from: the source's opset; dequantised: fake quantisers that
    went; ranges: tensor -> what they stood for; outlined: nodes whose inner graphs stay in float, with the names
    inside; foreign: operators outside the standard, as ``domain.operator``.
    """

    opset_from: int
    promoted: tuple[str, ...]
    named: Mapping[str, str]
    inlined: tuple[str, ...]
    initialisers_no_longer_inputs: tuple[str, ...]
    dequantised: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    outlined: tuple[Outlined, ...] = ()
    foreign: tuple[str, ...] = ()
    narrowed: tuple[str, ...] = ()

    def attach(self, model: onnx.ModelProto) -> None:
        """Write them into ``model``."""
        entry = model.metadata_props.add()
        entry.key, entry.value = _KEY, json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, model: onnx.ModelProto) -> ImportNotes | None:
        """Those of an imported model, or of what was made from one; None where there are none."""
        text = next((entry.value for entry in model.metadata_props if entry.key == _KEY), "")
        if not text:
            return None
        data = json.loads(text)
        outlined = (Outlined(**{**entry, "inner": tuple(entry["inner"])}) for entry in data.pop("outlined"))
        ranges = {name: (ends[0], ends[1]) for name, ends in data.pop("ranges").items()}
        named = data.pop("named")
        opset = int(data.pop("opset_from"))
        lists = {name: tuple(map(str, value)) for name, value in data.items()}
        return cls(opset_from=opset, named=named, outlined=tuple(outlined), ranges=ranges, **lists)

    def sentences(self) -> Iterator[str]:
        """What a person should know."""
        if self.promoted:
            yield f"the model was in half precision: {len(self.promoted)} of its parts became float32"
        if self.narrowed:
            yield f"the model was in double precision: {len(self.narrowed)} of its parts were rounded to float32"
        for entry in self.outlined:
            what = f"{len(entry.inner)} nodes in sub-graphs left float"
            yield f"{entry.op_type} {entry.node!r}: {what}: {_listed(entry.inner)}"
        if self.foreign:
            yield f"operators outside the ONNX standard stay in float: {_listed(self.foreign)}"
        if self.dequantised:
            yield (
                f"the model was quantised already: {len(self.dequantised)} fake quantisers are gone, "
                f"the ranges of {len(self.ranges)} tensors are kept for calibration"
            )

    def declared(self, provenance: Sequence[Provenance]) -> dict[str, tuple[float, float]]:
        """``ranges`` by the tensors' names in a graph made from the imported one; of a tensor that is split or gone
        none is known. old = factor * new: a range is divided by the factor.
        """
        found: dict[str, tuple[float, float]] = {}
        for record in provenance:
            if record.old in self.ranges and record.relation in ("same", "scaled"):
                ends = sorted(end / record.factor for end in self.ranges[record.old])
                low, high = found.get(record.new, (ends[0], ends[1]))
                found[record.new] = min(low, ends[0]), max(high, ends[1])
        return found


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
