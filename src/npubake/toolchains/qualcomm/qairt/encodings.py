"""Qualcomm toolchain, SDK road: our quantisation as the file of encodings that AIMET exports and the converters read.

A tensor of ``bits`` bits is, there, codes q of 0 .. 2**bits - 1 with real = scale * (q + offset): always an unsigned
grid. Ours is real = scale * (c - zero_point) with codes c from the lowest of the type, low: 0, -128, -8 or -32768.
With q = c - low the two are equal where

    offset = low - zero_point,   min = scale * offset,   max = scale * (offset + 2**bits - 1).

For uint8 that is -zero_point; a symmetric int8 weight has -128, an int16 activation -32768. A grid is symmetric where
offset = -2**(bits - 1): then the SDK holds it signed, with offset 0. Sources: AIMET, Docs/techniques/encoding_spec.rst
(0.6.1 and 1.0.0) and files that AIMET 2.42 wrote; reference of the QNN provider (offset = -zero point).

0.6.1 names each tensor once, with a list: one entry, or one a channel. 1.0.0 has one entry a tensor with lists inside.
What is not in the file, the converter decides by itself: ``conversion_log`` counts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from npubake.errors import Fault, StageError
from npubake.quant.parameters import LIMITS, QuantizationParameters, TensorParameters, WeightParameters

EncodingsVersion = Literal["0.6.1", "1.0.0"]
VERSIONS: tuple[EncodingsVersion, ...] = ("0.6.1", "1.0.0")
LOWEST: Mapping[str, int] = {"int4": -8, **{dtype: low for dtype, (low, _) in LIMITS.items()}}
BITS: Mapping[str, int] = {"int4": 4, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16}
FLOAT_BITS: Mapping[str, int] = {"float16": 16, "float32": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """One tensor. bits: of its integers, or (``scales`` empty) of its float; scales, offsets: one for the tensor, one a
    channel, or (block_size) one a channel and block of input channels, the channels first.
    """

    name: str
    bits: int
    scales: tuple[float, ...] = ()
    offsets: tuple[int, ...] = ()
    per_channel: bool = False
    block_size: int = 0

    @property
    def symmetric(self) -> bool:
        """Whether 0 is in the middle of the grid, so that the SDK holds signed integers."""
        return all(offset == -(2 ** (self.bits - 1)) for offset in self.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """A whole model's. activations, weights: in the order of their names."""

    activations: tuple[Encoding, ...]
    weights: tuple[Encoding, ...]

    @property
    def activation_bits(self) -> int:
        """The width of most integer activations, which tensors without an encoding would get; 8 where there is none."""
        return _most(entry.bits for entry in self.activations if entry.scales)

    @property
    def weight_bits(self) -> int:
        """The width of most weights; 8 where there is none."""
        return _most(entry.bits for entry in self.weights if entry.scales)


def offset(dtype: str, zero_point: int) -> int:
    """The offset of an unsigned grid whose codes begin at 0, for a zero point among codes of ``dtype``."""
    return LOWEST[dtype] - zero_point


def tensor_encoding(name: str, dtype: str, scale: float, zero_point: int) -> Encoding:
    """Of one scale. scale: float32 as float, above 0."""
    return Encoding(name=name, bits=BITS[dtype], scales=(scale,), offsets=(offset(dtype, zero_point),))


