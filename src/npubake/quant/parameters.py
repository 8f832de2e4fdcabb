"""quant: parameters as data: what ``calibrate`` decides, and ``ptq``, ``quantize`` and ``compile`` read.

Every scale lies on the grid that exact rounding allows (docs/arithmetic.md): for a weighted group with input scale si
and integer output scale so, the weight scale of output channel c is so / (si * D[c]) with D[c] = n / 2**k and n odd.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from npubake.errors import Fault, StageError

Precision = Literal["int8", "int16", "float16", "float32"]
OutputPrecision = Literal["int8", "int16"]
IntegerType = Literal["uint8", "int8", "uint16", "int16"]
WeightType = Literal["int4", "int8", "int16"]

OUTPUT_TYPES: Mapping[OutputPrecision, IntegerType] = {"int8": "uint8", "int16": "int16"}  # what a tensor is held as
LIMITS: Mapping[str, tuple[int, int]] = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParameters:
    """Integer form of one activation tensor: real = scale * (q - zero_point).

    low, high: the clipping range in real units, snapped to 10 mantissa bits; scale: a float32 value held as float.
    """

    dtype: IntegerType
    scale: float
    zero_point: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightParameters:
    """Integer form of a weighted group's constant operand: real = scales[c] * (code - zero_point) * multiplier.

    scales: one a channel along ``axis`` (per_tensor: all equal). divisors, shifts: n[c], odd, and k[c] of the
    requantisation by D[c] = n / 2**k; both empty when the group's accumulator is not requantised (it leaves as int32 or
    float). zero_points and multipliers: one a channel, or a channel and group of ``group_size`` input channels, the
    channels first; empty for zeros and ones. group_size 0: no groups. bias_scales = input scale * scales; the bias is
    rint(b / bias_scale) as int32.
    """

    initializer: str
    dtype: WeightType
    axis: int
    scales: tuple[float, ...]
    divisors: tuple[int, ...]
    shifts: tuple[int, ...] = ()
    zero_points: tuple[int, ...] = ()
    group_size: int = 0
    multipliers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupParameters:
    """What one fusion group computes in. precision: arithmetic of the group; accumulator_output: True where a GEMM-like
    group's output leaves as the int32 accumulator (graph tail, or its readers are all float). why: who decided, e.g.
    ``lane fp16_a8w8``, ``layer_overrides[0]``, ``no integer kernel``.
    """

    precision: Precision
    accumulator_output: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationParameters:
    """All parameters of one model. graph_digest: sha256 of the graph.json they were made for; readers refuse another.

    tensors: every tensor that is held as an integer somewhere; groups: every fusion group by name;
    weights: weighted integer groups by group name. lane: the lane asked for, canonical spelling. inner: tensors that
    never leave the kernel of a weighted group and its fused function (int16 there, no quantiser in the QDQ model).
    """

    graph_digest: str
    lane: str
    tensors: Mapping[str, TensorParameters]
    groups: Mapping[str, GroupParameters]
    weights: Mapping[str, WeightParameters]
    inner: tuple[str, ...] = ()

    def require_graph(self, graph: Path) -> None:
        """Raise StageError where they were made for another graph.json than the file ``graph``."""
        digest = digest_of_graph(graph)
        if self.graph_digest != digest:
            what = f"the parameters were made for graph {self.graph_digest[:12]}, this one is {digest[:12]}"
            raise StageError(Fault(what=what, where="parameters", hint="run calibrate again on this graph"))

    def save(self, path: Path) -> None:
        """Write them as JSON, sorted, an entry a line."""
        values = {"version": 1, **{each.name: getattr(self, each.name) for each in fields(self)}}
        lines = ",\n".join(f"{json.dumps(name)}: {_json(values[name])}" for name in sorted(values))
        path.write_text("{\n" + lines + "\n}\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> QuantizationParameters:
        """Read what ``save`` wrote."""
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            graph_digest=data["graph_digest"],
            lane=data["lane"],
            inner=tuple(data["inner"]),
            tensors={name: TensorParameters(**entry) for name, entry in data["tensors"].items()},
            groups={name: GroupParameters(**entry) for name, entry in data["groups"].items()},
            weights={name: _weight_parameters(entry) for name, entry in data["weights"].items()},
        )


def _json(value: Any) -> str:
    if not isinstance(value, Mapping):
        return json.dumps(value)
    entries = (f" {json.dumps(key)}: {json.dumps(_plain(value[key]), sort_keys=True)}" for key in sorted(value))
    return "{\n" + ",\n".join(entries) + "\n}"


def _plain(entry: Any) -> dict[str, Any]:
    """Fields of a dataclass of plain values; ``asdict`` would copy each of its thousands of numbers by itself."""
    return {each.name: getattr(entry, each.name) for each in fields(entry)}


def _weight_parameters(entry: dict[str, Any]) -> WeightParameters:
    held: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return WeightParameters(**held)


def limits(parameters: TensorParameters) -> tuple[int, int]:
    """Lowest and highest q - zero_point."""
    low, high = LIMITS[parameters.dtype]
    return low - parameters.zero_point, high - parameters.zero_point


def digest_of_graph(graph: Path) -> str:
    """Hex sha256 of a graph.json: the name by which parameters know the graph they were made for."""
    return hashlib.sha256(graph.read_bytes()).hexdigest()
