"""Command line room: ``export``, pieces of a built target for one who runs a vendor's SDK by hand. Reads the store."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npubake.cli import root
from npubake.errors import Fault, UsageError
from npubake.request import Request

if TYPE_CHECKING:
    import onnx

    from npubake.pipeline.freshness import Prober
    from npubake.pipeline.task import Task
    from npubake.plan.subject import Subject
    from npubake.preparation import Prepared
    from npubake.toolchains.qualcomm.qairt.encodings import Encodings
    from npubake.toolchains.qualcomm.qairt.exporting import Decided, ScriptRequest
    from npubake.toolchains.qualcomm.qairt.picture_edges import Fed

Files = Iterable[tuple[str, bytes]]
_SCALES = ("tune", "calibrate")  # whose parameters hold, the first that the target has


def run_export(arguments: argparse.Namespace) -> int:
    """``npubake export``: write the files, say which."""
    build = _built(arguments)
    folder = Path(arguments.out or f"export/{build.subject.name}")
    written = _write(folder, _FORMATS[arguments.format](build, arguments))
    if arguments.json:
        print(json.dumps({"target": build.subject.name, "folder": str(folder), "files": written}, indent=1))
        return 0
    shown = [entry for entry in written if not entry["path"].startswith("raw/")]
    for entry in shown:
        print(f"wrote {folder / entry['path']} ({entry['bytes']} bytes)")
    if len(written) > len(shown):
        print(f"wrote {len(written) - len(shown)} files in {folder / 'raw'}")
    return 0


def _built(arguments: argparse.Namespace) -> Built:
    """The target that was asked for. Nothing of its toolchain has to be installed: none of it is run."""
    from npubake.pipeline.freshness import Prober
    from npubake.preparation import prepare

    request = Request(names=(arguments.target,), toolchain=arguments.toolchain)
    prepared = prepare(root.find(arguments.directory), request, write_lock=False, reading=True)
    if len(prepared.subjects) != 1:
        names = ", ".join(subject.name for subject in prepared.subjects)
        raise UsageError(Fault(what="export takes one target", where=arguments.target, hint=f"Say which: {names}."))
    (subject,) = prepared.subjects
    return Built(prepared=prepared, subject=subject, prober=Prober(prepared.project, prepared.tasks, reading=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One target and what the store has of it."""

    prepared: Prepared
    subject: Subject
    prober: Prober

    def has(self, role: str) -> bool:
        """Whether the target has such a task at all."""
        return any(self._is(task, role) for task in self.prepared.tasks)

    def digest(self, role: str, port: str) -> str:
        """Of what the task of that role makes. Raises UsageError where it is not built, or no longer current."""
        probe = self.prober.probe(next(task for task in self.prepared.tasks if self._is(task, role)))
        if probe.record is None:
            hint = f"'npubake build {self.subject.target.name} --until {role}' makes it."
            what = f"{role} of {self.subject.name} is not built, or not as recipe and data are now"
            raise UsageError(Fault(what=what, where="export", hint=hint))
        return probe.record.outputs[port].digest

    def path(self, role: str, port: str) -> Path:
        """The file in the store, whole. Raises UsageError where it is not built, or was lost."""
        digest = self.digest(role, port)
        store = self.prepared.project.store
        if not store.verified(digest):
            hint = f"'npubake build {self.subject.target.name}' makes it again."
            raise UsageError(Fault(what=f"the store has lost {role}'s {port}", where="export", hint=hint))
        return store.blob_path(digest)

    @property
    def decided(self) -> str:
        """Whose parameters hold; '' where nothing of ours is decided."""
        return next((role for role in _SCALES if self.has(role)), "")

    @property
    def float_model(self) -> Path:
        """The float model that the scales are for."""
        return self.path("tune", "float") if self.decided == "tune" else self.path("optimize", "model")

    @property
    def graph(self) -> Path:
        """Its graph.json."""
        return self.path("tune", "graph") if self.decided == "tune" else self.path("optimize", "graph")

    def _is(self, task: Task, role: str) -> bool:
        return task.name == role and self.subject.name in task.targets


def _encodings_files(build: Built, arguments: argparse.Namespace) -> Files:
    """The encodings and the float model whose tensors they name."""
    from npubake.toolchains.qualcomm.qairt.exporting import encodings_file

    name = build.subject.name
    made = _encodings(build, _load(build.float_model))
    yield f"{name}.encodings", encodings_file(made, arguments.encodings_version)
    yield f"{name}_float_model.onnx", build.float_model.read_bytes()


def _qdq_files(build: Built, _arguments: argparse.Namespace) -> Files:
    """The QDQ model: in the HTP compiler's forms where the target has them, else as the quantiser made it."""
    role = "adapt" if build.has("adapt") else build.decided
    if not role or _in_float(build):
        raise UsageError(_nothing_quantised(build))
    yield f"{build.subject.name}_qdq_model.onnx", build.path(role, "model").read_bytes()


def _list_files(build: Built, _arguments: argparse.Namespace) -> Files:
    """Raw files of the calibration samples, and their list."""
    from npubake.calibration.samples import SampleSet
    from npubake.toolchains.qualcomm.qairt.exporting import sample_files

    with SampleSet.open(build.path("samples", "samples")) as samples:
        for file in sample_files(samples):
            yield file.path, file.data