def weight_encoding(entry: WeightParameters) -> Encoding:
    """Of a weighted group's operand: a scale a channel, rounded to float32 as the QDQ model holds it."""
    scales = np.array(entry.scales, np.float64)
    if entry.group_size:
        scales = np.repeat(scales, len(entry.multipliers) // len(scales)) * np.array(entry.multipliers)
    zeros = entry.zero_points or (0,) * len(scales)
    return Encoding(
        name=entry.initializer,
        bits=BITS[entry.dtype],
        scales=tuple(float(scale) for scale in scales.astype(np.float32)),
        offsets=tuple(offset(entry.dtype, zero) for zero in zeros),
        per_channel=True,
        block_size=entry.group_size,
    )


def float_encoding(name: str, dtype: str) -> Encoding:
    """Of a tensor that stays float16 or float32."""
    return Encoding(name=name, bits=FLOAT_BITS[dtype])


def of_parameters(parameters: QuantizationParameters, floats: Mapping[str, str]) -> Encodings:
    """All that ``calibrate`` or ``tune`` decided. floats: tensor -> ``float16`` or ``float32`` where it stays so."""
    integers = {name: entry for name, entry in parameters.tensors.items() if name not in parameters.inner}
    made = [_activation(name, entry) for name, entry in integers.items()]
    made += [float_encoding(name, dtype) for name, dtype in floats.items() if name not in integers]
    return _sorted(made, map(weight_encoding, parameters.weights.values()))


def of_record(
    record: Mapping[str, Any], parameters: QuantizationParameters | None, initializers: Iterable[str]
) -> Encodings:
    """All that ``adapt`` gave a quantiser, its own ranges too. record: of ``adapt``; initializers: the constants of the
    float model, whose encodings stand among the weights'.
    """
    weights = {} if parameters is None else {entry.initializer: entry for entry in parameters.weights.values()}
    constants = set(initializers)
    ours: list[Encoding] = []
    theirs = [weight_encoding(entry) for entry in weights.values()]
    for name, entry in record["tensors"].items():
        if name in weights:
            continue
        made = tensor_encoding(name, entry["dtype"], float(entry["scale"]), int(entry["zero_point"]))
        (theirs if name in constants else ours).append(made)
    floats = {entry["tensor"] for entry in record["coverage"]["float"]} - set(record["tensors"])
    ours += [float_encoding(name, "float16") for name in floats]
    return _sorted(ours, theirs)


def of_file(content: Mapping[str, Any]) -> Encodings:
    """What a checked file of encodings holds, of either version: another quantiser's."""
    old = content["version"] == "0.6.1"
    made = [
        [_from_old(name, entries) for name, entries in content[side].items()] if old
        else [_from_new(entry) for entry in content[side]]
        for side in ("activation_encodings", "param_encodings")
    ]  # fmt: skip
    return _sorted(*made)


def extended(
    held: Encodings, renamed: Mapping[str, str], activations: Iterable[Encoding], weights: Iterable[Encoding]
) -> Encodings:
    """``held`` of a model that got more nodes. renamed: activation -> its name there; activations, weights: of what was
    added, which go before entries of the same name.
    """
    more = {entry.name: entry for entry in activations}
    kept = [replace(entry, name=renamed.get(entry.name, entry.name)) for entry in held.activations]
    return _sorted([*(entry for entry in kept if entry.name not in more), *more.values()], [*held.weights, *weights])


def encodings_text(encodings: Encodings, version: EncodingsVersion) -> str:
    """The file, sorted and with a line a tensor. Raises StageError where ``version`` cannot hold an entry."""
    if version == "0.6.1":
        _refuse_blocks(encodings.weights)
        sides = {
            "activation_encodings": {entry.name: _old_form(entry) for entry in encodings.activations},
            "param_encodings": {entry.name: _old_form(entry) for entry in encodings.weights},
        }
        parts = [_lines(side, _mapping(entries), "{}") for side, entries in sides.items()]
    else:
        lists = {"activation_encodings": encodings.activations, "param_encodings": encodings.weights}
        parts = [_lines(side, [json.dumps(_new_form(entry)) for entry in found], "[]") for side, found in lists.items()]
    arguments = json.dumps(_quantizer_args(encodings, version))
    head = [f'"version": {json.dumps(version)}', *parts, f'"quantizer_args": {arguments}']
    if version == "1.0.0":
        head.append('"excluded_layers": []')
    return "{\n" + ",\n".join(head) + "\n}\n"


def check_encodings(content: Mapping[str, Any]) -> None:
    """Raise StageError with every place where a file of encodings is not what its version's specification says."""
    from npubake.toolchains.qualcomm.qairt.encodings_schema import faults

    found = [Fault(what=what, where=where) for where, what in faults(content)]
    if found:
        raise StageError(*found)


def _activation(name: str, entry: TensorParameters) -> Encoding:
    return tensor_encoding(name, entry.dtype, entry.scale, entry.zero_point)


def _old_form(entry: Encoding) -> list[dict[str, Any]]:
    """0.6.1: one dictionary a scale; strings for truth values."""
    if not entry.scales:
        return [{"bitwidth": entry.bits, "dtype": "float"}]
    steps = 2**entry.bits - 1
    return [
        {
            "bitwidth": entry.bits,
            "dtype": "int",
            "is_symmetric": str(entry.symmetric),
            "max": scale * (first + steps),
            "min": scale * first,
            "offset": first,
            "scale": scale,
        }
        for scale, first in zip(entry.scales, entry.offsets, strict=True)
    ]


def _new_form(entry: Encoding) -> dict[str, Any]:
    """1.0.0: one dictionary a tensor, with a list of scales."""
    head = {"name": entry.name, "bw": entry.bits}
    if not entry.scales:
        return {**head, "dtype": "FLOAT", "enc_type": "PER_TENSOR"}
    blocks = {"block_size": entry.block_size} if entry.block_size else {}
    kind = "PER_BLOCK" if entry.block_size else "PER_CHANNEL" if entry.per_channel else "PER_TENSOR"
    facts = {"is_sym": entry.symmetric, "scale": list(entry.scales), "offset": list(entry.offsets)}
    return {**head, "dtype": "INT", "enc_type": kind, **blocks, **facts}


def _from_old(name: str, entries: list[dict[str, Any]]) -> Encoding:
    integers = [entry for entry in entries if entry["dtype"] == "int"]
    return Encoding(
        name=name,
        bits=entries[0]["bitwidth"],
        scales=tuple(float(entry["scale"]) for entry in integers),
        offsets=tuple(int(entry["offset"]) for entry in integers),
        per_channel=len(integers) > 1,
    )


def _from_new(entry: Mapping[str, Any]) -> Encoding:
    return Encoding(
        name=entry["name"],
        bits=entry["bw"],
        scales=tuple(float(scale) for scale in entry.get("scale", ())),
        offsets=tuple(int(first) for first in entry.get("offset", ())),
        per_channel=entry["enc_type"] != "PER_TENSOR",
        block_size=entry.get("block_size", 0),
    )


def _quantizer_args(encodings: Encodings, version: EncodingsVersion) -> dict[str, Any]:
    symmetric = all(entry.symmetric for entry in encodings.weights)
    by_channel = any(entry.per_channel for entry in encodings.weights)
    old = version == "0.6.1"
    return {
        "activation_bitwidth": encodings.activation_bits,
        "dtype": "int",
        "is_symmetric": str(symmetric) if old else symmetric,
        "param_bitwidth": encodings.weight_bits,
        "per_channel_quantization": str(by_channel) if old else by_channel,
        "quant_scheme": "post_training_tf",  # the specification knows two; ours chose its ranges by its own means
    }


def _refuse_blocks(weights: Iterable[Encoding]) -> None:
    hint = "take encodings 1.0.0, or weights per channel"
    found = [
        Fault(what="encodings 0.6.1 hold no scales of blocks of input channels", where=entry.name, hint=hint)
        for entry in weights
        if entry.block_size
    ]
    if found:
        raise StageError(*found)


def _sorted(activations: Iterable[Encoding], weights: Iterable[Encoding]) -> Encodings:
    def by_name(entries: Iterable[Encoding]) -> tuple[Encoding, ...]:
        return tuple(sorted(entries, key=lambda entry: entry.name))

    return Encodings(activations=by_name(activations), weights=by_name(weights))


def _most(bits: Iterable[int]) -> int:
    """The most frequent width, the wider of two equally frequent."""
    found = list(bits)
    return max(set(found), key=lambda width: (found.count(width), width)) if found else 8


def _mapping(entries: Mapping[str, Any]) -> list[str]:
    return [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in entries.items()]


def _lines(side: str, lines: Iterable[str], brackets: str) -> str:
    body = ",\n".join(f"  {line}" for line in lines)
    return f"{json.dumps(side)}: {brackets[0]}\n{body}\n {brackets[1]}" if body else f"{json.dumps(side)}: {brackets}"
