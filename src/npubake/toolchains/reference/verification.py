"""Reference toolchain: runs a deployable as a board would and compares it with the quantised model. Files in, facts
out.

The deployable runs optimised, through strided buffers; the quantised model runs with ONNX Runtime's rewriting switched
off, on one thread, from dense arrays. Integer models agree on every bit. Where float nodes remain, the two may differ
in the last bits; the tolerance is on the signal: cosine >= ``FLOAT_COSINE`` for every output of every example.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from npubake.calibration.samples import SampleSet
from npubake.errors import Fault, GateError
from npubake.graph.model_file import serialise
from npubake.toolchains.board_edges import Arrays
from npubake.toolchains.recorded import Recorded, difference, write_recorded
from npubake.toolchains.reference.executor import Executor, open_session
from npubake.toolchains.reference.package_file import Package

# float16 has 11 significant bits; another order of a float32 sum flips single roundings of 2**-11. A wrong input
# layout, stride or colour order is far below this: 0.9 and less on real images.
FLOAT_COSINE = 0.9999
# An integer Softmax of 8 bits has steps of 1/255; the application's one, in float, has none.
SOFTMAX_COSINE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One output over all examples. bitwise: every bit has to be equal; tolerance: least cosine where not;
    max_difference: largest absolute difference, in the output's own units.
    """

    output: str
    bitwise: bool
    tolerance: float
    equal: bool
    max_difference: float
    min_cosine: float


def record_runs(
    package: Package, model: onnx.ModelProto, samples: SampleSet, count: int, archive: Path
) -> tuple[list[dict[str, Any]], list[Comparison]]:
    """Run the first ``count`` examples; write inputs and outputs into ``archive``; returns digests and comparisons."""
    executor = Executor(package)
    reference = _Reference(model, package)
    differences: dict[str, list[tuple[bool, float, float]]] = {}
    approximate = reference.approximate
    chosen = range(min(count, samples.count))
    runs = write_recorded(archive, _examples(executor, reference, samples, chosen, differences))
    return runs, [
        Comparison(
            output=name,
            bitwise=name not in approximate and bool(package.contract["exact"]),
            tolerance=SOFTMAX_COSINE if name in approximate else FLOAT_COSINE,
            equal=all(entry[0] for entry in entries),
            max_difference=max(entry[1] for entry in entries),
            min_cosine=min(entry[2] for entry in entries),
        )
        for name, entries in differences.items()
    ]


def _examples(
    executor: Executor,
    reference: _Reference,
    samples: SampleSet,
    chosen: Iterable[int],
    differences: dict[str, list[tuple[bool, float, float]]],
) -> Iterator[Recorded]:
    """Every chosen example as it was run; adds what each output differs by to ``differences``."""
    edges = executor.edges
    for index in chosen:
        encoded = edges.encode(_values(executor, samples, index))
        tensors = edges.peel(encoded)
        outputs = executor.unpack_outputs(executor.run_buffers(executor.pack_inputs(tensors)))
        yield Recorded(example=samples.describe(index), inputs=tensors, outputs=outputs)
        got = outputs if reference.bare else edges.restore(outputs)
        for name, expected in reference.run(tensors if reference.bare else encoded).items():
            differences.setdefault(name, []).append(difference(got[name], expected))


class _Reference:
    """The model that the deployable is compared with. bare: it is the deployable's own, its edge nodes are gone too;
    approximate: outputs where the application's part is a Softmax in float and the model's one in integers.
    """

    def __init__(self, model: onnx.ModelProto, package: Package) -> None:
        data = serialise(model)
        self.bare = hashlib.sha256(data).hexdigest() == package.contract["model"]["sha256"]
        gone = {entry["tensor"] for entry in package.contract["removed"] if entry["op_type"] == "Softmax"}
        self.approximate = frozenset() if self.bare else frozenset(gone)
        self._names = [value.name for value in model.graph.output]
        self._session = open_session(data, 1, optimise=False)

    def run(self, feeds: Arrays) -> Arrays:
        return dict(zip(self._names, self._session.run(self._names, feeds), strict=True))


def judge(comparisons: list[Comparison]) -> None:
    """Raises GateError, all outputs at once, where the deployable is not the quantised model."""
    faults = []
    for entry in comparisons:
        if entry.equal or (not entry.bitwise and entry.min_cosine >= entry.tolerance):
            continue
        wanted = "every bit equal" if entry.bitwise else f"cosine >= {entry.tolerance}"
        faults.append(
            Fault(
                where=f"quantized -> deployable: {entry.output}",
                what=f"largest difference {entry.max_difference:.6g}, cosine {entry.min_cosine:.6f}; wanted {wanted}",
                hint="suspected stage: compile; look first at input preparation, stride alignment and the tail's dtype",
            )
        )
    if faults:
        raise GateError(*faults)


def _values(executor: Executor, samples: SampleSet, index: int) -> Arrays:
    """One example by model input: RGB or grey pixels where the runtime feeds an image, else the prepared tensor."""
    stored, prepared = samples.read_stored(index), samples.read(index)
    return {name: stored[name] if name in executor.edges.images else prepared[name] for name in prepared}
