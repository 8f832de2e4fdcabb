"""Qualcomm toolchain: a compiled artifact run in the HTP emulator, in a process of its own (``python -m``).

In the folder that it runs in: the wrapper beside its binary, ``00000.0.in.npy`` (example, input) and ``request.json``:
``inputs``, names in the order of the files; ``outputs``, likewise of ``00000.0.out.npy``; ``examples``, numbers;
``strict``: no node may run on the CPU. ``00000.done`` stands for an example whose outputs are whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.capi import onnxruntime_pybind11_state as refusals

from npubake.errors import StageError
from npubake.toolchains.process import serve
from npubake.toolchains.qualcomm.htp.htp_files import WRAPPER, done_name, file_name
from npubake.toolchains.qualcomm.htp.session import Log, open_emulator, open_session
from npubake.toolchains.qualcomm.htp.translation import explain_refusal

# What onnxruntime raises for an artifact or a feed that it does not take; all else is a bug and ends this process.
_REFUSED = (
    refusals.EPFail,
    refusals.Fail,
    refusals.InvalidArgument,
    refusals.InvalidGraph,
    refusals.InvalidProtobuf,
    refusals.NoSuchFile,
    refusals.NotImplemented,
    refusals.RuntimeException,
)


def run_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run every example of the request. Raises StageError where the emulator refuses the artifact or an example."""
    log = Log()
    try:
        session = open_emulator(WRAPPER, log=log) if request["strict"] else open_session(WRAPPER, log=log)
        for example in request["examples"]:
            feeds = {
                name: np.load(file_name(example, place, "in"), allow_pickle=False)
                for place, name in enumerate(request["inputs"])
            }
            for place, value in enumerate(session.run(list(request["outputs"]), feeds)):
                np.save(file_name(example, place, "out"), np.asarray(value), allow_pickle=False)
            Path(done_name(example)).touch()
    except _REFUSED as error:
        raise StageError(explain_refusal(str(error), log.lines, WRAPPER)) from error
    return {}


if __name__ == "__main__":
    serve(run_here)
