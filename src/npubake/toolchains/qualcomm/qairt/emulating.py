"""Qualcomm toolchain, SDK road: runs a context binary by qnn-net-run in the x86 emulator. Arrays in, arrays out.

Raw files are in the binary's own types, so that nothing is rounded on the way. Times of this say nothing of a board.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npubake.toolchains.board_edges import Arrays, BoardEdges
from npubake.toolchains.qualcomm.facts import DEFAULT_CONVERTER, CompilerOptions, HtpPlatform
from npubake.toolchains.qualcomm.htp.metadata import Metadata
from npubake.toolchains.qualcomm.qairt import commands
from npubake.toolchains.qualcomm.qairt.binary_info import metadata_of
from npubake.toolchains.qualcomm.qairt.compiling import used_sdk
from npubake.toolchains.qualcomm.qairt.naming import in_model_names
from npubake.toolchains.qualcomm.qairt.raw_files import file_name, files_of, list_text, read_raw
from npubake.toolchains.qualcomm.qairt.running import (
    Workshop,
    prepare,
    read_back,
    result_file,
    run_examples,
    tool_versions,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A binary of the SDK. contract: its runtime contract; params: ``platform``, ``options``, ``qairt`` of a stage."""

    binary: bytes
    contract: Mapping[str, Any]
    params: Mapping[str, Any]

    def binary_name(self, name: str) -> str:
        """The binary's name of a tensor of the contract."""
        return str(self.contract["binary_names"].get(name, name))


def emulate(artifact: Artifact, feeds: Sequence[Arrays]) -> list[Arrays]:
    """Outputs of every example as the binary gives them, by the contract's names, in the order of ``feeds``.

    Raises StageError for feeds that do not fit, and where qnn-net-run fails or writes other files.
    """
    contract = artifact.contract
    edges = BoardEdges(contract)
    for feed in feeds:
        edges.require(feed)
    inputs = [entry["name"] for entry in contract["inputs"]]
    theirs = {name: artifact.binary_name(name) for name in inputs}
    dtypes = {theirs[entry["name"]]: entry["dtype"] for entry in contract["inputs"]}
    with tempfile.TemporaryDirectory(prefix="npubake-net-run-") as place:
        shop = _shop(artifact, Path(place))
        files = (
            (file.path, file.data)
            for index, feed in enumerate(feeds)
            for file in files_of(index, {theirs[name]: feed[name] for name in inputs}, dtypes)
        )
        run_examples(shop, files, list_text([theirs[name] for name in inputs], len(feeds)))
        return [_outputs(shop, artifact, index) for index in range(len(feeds))]


def described(artifact: Artifact) -> Metadata:
    """What the binary says of itself, in the model's names."""
    with tempfile.TemporaryDirectory(prefix="npubake-read-back-") as place:
        shop = _shop(artifact, Path(place))
        converter = artifact.params["qairt"].get("converter", DEFAULT_CONVERTER)
        metadata = metadata_of(read_back(shop), tool_versions(shop.sdk, converter))
    names = {entry["name"]: artifact.binary_name(entry["name"])
             for side in ("inputs", "outputs") for entry in artifact.contract[side]}  # fmt: skip
    return in_model_names(metadata, names)


def _shop(artifact: Artifact, folder: Path) -> Workshop:
    """A folder with the binary where the commands expect it."""
    shop = Workshop(sdk=used_sdk(artifact.params), folder=folder)
    platform = HtpPlatform.from_params(artifact.params["platform"])
    prepare(shop, platform, CompilerOptions.from_params(artifact.params.get("options", {})))
    shop.write(f"{commands.BINARY_FOLDER}/{commands.BINARY}.bin", artifact.binary)
    return shop


def _outputs(shop: Workshop, artifact: Artifact, index: int) -> Arrays:
    found = {}
    for entry in artifact.contract["outputs"]:
        name = artifact.binary_name(entry["name"])
        data = result_file(shop, index, (name, file_name(name)))
        found[entry["name"]] = read_raw(data, entry["dtype"], entry["valid_shape"], entry["name"])
    return found
