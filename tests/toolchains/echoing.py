"""The other side of ``run_module`` in its tests: answers, refuses or dies as the request says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from npubake.errors import Fault, RecipeError
from npubake.toolchains.process import serve


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """``say``: what is answered; ``refuse``: faults; ``die``: a signal."""
    print("printed")
    if "die" in request:
        os.kill(os.getpid(), request["die"])
    if "refuse" in request:
        raise RecipeError(*(Fault(what=what, where="here") for what in request["refuse"]))
    return {"said": request["say"]}


if __name__ == "__main__":
    serve(answer)
