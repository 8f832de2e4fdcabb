"""Document room: what one YAML scalar means, and the traps of YAML 1.1 explained. Text and tag in, value or words out.

YAML 1.1 (what PyYAML reads) and YAML 1.2 disagree about ``no``, ``010``, ``1:30`` and ``1e-4``. Whatever the two read
differently is refused with how to write it, so that a document means the same everywhere.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_TAG = "tag:yaml.org,2002:"
_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+\Z")
_OCTAL_LOOK = re.compile(r"[-+]?0o?[0-9_]+\Z")
_SEXAGESIMAL = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LARGEST = 2**63 - 1  # what the formats behind a recipe can hold (ONNX dimensions, counts of samples)
TEXT_TAGS = frozenset({_TAG + "str", _TAG + "timestamp", _TAG + "value", "!"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """Why a scalar is refused and how to write what was meant."""

    what: str
    hint: str


def read_scalar(text: str, tag: str, plain: bool) -> tuple[str | int | float | bool | None, Trap | None]:
    """The value of a scalar, and the trap it is, if it is one. plain: written without quotes and not as a block."""
    if tag in TEXT_TAGS:
        return text, _text_trap(text) if plain else None
    kind = tag.removeprefix(_TAG)
    if kind == "null":
        return None, None
    if kind == "bool":
        return text.lower() in ("true", "yes", "on"), _boolean_trap(text)
    if kind == "int":
        return _integer(text)
    if kind == "float":
        return _real(text)
    if kind == "merge":
        return text, None
    return text, Trap(
        what=f"the tag {tag.replace(_TAG, '!!')!r} is not read here",
        hint="Recipes hold text, numbers, true, false, null, lists and mappings; remove the tag.",
    )


def control_trap(text: str) -> Trap | None:
    """Escapes of quoted text can write what the file itself may not hold: no path has such a character."""
    found = _CONTROL.search(text)
    if found is None:
        return None
    return Trap(what=f"the text holds the control character U+{ord(found.group()):04X}", hint="Remove the escape.")


def _text_trap(text: str) -> Trap | None:
    if _OCTAL_LOOK.match(text):
        return _octal(text)
    if _NUMBER.match(text):
        return Trap(
            what=f"{text!r} is text in YAML 1.1, not a number: its exponent needs a dot before it and a sign",
            hint=f"Write {_dotted(text)}; or put it in quotes if text is meant.",
        )
    return None


def _dotted(text: str) -> str:
    mantissa, exponent = re.split("[eE]", text)
    mantissa = mantissa if "." in mantissa else mantissa + ".0"
    return f"{mantissa}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def _boolean_trap(text: str) -> Trap | None:
    if text.lower() in ("true", "false"):
        return None
    meant = "true" if text.lower() in ("yes", "on") else "false"
    return Trap(
        what=f"{text!r} is a boolean in YAML 1.1 and text in YAML 1.2",
        hint=f'Write {meant} if a boolean is meant, "{text}" in quotes if text is.',
    )


def _octal(text: str) -> Trap:
    digits = re.sub("[^0-9]", "", text).lstrip("0") or "0"
    return Trap(
        what=f"{text!r} looks octal: YAML 1.1 and YAML 1.2 read different values from it",
        hint=f'Write {digits} for the decimal number, "{text}" in quotes for text.',
    )


def _integer(text: str) -> tuple[str | int, Trap | None]:
    if _SEXAGESIMAL.match(text):
        return text, _sexagesimal(text)
    if len(text.lstrip("+-")) > 1 and _OCTAL_LOOK.match(text):
        return text, _octal(text)
    if "_" in text or text.lstrip("+-").lower().startswith("0b"):
        return text, Trap(
            what=f"{text!r} is a number in YAML 1.1 and text in YAML 1.2",
            hint="Write the decimal digits alone, or put it in quotes if text is meant.",
        )
    try:
        value = int(text, 16 if "0x" in text.lower() else 10)
    except ValueError:
        return text, Trap(what=f"{text[:40]!r} cannot be read as a whole number", hint="Write decimal digits alone.")
    if abs(value) > _LARGEST:
        return text, Trap(what=f"{text[:40]!r} is larger than any number here", hint=f"At most {_LARGEST}.")
    return value, None


def _real(text: str) -> tuple[str | float, Trap | None]:
    if _SEXAGESIMAL.match(text):
        return text, _sexagesimal(text)
    try:
        value = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text, Trap(what=f"{text!r} cannot be read as a number", hint="Write it as 0.5 or 1.0e-4.")
    if not math.isfinite(value):
        return text, Trap(
            what=f"{text!r} is not a finite number", hint="Infinity and NaN have no meaning here; leave the key out."
        )
    return value, None


def _sexagesimal(text: str) -> Trap:
    return Trap(
        what=f"{text!r} is a base-60 number in YAML 1.1 and text in YAML 1.2",
        hint=f'Put it in quotes if text is meant: "{text}"; write the number in decimal otherwise.',
    )
