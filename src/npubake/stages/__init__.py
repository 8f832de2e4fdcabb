"""The table of stages: what each reads and makes. Imports no domain code; a stage's ``run`` is loaded by the worker.

Artifact types (one file each):
  onnx            an ONNX model
  graph           graph.json: names, operators, shapes, dtypes, fusion groups, provenance (``graph.summary``)
  listing         JSON made by the plan: file names and digests of a data set, in order, grouped into examples
  file            the bytes of one source file
  sample_set      decoded, preprocessed examples (``calibration.samples``), a deterministic npz
  statistics      counts of every quantisable tensor (``calibration.statistics``)
  parameters      quantisation parameters (``quant.parameters``)
  record          JSON facts about what a stage did (tables, certificates, provenance)
  figures         JSON figures of a measure; verdict: a gate's JSON answer
  encodings       AIMET's own file of scales and offsets
  deployable      the reference package; bundle: the released archive
  context_binary  what the HTP compiler makes; its wrapper is an ONNX model that names it; log: text
"""

from __future__ import annotations

from npubake.pipeline.stage import Stage

_ONNX = ("onnx", "protobuf", "numpy")
_RUNTIME = (*_ONNX, "onnxruntime")
_IMAGES = ("numpy", "pillow")
_QNN = (*_RUNTIME, "onnxruntime-qnn")
OPTIONAL_TOOLS = ("onnxruntime-qnn", "aimet-onnx")  # of extras; a target that needs one says so
# Ports of the stages that compile, run and verify a context binary, by a wheel's compiler or an SDK's.
_ARTIFACT = {"wrapper": "onnx", "binary": "context_binary", "contract": "record"}
_COMPILED = {**_ARTIFACT, "metadata": "record", "trace": "record", "log": "log"}
_EMULATED = {**_ARTIFACT, "record": "record", "reference": "onnx", "quantised": "onnx", "samples": "sample_set"}
_VERIFIED = {**_ARTIFACT, "metadata": "record", "emulated": "archive", "figures": "figures"}


def _stage(
    name: str, version: int, inputs: dict[str, str], outputs: dict[str, str], tools: tuple[str, ...] = ()
) -> Stage:
    module = "import_model" if name == "import" else name  # `import` cannot name a module
    return Stage(
        name=name, version=version, run=f"npubake.stages.{module}:run", inputs=inputs, outputs=outputs, tools=tools
    )


STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        _stage("import", 4, {"model": "file", "data": "file*", "baseline": "file?"}, {"model": "onnx"}, _RUNTIME),
        _stage(
            "optimize",
            3,
            {"model": "onnx"},
            {"model": "onnx", "graph": "graph"},
            _ONNX,
        ),
        _stage(
            "check",
            4,
            {"graph": "graph", "calibration": "listing?", "validation": "listing?", "scales": "file?"},
            {"report": "record"},
        ),
        _stage(
            "samples",
            1,
            {"listing": "listing?", "files": "file*", "loaded": "file?", "validation": "listing?", "graph": "graph"},
            {"samples": "sample_set", "archive": "archive"},
            _IMAGES,
        ),
        _stage(
            "measure_inputs",
            1,
            {"listing": "listing", "files": "file*", "graph": "graph"},
            {"samples": "sample_set"},
            _IMAGES,
        ),
        _stage(
            "observe",
            2,
            {"model": "onnx", "graph": "graph", "samples": "sample_set"},
            {"statistics": "statistics"},
            (*_RUNTIME, "numba"),
        ),
        _stage(
            "calibrate",
            8,
            {"model": "onnx", "graph": "graph", "statistics": "statistics", "scales": "file?"},
            {"model": "onnx", "parameters": "parameters", "record": "record"},
            _ONNX,
        ),
        _stage(
            "transform",
            2,
            {"model": "onnx", "graph": "graph", "samples": "sample_set", "statistics": "statistics"},
            {"model": "onnx", "graph": "graph", "record": "record"},
            _RUNTIME,
        ),
        _stage(
            "tune",
            10,
            {
                "model": "onnx",
                "graph": "graph",
                "statistics": "statistics",
                "samples": "sample_set",
                "parameters": "parameters",
                "scales": "file?",
                "transformed_model": "onnx?",
                "transformed_graph": "graph?",
                "transformed_statistics": "statistics?",
            },
            {"float": "onnx", "graph": "graph", "parameters": "parameters", "model": "onnx", "record": "record"},
            (*_RUNTIME, "numba"),
        ),
        _stage(
            "ptq",
            2,
            {"model": "onnx", "graph": "graph", "parameters": "parameters"},
            {"model": "onnx", "record": "record"},
            _ONNX,
        ),
        _stage(
            "quantize",
            5,
            {"model": "onnx", "graph": "graph", "parameters": "parameters"},
            {"model": "onnx", "removed": "onnx", "record": "record"},
            _ONNX,
        ),
        _stage(
            "measure",
            1,
            {
                "reference": "onnx",
                "candidate": "onnx",
                "samples": "sample_set",
                "graph": "graph?",
                "reference_record": "record?",
                "candidate_record": "record?",
            },
            {"figures": "figures"},
            (*_RUNTIME, "numba"),
        ),
        _stage(
            "measure_product",
            1,
            {"model": "onnx", "samples": "sample_set", "labels": "file*", "record": "record?"},
            {"figures": "figures"},
            (*_RUNTIME, "pycocotools"),
        ),
        _stage("gate", 1, {"figures": "figures*", "evidence": "figures*"}, {"verdict": "verdict"}, ("numpy",)),
        _stage(
            "compile",
            3,
            {"model": "onnx", "removed": "onnx", "record": "record"},
            {"deployable": "deployable", "contract": "record"},
            _ONNX,
        ),
        _stage(
            "verify",
            1,
            {"deployable": "deployable", "model": "onnx", "samples": "sample_set", "record": "record"},
            {"record": "record", "outputs": "archive"},
            _RUNTIME,
        ),
        _stage(
            "package",
            2,
            {
                "deployable": "deployable",
                "contract": "record",
                "archive": "archive",
                "verified": "record",
                "outputs": "archive",
            },
            {"bundle": "bundle", "deployable": "deployable", "contract": "record"},
        ),
        _stage("probe", 1, {"model": "onnx", "graph": "graph"}, {"report": "record"}, _QNN),
        _stage(
            "adapt",
            1,
            {
                "model": "onnx",
                "graph": "graph",
                "parameters": "parameters?",
                "statistics": "statistics?",
                "transformed_statistics": "statistics?",
                "decisions": "record?",
                "quantised": "onnx?",
                "quantised_record": "record?",
            },
            {"model": "onnx", "compilable": "onnx", "record": "record"},
            _ONNX,
        ),
        _stage(
            "quantise_aimet",
            1,
            {"model": "onnx", "graph": "graph", "samples": "sample_set"},
            {"model": "onnx", "encodings": "encodings", "record": "record"},
            (*_RUNTIME, "aimet-onnx"),
        ),
        _stage(
            "compile_htp",
            1,
            {"compilable": "onnx", "record": "record"},
            _COMPILED,
            _QNN,
        ),
        _stage(
            "emulate",
            1,
            _EMULATED,
            {"figures": "figures", "outputs": "archive"},
            _QNN,
        ),
        _stage(
            "verify_htp",
            1,
            {
                **_VERIFIED,
                "part_wrapper": "onnx?",
                "part_binary": "context_binary?",
                "part_contract": "record?",
            },
            {"record": "record", "outputs": "archive"},
            _QNN,
        ),
        _stage(
            "compile_qairt",
            1,
            {"model": "onnx", "record": "record", "parameters": "parameters?", "encodings": "encodings?"},
            _COMPILED,
            _ONNX,
        ),
        _stage(
            "emulate_qairt",
            1,
            _EMULATED,
            {"figures": "figures", "outputs": "archive"},
            (*_RUNTIME, "numba"),
        ),
        _stage(
            "verify_qairt",
            1,
            _VERIFIED,
            {"record": "record", "outputs": "archive"},
            _RUNTIME,
        ),
        _stage(
            "package_htp",
            1,
            {**_ARTIFACT, "archive": "archive", "verified": "record", "outputs": "archive"},
            {"bundle": "bundle", **_ARTIFACT},
        ),
    )
}
