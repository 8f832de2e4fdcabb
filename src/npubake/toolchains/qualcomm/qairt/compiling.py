"""Qualcomm toolchain, SDK road: a float model and scales into a context binary that was read back and judged.

The binary's SoC, edges and scales are held to the platform and to ``adapt``'s record; what the converters said of
encodings has to be that every one was taken.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from npubake.errors import Fault, StageError
from npubake.graph.model_file import serialise
from npubake.quant.parameters import QuantizationParameters
from npubake.toolchains.qualcomm.facts import DEFAULT_CONVERTER, DEFAULT_ENCODINGS, CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.htp.checks import edge_faults, metadata_faults
from npubake.toolchains.qualcomm.htp.htp_files import BINARY
from npubake.toolchains.qualcomm.htp.metadata import Metadata
from npubake.toolchains.qualcomm.qairt import commands
from npubake.toolchains.qualcomm.qairt.binary_info import metadata_of
from npubake.toolchains.qualcomm.qairt.commands import Conversion
from npubake.toolchains.qualcomm.qairt.conversion_log import Statistics, refuse_unmatched, statistics
from npubake.toolchains.qualcomm.qairt.encodings import Encodings, check_encodings, of_file, of_record
from npubake.toolchains.qualcomm.qairt.naming import binary_names, in_model_names, near_scales
from npubake.toolchains.qualcomm.qairt.picture_edges import conversion_of, fed_model
from npubake.toolchains.qualcomm.qairt.running import Request, Workshop, convert, read_back, tool_versions
from npubake.toolchains.qualcomm.qairt.sdk import VARIABLE, Sdk, find_sdk
from npubake.toolchains.qualcomm.qairt.wrapper import wrapper_model
from npubake.toolchains.qualcomm.release.contract import build_contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What decides the integers. record: ``adapt``'s; parameters: of the weights; file: what another quantiser wrote
    in their place, parsed. Neither of the two in a float lane.
    """

    record: Mapping[str, Any]
    parameters: QuantizationParameters | None = None
    file: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """wrapper, binary: bytes of the two files; the rest as the stage writes it."""

    wrapper: bytes
    binary: bytes
    contract: Mapping[str, Any]
    metadata: Mapping[str, Any]
    trace: Mapping[str, Any]
    log: str


def used_sdk(params: Mapping[str, Any]) -> Sdk:
    """The SDK that the plan found. Raises StageError where ``QAIRT_SDK_ROOT`` holds another one by now."""
    wanted = params["qairt"]
    sdk = find_sdk(wanted.get("converter", DEFAULT_CONVERTER))
    if sdk.version != wanted["version"]:
        what = f"{VARIABLE} holds version {sdk.version}; the build was planned with {wanted['version']}"
        raise StageError(Fault(what=what, where=VARIABLE, hint="build again"))
    return sdk


def compile_model(
    model: onnx.ModelProto, sources: Sources, params: Mapping[str, Any], watch: Callable[[], None] = lambda: None
) -> Compiled:
    """Run the whole road in a folder of its own. model: the float model that the scales are for; params: the stage's.

    Raises StageError where a tool fails, an encoding was not taken, or the binary is not what was asked for.
    """
    sdk = used_sdk(params)
    request = _request(model, sources, params, sdk)
    with tempfile.TemporaryDirectory(prefix="npubake-qairt-") as place:
        shop = Workshop(sdk=sdk, folder=Path(place), watch=watch)
        binary = convert(shop, request)
        found = statistics("\n".join(shop.log))
        content = read_back(shop)
    _judge(found, request.conversion, sources.record)
    metadata = metadata_of(content, tool_versions(sdk, request.conversion.converter))
    names = binary_names(sources.record, metadata.parts[0].graphs[0])
    _refuse_other(in_model_names(metadata, names), request.platform, sources.record)
    wrapper = serialise(wrapper_model(metadata, BINARY))
    return Compiled(
        wrapper=wrapper,
        binary=binary,
        contract=_contract((wrapper, binary), metadata, names, sources.record, params),
        metadata=metadata.to_json(),
        trace=_trace(request, found),
        log="\n".join(shop.log) + "\n",
    )


