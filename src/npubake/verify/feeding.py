"""verify: what the two models of a comparison are fed for one example. A sample set in, feeds out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from npubake.calibration.samples import SampleSet
from npubake.errors import Fault, StageError
from npubake.fixedpoint.colour import RuntimeInput
from npubake.layout import runtime_input

Feed = dict[str, NDArray[Any]]
_PIXELS = ("nv12", "yuv444", "rgb", "bgr", "gray")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeds:
    """One example: the float model's inputs, and the candidate's."""

    reference: Feed
    candidate: Feed


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeder:
    """Feeds of a sample set for a model that takes what the board feeds. runtime_inputs: by model input; real: those of
    them that the candidate takes as the float model does: it is fed what the board's tensors decode to.
    """

    samples: SampleSet
    runtime_inputs: Mapping[str, RuntimeInput]
    real: frozenset[str] = frozenset()

    @classmethod
    def of(cls, record: Mapping[str, Any], samples: SampleSet, inputs: Mapping[str, str] | None = None) -> Feeder:
        """From the candidate's record. inputs: dtypes of the candidate's own inputs, by name; None for an artifact,
        which takes what the board feeds. StageError where pixels are due and the samples are prepared tensors.
        """
        specs = {name: RuntimeInput.from_facts(name, facts) for name, facts in record.get("runtime_inputs", {}).items()}
        faults = [
            Fault(
                what=f"the model takes {spec.type} for {name!r}, the samples hold prepared tensors",
                hint="choose a preset that decodes images, or runtime_input type featuremap",
            )
            for name, spec in specs.items()
            if spec.type in _PIXELS and (name not in samples.inputs or samples.inputs[name].linear is None)
        ]
        if faults:
            raise StageError(*faults)
        real = [name for name in specs if inputs is not None and inputs.get(name, "uint8") != "uint8"]
        return cls(samples=samples, runtime_inputs=specs, real=frozenset(real))

    def read(self, index: int) -> Feeds:
        """Encoded tensors for the candidate; what they decode to, through the linear step, for the reference."""
        stored = self.samples.read_stored(index)
        reference: Feed = {}
        candidate: Feed = {}
        for name, form in self.samples.inputs.items():
            spec = self.runtime_inputs.get(name)
            tensors = self._tensors(name, stored[name])
            if spec is None or spec.type not in _PIXELS:
                reference[name] = tensors[name]
            else:
                reference[name] = form.prepare(_ordered(spec, runtime_input.decode(spec, tensors)))
            candidate.update({name: reference[name]} if name in self.real else tensors)
        return Feeds(reference=reference, candidate=candidate)

    def candidate(self, index: int) -> Feed:
        """The candidate's inputs alone: what the board would be fed."""
        if self.real:
            return self.read(index).candidate
        stored = self.samples.read_stored(index)
        return {key: value for name in stored for key, value in self._tensors(name, stored[name]).items()}

    def _tensors(self, name: str, stored: NDArray[Any]) -> Feed:
        """The candidate's tensors for one input of the float model."""
        spec = self.runtime_inputs.get(name)
        if spec is None or spec.type not in _PIXELS:
            return {name: self.samples.inputs[name].prepare(stored)}
        return runtime_input.encode(spec, _ordered(spec, stored))


def _ordered(spec: RuntimeInput, pixels: NDArray[Any]) -> NDArray[Any]:
    """Between the stored order of channels, RGB, and the order that the runtime input states; its own inverse."""
    return pixels[:, :, ::-1] if spec.channels == "bgr" else pixels
