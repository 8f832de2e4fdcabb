"""Plan room: what the roads of all toolchains share: the float half, what decides the integers, measures and gates.

Names of recipes and targets reach file names alone, so that targets share work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npubake.pipeline.task import Input, Literal, Output, Publish, SourceFile, Task, task_id
from npubake.plan import parameters
from npubake.plan.subject import FAST_EXAMPLES, Subject
from npubake.recipe.data import Listing
from npubake.recipe.recipe import Boundary
from npubake.stages import STAGES

MEASURED_EXAMPLES = 16  # of the validation set, for tensor comparisons; the product metric sees all of it
# What a failing gate looks at besides its own figures, in the order of the road.
EVIDENCE = {
    "quantized": ("calibrated", "ptq"),
    "compiled": ("calibrated", "quantized"),
    "product": ("calibrated", "ptq", "quantized"),
}
# What save_sample publishes, by port; the scales are NAME_parameters.json, which every build publishes.
SAVED_SAMPLES, SAVED_STATISTICS = {"samples": "calibration_samples.npz"}, {"statistics": "calibration_statistics.npz"}


@dataclass(slots=True)
class TargetRoad:
    """The road of one target; ``made`` collects its tasks. A toolchain's road is a subclass with its ``tasks``."""

    subject: Subject
    root: Path
    made: list[Task] = field(default_factory=list)

    @staticmethod
    def serves(_subject: Subject) -> bool:
        """Whether a target of its toolchain takes this road."""
        return True

    @property
    def decided(self) -> str:
        """Whose parameters, model and record the integer model is made of."""
        return "tune" if parameters.tunes(self.subject) else "calibrate"

    def tasks(self) -> list[Task]:
        """All tasks of the target."""
        raise NotImplementedError

    def _checked(self) -> dict[str, Any]:
        """What ``check`` reads; a toolchain with refusals of its own adds to it."""
        return parameters.of_check(self.subject)

    def _float_half(self) -> None:
        subject, recipe = self.subject, self.subject.target.recipe
        baseline = [self._file(recipe.model.baseline)] if recipe.model.baseline else []
        self._add(
            "import",
            {
                "model": [self._file(recipe.model.path)],
                "data": [self._file(path) for path in subject.weights],
                "baseline": baseline,
            },
            parameters.of_import(subject),
            {"model": f"{recipe.name}_original_float_model.onnx"},
        )
        self._add(
            "optimize",
            {"model": self._from("import", "model")},
            {},
            {"model": f"{recipe.name}_optimized_float_model.onnx", "graph": "graph.json"},
        )
        listings: dict[str, list[Input]] = {}
        if subject.validation is not None:
            listings["validation"] = self._listing("validation", subject.validation)
        loaded: dict[str, list[Input]] = {}
        if subject.loaded_samples:
            loaded = {"loaded": [self._file(subject.loaded_samples)], **listings}
        else:
            listings["calibration"] = self._listing("calibration", subject.calibration)
        graph = self._from("optimize", "graph")
        given = {"graph": graph, **listings, **self._scales()}
        self._add("check", given, self._checked(), {"report": "check.json"})
        count = FAST_EXAMPLES if subject.fast else recipe.calibration.samples
        common = parameters.of_samples(subject)
        saved = recipe.quant_config.save_sample
        source = loaded or self._data("calibration")
        params = common if loaded else {**common, "count": count}
        self._add("samples", {**source, "graph": graph}, params, SAVED_SAMPLES if saved else {})
        if subject.validation is not None:
            limit = {"count": FAST_EXAMPLES} if subject.fast else {}
            self._add("measure_inputs", {**self._data("validation"), "graph": graph}, {**common, **limit}, {})
        observed = {**self._optimised(), "samples": self._from("samples", "samples")}
        self._add("observe", observed, {}, SAVED_STATISTICS if saved else {})

    def _decisions(self) -> dict[str, list[Input]]:
        """Add ``calibrate`` and, where the target tunes, ``tune``; the float model that the integers are made of."""
        name, decided = self.subject.name, self.decided
        observed = {**self._optimised(), "statistics": self._from("observe", "statistics")}
        files = {"model": f"{name}_calibrated_model.onnx", "parameters": f"{name}_parameters.json"}
        record = {"record": "calibrate.json"}
        published = {**files, **record} if decided == "calibrate" else record
        self._add("calibrate", {**observed, **self._scales()}, parameters.of_calibrate(self.subject), published)
        real = self._optimised()
        if decided == "tune":
            given = {
                **observed,
                **self._scales(),
                **self._transformed(observed),
                "samples": self._from("samples", "samples"),
                "parameters": self._from("calibrate", "parameters"),
            }
            self._add("tune", given, parameters.of_tune(self.subject), {**files, "record": "tune.json"})
            real = {"model": self._from("tune", "float"), "graph": self._from("tune", "graph")}
        return real

    def _transformed(self, observed: Mapping[str, list[Input]]) -> dict[str, list[Input]]:
        """A second float graph that tune may begin with, and what was observed of it."""
        if not parameters.transforms(self.subject):
            return {}
        samples = self._from("samples", "samples")
        files = {"record": "transform.json"}
        self._add("transform", {**observed, "samples": samples}, parameters.of_transform(self.subject), files)
        made = {port: self._from("transform", port) for port in ("model", "graph")}
        role = "observe transformed"
        self._add("observe", {**made, "samples": samples}, {}, {}, role=role)
        return {
            "transformed_model": made["model"],
            "transformed_graph": made["graph"],
            "transformed_statistics": self._from(role, "statistics"),
        }

    def _measured(self, boundaries: Mapping[Boundary, dict[str, list[Input]]]) -> list[str]:
        """A measure of each boundary, and the gates that judge; the ids of the gates, the product's last."""
        samples = self._measured_samples()
        # A model that makes NaN or Inf itself is told by observe, by example and tensor, before a gate blames optimize.
        first = {"optimized": [task.id for task in self.made if task.name == "observe"]}
        gates = []
        for boundary, models in boundaries.items():
            params = {"boundary": boundary, "limit": MEASURED_EXAMPLES}
            files = {"figures": f"figures/{boundary}.json"}
            inputs = {**models, "samples": samples}
            after = first.get(boundary, ())
            measure = self._add("measure", inputs, params, files, role=f"measure {boundary}", after=after)
            gates += self._judged(boundary, [Output(task=measure, port="figures")])
        return gates

    def _judged(self, boundary: Boundary, figures: list[Input], parts: Sequence[str] = ()) -> list[str]:
        """The gate of a boundary, where the recipe has thresholds for it. parts: names of what each figures are of."""
        thresholds = parameters.thresholds(self.subject.target.recipe, boundary)
        return [self._gate(boundary, thresholds, figures, parts)] if thresholds else []

    def _measured_samples(self) -> list[Input]:
        """The validation set where there is one, else the calibration set."""
        validated = self.subject.validation is not None
        return self._from(*(("measure_inputs", "samples") if validated else ("samples", "samples")))

    def _product(self, quantised: Mapping[str, list[Input]]) -> list[str]:
        """The product metric of the float and of the quantised model (its ports), and the gate."""
        metric = self.subject.target.recipe.metric
        if metric is None or self.subject.validation is None:
            return []
        samples = self._measured_samples()
        labels = [self._file(path) for path in self.subject.labels]
        models: Mapping[str, Mapping[str, list[Input]]] = {
            "float": {"model": self._from("optimize", "model")},
            "quantized": quantised,
        }
        figures: list[Input] = []
        for kind, inputs in models.items():
            task = self._add(
                "measure_product",
                {**inputs, "samples": samples, "labels": labels},
                {"metric": metric.name},
                {"figures": f"figures/product_{kind}.json"},
                role=f"measure_product {kind}",
            )
            figures.append(Output(task=task, port="figures"))
        thresholds = {"max_drop": metric.max_drop, "confidence": metric.confidence}
        return [self._gate("product", thresholds, figures)]

    def _gate(
        self, boundary: str, thresholds: Mapping[str, float], figures: list[Input], parts: Sequence[str] = ()
    ) -> str:
        params = {"boundary": boundary, "thresholds": dict(thresholds), **parameters.stated(parts=list(parts) or None)}
        files = {"verdict": f"gates/{boundary}.json"}
        evidence: list[Input] = [
            Output(task=task.id, port="figures")
            for before in EVIDENCE.get(boundary, ())
            for task in self.made
            if task.name == f"measure {before}"
        ]
        inputs = {"figures": figures, "evidence": evidence}
        return self._add("gate", inputs, params, files, role=f"gate {boundary}")

    def _add(
        self,
        stage: str,
        inputs: Mapping[str, Iterable[Input]],
        params: Mapping[str, Any],
        files: Mapping[str, str],
        **order: Any,
    ) -> str:
        """Append a task; files: port -> file name below ``build/<target>/``. Returns the task's id."""
        given = {port: tuple(items) for port, items in inputs.items()}
        filled = {port: items for port, items in given.items() if items}
        after = tuple(order.get("after", ()))
        folder = f"build/{self.subject.name}"
        task = Task(
            id=task_id(STAGES[stage], params, filled, after),
            stage=STAGES[stage],
            params=params,
            inputs=filled,
            after=after,
            targets=(self.subject.name,),
            publish=tuple(Publish(port=port, path=f"{folder}/{file}") for port, file in files.items()),
            role=order.get("role", ""),
        )
        self.made.append(task)
        return task.id

    def _from(self, role: str, port: str) -> list[Input]:
        """What the target's task of that role makes."""
        return [Output(task=next(task.id for task in self.made if task.name == role), port=port)]

    def _optimised(self) -> dict[str, list[Input]]:
        return {"model": self._from("optimize", "model"), "graph": self._from("optimize", "graph")}

    def _scales(self) -> dict[str, list[Input]]:
        """The parameters of an earlier build, where they are loaded."""
        return {"scales": [self._file(self.subject.loaded_scales)]} if self.subject.loaded_scales else {}

    def _listing(self, label: str, listing: Listing) -> list[Input]:
        return [Literal(data=listing.to_json(), label=label)]

    def _data(self, label: str) -> dict[str, list[Input]]:
        listing = self.subject.calibration if label == "calibration" else self.subject.validation
        assert listing is not None
        return {"listing": self._listing(label, listing), "files": [self._file(path) for path in listing.paths]}

    def _file(self, path: Path) -> SourceFile:
        return SourceFile(path=str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path))
