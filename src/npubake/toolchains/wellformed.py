"""Toolchains room: whether JSON of a package or bundle has the form that its readers take for granted. Data only.

A bundle may come from anywhere, put together anew with digests that fit: what it says is judged before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npubake.errors import Fault, StageError

# A form is a type, a tuple of types, a set or a range of accepted values, [form of each entry], {key: form}, or one of:


@dataclass(frozen=True, slots=True)
class Maybe:
    """The form, or null."""

    form: Any


@dataclass(frozen=True, slots=True)
class Absent:
    """The form, or no such key."""

    form: Any


@dataclass(frozen=True, slots=True)
class Each:
    """A mapping whose every value has the form."""

    form: Any


@dataclass(frozen=True, slots=True)
class Pair:
    """A list of two entries of the form."""

    form: Any


_NUMBERS = Maybe([(int, float)])
_SIZE = Pair(range(1, 1 << 16))
_LAYOUT = {"NCHW", "NHWC"}
TENSOR = {"name": str, "valid_shape": [int], "dtype": str, "stride": [int], "aligned_byte_size": int}
RUNTIME = {
    "type": str,
    "range": Absent(Maybe(str)),
    "channels": Absent(Maybe(str)),
    "divide_by": Absent(Maybe(range(1, 256))),
    "mean": Absent(_NUMBERS),
    "std": Absent(_NUMBERS),
    "height": Absent(range(1, 1 << 16)),
    "width": Absent(range(1, 1 << 16)),
    "layout": Absent(_LAYOUT),
}
REMOVED = {
    "tensor": str,
    "side": {"inputs", "outputs"},
    "op_type": str,
    "affine": Absent(Maybe(dict)),
    "before_dtype": str,
    "before_shape": [int],
}
PRESET = {
    "name": str,
    "version": int,
    "decode": Maybe({"pillow"}),
    "channels": Maybe({"rgb", "bgr", "gray"}),
    "resize": Maybe(
        {
            "kind": {"letterbox", "resize_shorter", "resize_exact"},
            "size": _SIZE,
            "interpolation": {"bilinear", "bicubic", "nearest"},
            "backend": {"pillow"},
            "fill": Maybe(range(256)),
        }
    ),
    "crop": Maybe({"size": _SIZE}),
    "scale": Maybe({"divide_by": range(1, 256)}),
    "mean": _NUMBERS,
    "std": _NUMBERS,
    "layout": _LAYOUT,
    "input_dtype": {"uint8", "float32"},
}
PICTURES = {
    **PRESET,
    "decode": {"pillow"},
    "channels": {"rgb", "bgr", "gray"},
    "inputs": Each({"layout": _LAYOUT, "linear_step": {"model", "application"}}),
}
RECORDED = {"runs": [{"example": str, "inputs": dict, "outputs": dict}]}
SAMPLES = {"preset": Absent(Maybe(dict))}


def require(value: Any, form: Any, where: str) -> None:
    """Raises StageError, all faults at once, where ``value`` has not the form."""
    hint = "npubake did not write this; take the file from the build again"
    faults = [Fault(what=what, where=where, path=path, hint=hint) for path, what in misfits(value, form)]
    if faults:
        raise StageError(*faults)


def misfits(value: Any, form: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of everything in ``value`` that has not the form."""
    if isinstance(form, Maybe | Absent):
        if value is not None or isinstance(form, Absent):
            yield from misfits(value, form.form, path)
    elif isinstance(form, Each | Mapping):
        yield from _mapping_misfits(value, form, path)
    elif isinstance(form, list | Pair):
        if not isinstance(value, list):
            yield path, f"found {_kind(value)} where a list belongs"
            return
        if isinstance(form, Pair) and len(value) != 2:
            yield path, f"found {len(value)} entries where two belong"
        for index, entry in enumerate(value):
            yield from misfits(entry, form.form if isinstance(form, Pair) else form[0], f"{path}[{index}]")
    elif isinstance(form, set | range):
        if not isinstance(value, str | int) or isinstance(value, bool) or value not in form:
            yield path, f"{str(value)[:40]!r} is none of the accepted values"
    elif not isinstance(value, form) or (isinstance(value, bool) and form is not bool):
        yield path, f"found {_kind(value)}"


def _mapping_misfits(value: Any, form: Each | Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, f"found {_kind(value)} where a mapping belongs"
        return
    wanted = dict.fromkeys(value, form.form) if isinstance(form, Each) else form
    for name, entry in wanted.items():
        if name in value:
            yield from misfits(value[name], entry, f"{path}.{name}")
        elif not isinstance(entry, Absent):
            yield path, f"the key {name!r} is missing"


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