def _request(model: onnx.ModelProto, sources: Sources, params: Mapping[str, Any], sdk: Sdk) -> Request:
    wanted = params["qairt"]
    fed = fed_model(model, _encodings(model, sources), sources.record)
    return Request(
        model=serialise(fed.model),
        conversion=conversion_of(
            fed,
            sources.record,
            converter=wanted.get("converter", DEFAULT_CONVERTER),
            version=sdk.version,
            io=params.get("io", "quantized"),
        ),
        version=wanted.get("encodings", DEFAULT_ENCODINGS),
        platform=HtpPlatform.from_params(params["platform"]),
        options=CompilerOptions.from_params(params.get("options", {})),
    )


def _encodings(model: onnx.ModelProto, sources: Sources) -> Encodings | None:
    """None where nothing is quantised."""
    if sources.file is not None:
        check_encodings(sources.file)
        return of_file(sources.file)
    if sources.parameters is None:
        return None
    made = of_record(sources.record, sources.parameters, [tensor.name for tensor in model.graph.initializer])
    blocked = [entry.name for entry in made.weights if entry.block_size]
    if blocked:
        hint = "ask for weights per channel there"
        what = "the HTP takes no weights with a scale for each block of input channels"
        raise StageError(*(Fault(what=what, where=name, hint=hint) for name in blocked))
    return made


def _judge(found: Statistics, asked: Conversion, record: Mapping[str, Any]) -> None:
    """Raises StageError where an encoding was not taken, or it is not said."""
    if asked.encodings is None:
        return
    refuse_unmatched(found, len(record["coverage"]["float"]))
    if not found.stated:
        tools = " and ".join(command.tool for command in commands.conversion(asked)[:-1])
        what = (
            f"{tools} of QAIRT SDK {asked.version} printed no line '[MISSING ENC.] N of M tensors were missing "
            "encodings', so that it cannot be told whether each encoding was taken"
        )
        hint = (
            "qnn-onnx-converter of 2.44 prints it (AIMET issue 4090): take sdk: {converter: qnn}, or road: wheel. What "
            "the tools did say stands in the log of this stage: report it with the SDK's version"
        )
        raise StageError(Fault(what=what, where="quantisation overrides", hint=hint))


def _refuse_other(metadata: Metadata, platform: HtpPlatform, record: Mapping[str, Any]) -> None:
    """Raises StageError, all faults at once, where the binary is for another SoC or has other edges."""
    graphs = near_scales(metadata, record).parts[0].graphs
    faults = metadata_faults(metadata, platform)
    if len(graphs) == 1:
        faults += edge_faults(graphs[0], record)
    else:
        faults.append(Fault(what=f"the binary holds {len(graphs)} graphs, not one", where=BINARY))
    if faults:
        raise StageError(*faults)


def _contract(
    files: tuple[bytes, bytes],
    metadata: Metadata,
    names: Mapping[str, str],
    record: Mapping[str, Any],
    params: Mapping[str, Any],
) -> dict[str, Any]:
    """In the model's own names; ``binary_names`` says where the binary's differ."""
    ours = in_model_names(metadata, names)
    model = wrapper_model(ours, BINARY)
    made = build_contract(model, dict(zip(("wrapper", "binary"), files, strict=True)), ours.to_json(), record, params)
    return {**made, "binary_names": {name: theirs for name, theirs in names.items() if name != theirs}}


def _trace(request: Request, found: Statistics) -> dict[str, Any]:
    """What was asked of the tools, and what they said of encodings."""
    asked = request.conversion
    lines = [[command.tool, *command.words] for command in commands.conversion(asked)]
    taken = None if asked.encodings is None else {
        "version": request.version,
        "activations": len(asked.encodings.activations),
        "weights": len(asked.encodings.weights),
    }  # fmt: skip
    return {"version": 1, "commands": lines, "encodings": taken, "statistics": json.loads(json.dumps(asdict(found)))}