def _script_files(build: Built, arguments: argparse.Namespace) -> Files:
    """The script, all that it reads, and the input list that its last step runs."""
    from npubake.calibration.samples import SampleSet
    from npubake.graph.model_file import serialise
    from npubake.toolchains.qualcomm.qairt import commands
    from npubake.toolchains.qualcomm.qairt.exporting import SCRIPT, board_files, encodings_file, script_file
    from npubake.toolchains.qualcomm.qairt.picture_edges import fed_model

    _require_soc(build)
    record, model = _parsed(build.path("adapt", "record")), _load(build.float_model)
    fed = fed_model(model, None if _in_float(build) else _encodings(build, model), record)
    yield SCRIPT, script_file(_script_request(build, fed, record, arguments))
    yield commands.MODEL, serialise(fed.model)
    if fed.encodings is not None:
        yield commands.ENCODINGS, encodings_file(fed.encodings, arguments.encodings_version)
    with SampleSet.open(build.path("samples", "samples")) as samples:
        for file in board_files(samples, record):
            yield file.path, file.data


def _script_request(build: Built, fed: Fed, record: Mapping[str, Any], arguments: argparse.Namespace) -> ScriptRequest:
    from npubake.plan import qualcomm_parameters as own
    from npubake.toolchains.qualcomm.facts import CompilerOptions, HtpPlatform
    from npubake.toolchains.qualcomm.qairt.exporting import ScriptRequest
    from npubake.toolchains.qualcomm.qairt.picture_edges import conversion_of

    params = own.of_compile(build.subject)
    version = arguments.sdk_version or _sdk_version(arguments.converter)
    return ScriptRequest(
        name=build.subject.name,
        platform=HtpPlatform.from_params(params["platform"]),
        options=CompilerOptions.from_params(params.get("options", {})),
        conversion=conversion_of(fed, record, converter=arguments.converter, version=version, io=own.io(build.subject)),
    )


def _require_soc(build: Built) -> None:
    """Raises UsageError where the script would be for no SoC of Qualcomm, or for several."""
    platform = build.subject.target.platform
    socs = platform.soc_model.value
    if socs is None:
        what = f"{platform.name} is no SoC of Qualcomm"
        hint = "Its encodings, QDQ model and input list can be exported; the script needs a platform as qcs9075."
        raise UsageError(Fault(what=what, where="--format qairt-script", hint=hint))
    if "," in str(socs):
        hint = "Build and export each by itself: the SDK's configuration names one SoC."
        what = f"{platform.name} is several SoCs, a script is for one"
        raise UsageError(Fault(what=what, where="--format qairt-script", hint=hint))


_FORMATS: Mapping[str, Callable[[Built, argparse.Namespace], Files]] = {
    "encodings": _encodings_files,
    "qdq": _qdq_files,
    "input-list": _list_files,
    "qairt-script": _script_files,
}


def _encodings(build: Built, model: onnx.ModelProto) -> Encodings:
    """All scales of the target. Raises UsageError where it quantises nothing."""
    from npubake.toolchains.qualcomm.qairt.exporting import encodings_of

    if _in_float(build):
        raise UsageError(_nothing_quantised(build))
    return encodings_of(_decided(build), model)


def _decided(build: Built) -> Decided:
    from npubake.graph.summary import GraphSummary
    from npubake.quant.parameters import QuantizationParameters
    from npubake.toolchains.qualcomm.qairt.exporting import Decided

    summary = GraphSummary.load(build.graph)
    if not build.decided:
        return Decided(summary=summary, file=_parsed(build.path("quantise_aimet", "encodings")))
    parameters = QuantizationParameters.load(build.path(build.decided, "parameters"))
    record = _parsed(build.path("adapt", "record")) if build.has("adapt") else None
    return Decided(summary=summary, parameters=parameters, record=record)


def _in_float(build: Built) -> bool:
    """Whether nothing decides integers."""
    return not build.decided and not build.has("quantise_aimet")


def _nothing_quantised(build: Built) -> Fault:
    what = f"{build.subject.name} quantises nothing: lane {build.subject.target.lane.value}"
    return Fault(what=what, where="export", hint="Its float model stands in build/; integer lanes have scales.")


def _sdk_version(converter: str) -> str:
    """Of the SDK that is installed here, else the newest whose flags are known."""
    from npubake.toolchains.qualcomm.qairt.flags import LAST
    from npubake.toolchains.vendor_sdk import taken_sdk

    found = taken_sdk("qualcomm", {"road": "sdk", "sdk": {"converter": converter}})
    return found.version if found else ".".join(map(str, LAST))


def _load(path: Path) -> onnx.ModelProto:
    from npubake.graph.model_file import load_model

    return load_model(path)


def _parsed(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _write(folder: Path, files: Files) -> list[dict[str, Any]]:
    """Write them below ``folder``; path and size of each. Raises UsageError where that is not allowed."""
    written = []
    for path, data in files:
        place = folder / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            if place.suffix == ".sh":
                place.chmod(0o755)
        except OSError as error:
            hint = "--out takes a folder that may be written."
            raise UsageError(Fault(what=f"cannot be written: {error.strerror}", where=str(place), hint=hint)) from error
        written.append({"path": path, "bytes": len(data)})
    return written
