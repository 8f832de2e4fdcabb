"""stages: ``compile_qairt``, the float model and its scales into a context binary by the tools of a QAIRT SDK.

``QAIRT_SDK_ROOT`` is the one variable that it reads: where the SDK lies. Which version that has to be is a parameter.
"""

from __future__ import annotations

import json

from npubake.graph.model_file import load_model
from npubake.pipeline.stage import Job
from npubake.quant.parameters import QuantizationParameters
from npubake.stages.json_files import write_json
from npubake.toolchains.qualcomm.qairt.compiling import Sources, compile_model
from npubake.toolchains.qualcomm.release.contract import contract_bytes


def run(job: Job) -> None:
    """Write ``wrapper``, ``binary``, ``contract``, ``metadata``, ``trace`` and ``log``. Without ``parameters`` and
    ``encodings`` the binary computes in float16. StageError as the road's modules say.
    """
    parameters, file = job.optional("parameters"), job.optional("encodings")
    sources = Sources(
        record=json.loads(job.input("record").read_text(encoding="utf-8")),
        parameters=QuantizationParameters.load(parameters) if parameters else None,
        file=json.loads(file.read_text(encoding="utf-8")) if file else None,
    )
    made = compile_model(load_model(job.input("model")), sources, job.params)
    job.outputs["wrapper"].write_bytes(made.wrapper)
    job.outputs["binary"].write_bytes(made.binary)
    job.outputs["contract"].write_bytes(contract_bytes(made.contract))
    for port in ("metadata", "trace"):
        write_json(job, port, getattr(made, port))
    job.outputs["log"].write_text(made.log, encoding="utf-8")
