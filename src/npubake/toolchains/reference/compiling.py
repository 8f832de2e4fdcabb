"""Reference toolchain: a quantised model becomes a package, is read back, and compared. Bytes and plain data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npubake.errors import Fault, StageError
from npubake.graph.model_file import parse_model, serialise
from npubake.toolchains.reference.contract import build_contract, check_contract
from npubake.toolchains.reference.package_file import Package
from npubake.toolchains.reference.platform_facts import PlatformFacts


def compile_package(data: bytes, record: Mapping[str, Any], facts: PlatformFacts, path: Path) -> Package:
    """Write the package of the (removed) quantised model ``data`` to ``path``; returns it as it was read back.

    Raises StageError where what the file says is not what the model and the platform say.
    """
    model = parse_model(data)
    data = serialise(model)
    written = Package(contract=build_contract(model, data, record, facts), model=data)
    path.write_bytes(written.to_bytes())
    found = Package.open(path)
    if found != written:
        raise StageError(Fault(where=path.name, what="the package read back is not the package written"))
    check_contract(found.contract, parse_model(found.model), facts)
    return found
