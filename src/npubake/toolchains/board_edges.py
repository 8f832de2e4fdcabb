"""Toolchains room: the application's side of a contract: what becomes of model inputs before the artifact, and of its
outputs behind it. Arrays and a contract only; no artifact is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from npubake.errors import Fault, StageError
from npubake.fixedpoint.colour import RuntimeInput
from npubake.layout.edges import from_edge, to_edge
from npubake.layout.runtime_input import encode

Arrays = dict[str, NDArray[Any]]


class BoardEdges:
    """Both edges of one artifact. ``contract``: with ``inputs``, ``outputs``, ``runtime_inputs`` and ``removed``."""

    def __init__(self, contract: Mapping[str, Any]) -> None:
        self.contract = contract
        self._specs = {name: RuntimeInput.from_facts(name, entry) for name, entry in contract["runtime_inputs"].items()}

    @property
    def images(self) -> frozenset[str]:
        """Model inputs that take pixels."""
        return frozenset(name for name, spec in self._specs.items() if spec.type != "featuremap")

    def encode(self, values: Mapping[str, NDArray[Any]]) -> Arrays:
        """What the board's camera side makes of model inputs: uint8 pixels [H, W, C] (RGB or grey) become the runtime's
        tensors; other inputs are handed through.
        """
        tensors: Arrays = {}
        for name, value in values.items():
            if name in self.images:
                spec = self._specs[name]
                tensors |= encode(spec, value[..., ::-1] if spec.channels == "bgr" else value)
            else:
                tensors[name] = value
        return tensors

    def peel(self, tensors: Mapping[str, NDArray[Any]]) -> Arrays:
        """Runtime tensors in the form that the artifact takes after removals at its inputs."""
        return {name: to_edge(array, self._removed(name, "inputs")) for name, array in tensors.items()}

    def restore(self, outputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Outputs in the form they had before removals: real values where the edge gives integers."""
        return {name: from_edge(array, self._removed(name, "outputs")) for name, array in outputs.items()}

    def taken(self, values: Mapping[str, NDArray[Any]]) -> Arrays:
        """The artifact's inputs of one example. values: by runtime tensor name (dense, as the contract says), or by
        model input name (RGB or grey pixels, uint8 [H, W, C], for image inputs; else what the float model takes).
        """
        forms = {entry["name"]: (entry["dtype"], entry["valid_shape"]) for entry in self.contract["inputs"]}
        ready = {
            name: value for name, value in values.items() if forms.get(name) == (str(value.dtype), list(value.shape))
        }
        rest = {name: value for name, value in values.items() if name not in ready}
        return {**self.peel(self.encode(rest)), **ready}

    def require(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Raises StageError, all faults at once, where the artifact's inputs have not name, dtype and shape of the
        contract.
        """
        known = {entry["name"]: f"{entry['dtype']} {entry['valid_shape']}" for entry in self.contract["inputs"]}
        faults = [
            Fault(where=name, what="no such input", hint=f"inputs: {', '.join(known)}")
            for name in tensors
            if name not in known
        ]
        for name, wanted in known.items():
            found = "nothing" if name not in tensors else f"{tensors[name].dtype} {list(tensors[name].shape)}"
            if found != wanted:
                faults.append(Fault(where=name, what=f"the input takes {wanted}, it got {found}"))
        if faults:
            raise StageError(*faults)

    def _removed(self, tensor: str, side: str) -> list[Mapping[str, Any]]:
        return [entry for entry in self.contract["removed"] if entry["tensor"] == tensor and entry["side"] == side]
