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
    """Feeds of a sample set for a model that takes what the board feeds. runtime_inputs: by model input."""

    samples: SampleSet
    runtime_inputs: Mapping[str, RuntimeInput]

    @classmethod
    def of(cls, record: Mapping[str, Any], samples: SampleSet) -> Feeder:
        """From the candidate's record. StageError where pixels are due and the samples are prepared tensors."""
        specs = {name: RuntimeInput.from_facts(name, facts) for name, facts in record.get("runtime_inputs", {}).items()}
        faults = [
            Fault(what=f"the model takes {spec.type} for {name!r}, the samples hold prepared tensors",
                  hint="choose a preset that decodes images, or runtime_input type featuremap")
            for name, spec in specs.items()
            if spec.type in _PIXELS and (name not in samples.inputs or samples.inputs[name].linear is None)
        ]  # fmt: skip
        if faults:
            raise StageError(*faults)
        return cls(samples=samples, runtime_inputs=specs)

    def read(self, index: int) -> Feeds:
        """Encoded tensors for the candidate; what they decode to, through the linear step, for the reference."""
        stored = self.samples.read_stored(index)
        reference: Feed = {}
        candidate: Feed = {}
        for name, form in self.samples.inputs.items():
            spec = self.runtime_inputs.get(name)
            if spec is None or spec.type not in _PIXELS:
                reference[name] = candidate[name] = form.prepare(stored[name])
                continue
            ordered = stored[name][:, :, ::-1] if spec.channels == "bgr" else stored[name]
            tensors = runtime_input.encode(spec, ordered)
            decoded = runtime_input.decode(spec, tensors)
            reference[name] = form.prepare(decoded[:, :, ::-1] if spec.channels == "bgr" else decoded)
            candidate.update(tensors)
        return Feeds(reference=reference, candidate=candidate)
