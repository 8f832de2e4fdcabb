"""npubake's QDQ model beside those of ONNX Runtime's QNN quantiser and of AIMET, by the HTP compiler and its emulator.

    python benchmarks/qualcomm_peers.py --project FOLDER [--recipes NAME ...] [--soc qcs9075] [--lane a8w8]

FOLDER: of ``qualcomm.py --project``, where the lanes are built. Needs the extra npubake[qualcomm]; AIMET takes part
where it is installed. Everyone starts from the same optimised float model and the same calibration samples, has int8
weights with a scale a channel, float edges, and the same compile; the examples are those of ``emulate``, which nobody
calibrated on. The compiler's estimates are simulated and no latency; SoCs other than 52, 72 and 77 have none.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model
from qualcomm import Case, Project, number

from npubake.calibration.samples import SampleSet
from npubake.graph.model_file import load_model
from npubake.graph.summary import GraphSummary
from npubake.pipeline.stage import Job
from npubake.stages import adapt
from npubake.toolchains.qualcomm.aimet.settings import settings_of
from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.htp.compiling import Asked, attempt
from npubake.toolchains.qualcomm.htp.emulation import Artifact, How, emulate
from npubake.toolchains.qualcomm.htp.estimates import read_estimates
from npubake.toolchains.qualcomm.htp.operators import Operators
from npubake.toolchains.qualcomm.htp.trace import read_trace
from npubake.verify.comparison import evenly
from npubake.verify.metrics import Sums, compare

MOVES = ("Cast", "Convert", "Dequantize", "Quantize", "Reshape", "Transpose")  # what a better form might save
THREADS = 2
Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A recipe as it was built: everyone's float model, samples, and the compile."""

    job: Job
    compile_params: Mapping[str, Any]
    samples: Path
    measured: Path

    @classmethod
    def of(cls, project: Project, case: Case) -> Subject:
        """Raises SystemExit where it is not built whole."""
        tasks = {task["role"]: task for task in project.build(case)["tasks"] if task["outputs"]}
        if "compile" not in tasks:
            raise SystemExit(f"{case.name} does not build: run qualcomm.py")
        records = {role: project.store.record(task["key"]) for role, task in tasks.items()}
        made = {role: record.dictionary for role, record in records.items() if record is not None}
        adapted, compiled, emulated = (made[role] for role in ("adapt", "compile", "emulate"))
        given = {
            port: tuple(project.store.blob_path(digest) for digest in digests)
            for port, digests in adapted["inputs"].items()
        }
        observed = made["observe"]["inputs"]["samples"][0]
        lane = {"lane": adapted["params"]["lane"], "io": "float"}
        return cls(
            job=Job(params=lane, inputs=given, outputs={}),
            compile_params=compiled["params"],
            samples=project.store.blob_path(observed),
            measured=project.store.blob_path(emulated["inputs"]["samples"][0]),
        )


def floating(project: Project, case: Case) -> Path:
    """The optimised float model, which everybody starts from."""
    return project.root / "build" / case.name / f"{case.name}_optimized_float_model.onnx"


def npubake(subject: Subject, _model: Path, folder: Path) -> bytes:
    """As the build decided, with float edges."""
    outputs = {port: folder / port for port in ("model", "compilable", "record")}
    adapt.run(Job(params=subject.job.params, inputs=subject.job.inputs, outputs=outputs))
    return outputs["compilable"].read_bytes()


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: SampleSet) -> None:
        self._examples = iter([samples.read(index) for index in range(samples.count)])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._examples, None)


