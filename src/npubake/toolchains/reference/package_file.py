"""Reference toolchain: the package (``.npub``), a canonical zip of the integer model and its contract. Bytes and paths.

Entries: ``contract.json`` (``contract``) and ``model.onnx``. Nothing else may stand in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npubake.errors import Fault, StageError
from npubake.toolchains import canonical_zip, pictures, wellformed
from npubake.toolchains.reference import forms
from npubake.toolchains.reference.contract import CONTRACT_VERSION

_CONTRACT = "contract.json"
_MODEL = "model.onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package in memory. model: serialised ONNX; contract: parsed JSON."""

    contract: Mapping[str, Any]
    model: bytes

    def to_bytes(self) -> bytes:
        return canonical_zip.write({_CONTRACT: contract_bytes(self.contract), _MODEL: self.model})

    @classmethod
    def open(cls, path: Path) -> Package:
        """Read a package file; raises StageError where a byte of it is not as it was written."""
        return cls.from_bytes(path.read_bytes(), path.name)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Package:
        entries = canonical_zip.read(data, where)
        if set(entries) != {_CONTRACT, _MODEL}:
            hint = "a package holds contract.json and model.onnx; was it built by toolchain reference?"
            raise StageError(Fault(where=where, what=f"it holds {', '.join(sorted(entries)) or 'nothing'}", hint=hint))
        try:
            contract = json.loads(entries[_CONTRACT])
        except (ValueError, RecursionError) as error:
            raise StageError(Fault(where=f"{where}: {_CONTRACT}", what=f"it is no JSON: {error}")) from error
        found = contract.get("version") if isinstance(contract, dict) else None
        if found != CONTRACT_VERSION:
            hint = f"this npubake reads version {CONTRACT_VERSION}"
            raise StageError(Fault(where=f"{where}: {_CONTRACT}", what=f"version {found}", hint=hint))
        wellformed.require(contract, forms.CONTRACT, f"{where}: {_CONTRACT}")
        if contract["model"]["sha256"] != hashlib.sha256(entries[_MODEL]).hexdigest():
            hint = "the package was put together from two builds; build it again"
            raise StageError(Fault(where=where, what="the contract is not this model's", hint=hint))
        pictures.require_fitting(contract, f"{where}: {_CONTRACT}")
        if contract["exact"] != (not contract["float_nodes"]):
            hint = "a model is exact where no node of it computes in float; build it again"
            raise StageError(Fault(where=f"{where}: {_CONTRACT}", what="exact contradicts float_nodes", hint=hint))
        return cls(contract=contract, model=entries[_MODEL])


def contract_bytes(contract: Mapping[str, Any]) -> bytes:
    """Canonical JSON of a contract."""
    return (json.dumps(contract, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()
