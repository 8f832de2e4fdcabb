"""Qualcomm toolchain, SDK road: what the converters say of encodings, and what that means. Text in, figures out.

The lines are those that qnn-onnx-converter of 2.44 printed in AIMET issue 4090, where 136 tensors fell to float16 in
silence and the product metric to 0.000:

    [MISSING ENC.   ] 271 of 1117 (24%) tensors were missing encodings.
      [PROPAGATED   ] 135 of 271 (50%) tensors had encoding propagated.
      [FP16 FALLBACK] 136 of 271 (50%) tensors were assumed to be fp16.
    [CONVERTS       ] 284 Convert/Cast ops injected.

A tensor whose encoding was propagated (a Reshape between two equal grids) is as good as one with its own; one that was
assumed to be float is not what was measured, and blocks the artifact unless it was meant to be float.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from npubake.errors import Fault, StageError

_MISSING = re.compile(r"\[MISSING ENC\.\s*\]\s*(\d+) of (\d+)")
_PROPAGATED = re.compile(r"\[PROPAGATED\s*\]\s*(\d+) of (\d+)")
_FLOAT = re.compile(r"\[FP(?:16|32) FALLBACK\s*\]\s*(\d+) of (\d+)")
_CONVERTS = re.compile(r"\[CONVERTS\s*\]\s*(\d+)")
# Of one encoding that names no tensor, in several versions' words: (tensor) is the name.
_UNKNOWN = re.compile(
    r"(?:no tensor|not found|could not find|cannot find|unmatched)[^\n'\"]*['\"](?P<tensor>[^'\"\n]+)['\"]"
    r"[^\n]*(?:encoding|override)|(?:encoding|override)[^\n'\"]*['\"](?P<other>[^'\"\n]+)['\"][^\n]*"
    r"(?:not found|not consumed|unmatched|does not exist)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """stated: whether the tools printed figures at all; missing: tensors that had no encoding, of ``tensors``;
    propagated, fell_to_float: of the missing ones; converts: Convert and Cast operators that were put in; unmatched:
    tensors of our file that the model was said not to have.
    """

    stated: bool
    tensors: int = 0
    missing: int = 0
    propagated: int = 0
    fell_to_float: int = 0
    converts: int = 0
    unmatched: tuple[str, ...] = ()


def statistics(log: str) -> Statistics:
    """From all that the tools printed; of a figure that came twice, the last."""
    missing = _last(_MISSING, log)
    unmatched = [found["tensor"] or found["other"] for found in _UNKNOWN.finditer(log)]
    return Statistics(
        stated=bool(missing),
        tensors=missing[1] if missing else 0,
        missing=missing[0] if missing else 0,
        propagated=(_last(_PROPAGATED, log) or (0,))[0],
        fell_to_float=(_last(_FLOAT, log) or (0,))[0],
        converts=(_last(_CONVERTS, log) or (0,))[0],
        unmatched=tuple(sorted(dict.fromkeys(unmatched))),
    )


def refuse_unmatched(found: Statistics, meant_float: int) -> None:
    """Raise StageError, all faults at once, where the converters did not take every encoding. meant_float: how many
    tensors ``adapt`` itself left in float.
    """
    hint = (
        "what was measured before is another model than this binary; encodings go by the tensor names of the float "
        "model: was it changed after they were made? The other version of toolchain_options.qualcomm.sdk.encodings, or "
        "the other converter, may be read whole"
    )
    faults = [
        Fault(where=name, what="the converter knows no tensor of this name, and left its encoding out", hint=hint)
        for name in found.unmatched
    ]
    if found.fell_to_float > meant_float:
        asked = f"; {meant_float} were meant to" if meant_float else ""
        what = f"{found.fell_to_float} of {found.tensors} tensors had no encoding and became float{asked}"
        faults.append(Fault(where="quantisation overrides", what=what, hint=hint))
    lost = found.missing - found.propagated - found.fell_to_float
    if lost > 0:
        what = f"{lost} of {found.tensors} tensors had no encoding, and it is not said what they became"
        faults.append(Fault(where="quantisation overrides", what=what, hint=hint))
    if faults:
        raise StageError(*faults)


def _last(pattern: re.Pattern[str], log: str) -> tuple[int, ...]:
    found = pattern.findall(log)
    if not found:
        return ()
    return tuple(int(figure) for figure in (found[-1] if isinstance(found[-1], tuple) else (found[-1],)))