def onnxruntime_qnn(subject: Subject, model: Path, folder: Path) -> bytes:
    """As its documentation for QNN says: its preprocessing, its configuration, MinMax; int8 weights a channel."""
    plain, prepared, made = (folder / f"{name}.onnx" for name in ("plain", "prepared", "quantised"))
    given = load_model(model)
    del given.metadata_props[:]  # its preprocessing fails on any
    onnx.save(given, plain)
    if not qnn_preprocess_model(plain, prepared):
        prepared = plain
    activations = QuantType.QUInt16 if subject.job.params["lane"].startswith("a16") else QuantType.QUInt8
    with SampleSet.open(subject.samples) as samples:
        configuration = get_qnn_qdq_config(
            prepared,
            _Reader(samples),
            calibrate_method=CalibrationMethod.MinMax,
            activation_type=activations,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
        quantize(prepared, made, configuration)
    return made.read_bytes()


def aimet(subject: Subject, model: Path, _folder: Path) -> bytes:
    """As the recipe's ``quantiser: aimet`` does: min_max, the SoC's own configuration."""
    from npubake.toolchains.qualcomm.aimet.quantising import quantise

    march = subject.compile_params["platform"]["march"]
    settings = settings_of({"lane": subject.job.params["lane"], "march": march})
    summary = GraphSummary.load(subject.job.input("graph"))
    made: bytes = quantise(model, subject.samples, summary, settings).model.SerializeToString()
    return made


PEERS: Mapping[str, Callable[[Subject, Path, Path], bytes]] = {
    "npubake default": npubake,
    "ONNX Runtime QNN, MinMax": onnxruntime_qnn,
    "AIMET, min_max": aimet,
}


def judged(subject: Subject, model: Path, quantised: bytes, count: int) -> dict[str, Any]:
    """Of one QDQ model: SQNR of the outputs against the float model, on the CPU and compiled, and the estimates."""
    asked = Asked(
        model=quantised,
        platform=HtpPlatform.from_params(subject.compile_params["platform"]),
        options=CompilerOptions.from_params(subject.compile_params.get("options", {})),
    )
    made = attempt(asked)
    if made.error:
        return {"error": made.error}
    floats, onnx_model = session(model.read_bytes()), onnx.load_model_from_string(quantised)
    with SampleSet.open(subject.measured) as samples:
        feeds = [samples.read(index) for index in evenly(samples.count, count)]
    names = [one.name for one in floats.get_outputs()]
    wanted = [dict(zip(names, floats.run(names, dict(feed)), strict=True)) for feed in feeds]
    simulated = session(quantised)
    on_cpu = [dict(zip(names, simulated.run(names, dict(feed)), strict=True)) for feed in feeds]
    artifact = Artifact(wrapper=made.wrapper, binary=made.binary, contract=contract(floats))
    emulated = emulate(artifact, feeds, How(processes=THREADS))
    operators = read_trace(made.trace, made.log, Operators.of(onnx_model))
    return {
        "cpu": decibels(wanted, on_cpu),
        "emulator": decibels(wanted, emulated),
        "agreement": decibels(on_cpu, emulated),
        "estimates": read_estimates(made.profile),
        "operators": dict(operators.qnn_operators),
        "mappings": operators.mappings,
        "bytes": len(made.binary),
    }


def session(model: bytes) -> onnxruntime.InferenceSession:
    """Without optimisation: what the QDQ model says, node by node."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = THREADS
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def contract(floats: onnxruntime.InferenceSession) -> dict[str, Any]:
    """What ``emulate`` reads of one: float edges."""
    edges = {"inputs": floats.get_inputs(), "outputs": floats.get_outputs()}
    described = {
        side: [{"name": one.name, "dtype": "float32", "valid_shape": list(one.shape)} for one in values]
        for side, values in edges.items()
    }
    return {**described, "runtime_inputs": {}, "removed": [], "cpu_nodes": []}


def decibels(wanted: Sequence[Arrays], found: Sequence[Arrays]) -> dict[str, float]:
    """SQNR of each output over all examples."""
    totals = {name: Sums() for name in wanted[0]}
    for left, right in zip(wanted, found, strict=True):
        for name in totals:
            totals[name] += compare(left[name], right[name])
    return {name: total.figures().sqnr_db for name, total in totals.items()}


def lines(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Markdown, a row a contestant; ratios over the first."""
    first = next(iter(found.values()))
    decibels_of = ("float → QDQ, dB", "float → emulator, dB", "emulator → QDQ, dB")
    heads = ("model", *decibels_of, "simulated, ms", "ratio", "binary, KiB", "QNN operators", "of them moves")
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * 9 + "|"
    for title, one in found.items():
        if "error" in one:
            yield f"| {title} | refused: {one['error']} " + "| " * 7 + "|"
            continue
        decibel = [
            " / ".join(number(value, ".1f") for value in one[kind].values())
            for kind in ("cpu", "emulator", "agreement")
        ]
        time, own = (side.get("estimates", {}).get("microseconds", {}).get("estimate") for side in (one, first))
        ratio = number(time / own, ".2f") if time and own else "-"
        moves = Counter({kind: one["operators"][kind] for kind in MOVES if kind in one["operators"]})
        said = ", ".join(f"{kind} {count}" for kind, count in moves.items()) or "none"
        cells = [*decibel, number(time and time / 1000, ".2f"), ratio, number(one["bytes"] / 1024, ".0f")]
        yield "| " + " | ".join((title, *cells, str(sum(one["operators"].values())), said)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--recipes", nargs="*", default=["yolo_640", "digits_mobilenet", "digits_vit"])
    parser.add_argument("--soc", default="qcs9075")
    parser.add_argument("--lane", default="a8w8", choices=["a8w8", "a16w8"])
    parser.add_argument("--count", type=int, default=8, help="examples in the emulator")
    asked = parser.parse_args()
    project = Project(asked.project)
    for recipe in asked.recipes:
        case = Case(recipe=recipe, soc=asked.soc, lane=asked.lane)
        subject = Subject.of(project, case)
        model, found = floating(project, case), {}
        for title, quantise in PEERS.items():
            if quantise is aimet and importlib.util.find_spec("aimet_onnx") is None:
                continue
            with tempfile.TemporaryDirectory() as folder:
                found[title] = judged(subject, model, quantise(subject, model, Path(folder)), asked.count)
        print(f"\n{recipe}, {asked.lane}, {asked.soc}\n", *lines(found), sep="\n", flush=True)


if __name__ == "__main__":
    main()
