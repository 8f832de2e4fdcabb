"""Plan room: what the stages of the SDK's road read of a recipe, a platform and the SDK found here, as JSON. Pure."""

from __future__ import annotations

from typing import Any

from npubake.errors import Fault, RecipeError
from npubake.plan import qualcomm_parameters as own
from npubake.plan.parameters import stated
from npubake.plan.subject import Subject
from npubake.toolchains.qualcomm.facts import DEFAULT_CONVERTER, DEFAULT_ENCODINGS


def asked(subject: Subject) -> bool:
    """Whether a target of toolchain qualcomm takes the road of the SDK."""
    return bool(own.options(subject).get("road", "wheel") == "sdk")


def refuse(subject: Subject) -> None:
    """Raises RecipeError for what this road cannot make."""
    target, recipe = subject.target, subject.target.recipe
    if "," in str(target.platform.soc_model.value):
        path = "$.platforms"
        what = f"road: sdk makes a binary of one SoC, {target.platform.name} is several"
        hint = "name the platforms one by one; or road: wheel, whose binary serves several"
        raise RecipeError(Fault(what=what, where=recipe.where(path), path=path, hint=hint))


def of_compile(subject: Subject, *, floating: bool = False) -> dict[str, Any]:
    """Of ``compile_qairt``: ``compile_htp``'s, and the SDK's version, converter and version of encodings."""
    chosen = _sdk(subject)
    qairt = {
        "version": subject.sdk_version,
        **stated(
            converter=(chosen.get("converter"), DEFAULT_CONVERTER),
            encodings=(chosen.get("encodings"), DEFAULT_ENCODINGS),
        ),
    }
    return {**own.of_compile(subject, floating=floating), "qairt": qairt}


def of_emulate(subject: Subject, boundary: str) -> dict[str, Any]:
    """Of ``emulate_qairt``: qnn-net-run needs the SoC as well."""
    return {**own.of_emulate(subject, boundary), **of_verify(subject)}


def of_verify(subject: Subject) -> dict[str, Any]:
    """Of ``verify_qairt``."""
    compiled = of_compile(subject)
    return {name: compiled[name] for name in ("platform", "options", "qairt") if name in compiled}


def _sdk(subject: Subject) -> dict[str, Any]:
    return dict(own.options(subject).get("sdk", {}))
