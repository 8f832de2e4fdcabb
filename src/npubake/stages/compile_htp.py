"""stages: ``compile_htp``, the adapted model into a context binary for its platform, and the contract."""

from __future__ import annotations

import json

import onnx

from npubake.pipeline.stage import Job
from npubake.stages.json_files import write_json
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.htp.compiling import Asked, compile_model
from npubake.toolchains.qualcomm.release.contract import build_contract, contract_bytes


def run(job: Job) -> None:
    """Write every output. Parameters: see ``docs/architecture.md``."""
    record = json.loads(job.input("record").read_text(encoding="utf-8"))
    asked = Asked(
        model=job.input("compilable").read_bytes(),
        platform=HtpPlatform.from_params(job.params["platform"]),
        options=CompilerOptions.from_params(job.params.get("options", {})),
    )
    made = compile_model(asked, record, job.threads)
    metadata = made.facts()
    wrapper, files = onnx.load_model_from_string(made.wrapper), {"wrapper": made.wrapper, "binary": made.binary}
    job.outputs["wrapper"].write_bytes(made.wrapper)
    job.outputs["binary"].write_bytes(made.binary)
    contract = build_contract(wrapper, files, {**metadata, "graphs": [metadata["edges"]]}, record, job.params)
    job.outputs["contract"].write_bytes(contract_bytes(contract))
    job.outputs["log"].write_text(made.log, encoding="utf-8")
    write_json(job, "metadata", metadata)
    write_json(job, "trace", made.trace.to_json())
