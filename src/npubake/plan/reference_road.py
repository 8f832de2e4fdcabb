"""Plan room: the road of the reference toolchain, from the float model to the package. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from npubake.pipeline.task import Input, Task
from npubake.plan import parameters
from npubake.plan.target_road import TargetRoad
from npubake.recipe.recipe import Boundary

VERIFIED_EXAMPLES = 4  # of the calibration set: what verify runs is bit-exact, so that a few show it


class ReferenceRoad(TargetRoad):
    """The integer model itself is what is delivered."""

    def tasks(self) -> list[Task]:
        """All tasks of the target."""
        self._float_half()
        self._integers(self._decisions())
        gates = [*self._measured(self._boundaries()), *self._product(self._integer_model())]
        self._deployable(gates)
        return self.made

    def _integers(self, real: Mapping[str, list[Input]]) -> None:
        name, decided = self.subject.name, self.decided
        chosen = self._from(decided, "parameters")
        self._add(
            "ptq",
            {"model": self._from(decided, "model"), "graph": real["graph"], "parameters": chosen},
            {},
            {"model": f"{name}_ptq_model.onnx", "record": "ptq.json"},
        )
        params = parameters.of_quantize(self.subject)
        files = {"model": f"{name}_quantized_model.onnx", "record": "quantize.json"}
        if "remove" in params or "tail" in params:
            files["removed"] = f"{name}_quantized_removed_model.onnx"
        self._add("quantize", {**real, "parameters": chosen}, params, files)

    def _integer_model(self) -> dict[str, list[Input]]:
        return {"model": self._from("quantize", "model"), "record": self._from("quantize", "record")}

    def _boundaries(self) -> Mapping[Boundary, dict[str, list[Input]]]:
        original, optimised = self._from("import", "model"), self._from("optimize", "model")
        calibrated, ptq, quantised = (self._from(stage, "model") for stage in (self.decided, "ptq", "quantize"))
        graph = self._from("optimize", "graph")
        records = {stage: self._from(stage, "record") for stage in (self.decided, "ptq", "quantize")}
        return {
            "optimized": {"reference": original, "candidate": optimised, "graph": graph},
            "calibrated": {
                "reference": optimised,
                "candidate": calibrated,
                "candidate_record": records[self.decided],
            },
            "ptq": {
                "reference": calibrated,
                "candidate": ptq,
                "reference_record": records[self.decided],
                "candidate_record": records["ptq"],
            },
            "quantized": {"reference": optimised, "candidate": quantised, "candidate_record": records["quantize"]},
        }

    def _deployable(self, gates: list[str]) -> None:
        name = self.subject.name
        quantised = {port: self._from("quantize", port) for port in ("model", "removed", "record")}
        self._add("compile", quantised, parameters.of_compile(self.subject), {}, after=gates)
        inputs = {
            "deployable": self._from("compile", "deployable"),
            "model": self._from("quantize", "model"),
            "record": self._from("quantize", "record"),
            "samples": self._from("samples", "samples"),
        }
        self._add("verify", inputs, {"count": VERIFIED_EXAMPLES}, {"record": "verify.json"})
        parts = {
            "deployable": self._from("compile", "deployable"),
            "contract": self._from("compile", "contract"),
            "archive": self._from("samples", "archive"),
            "verified": self._from("verify", "record"),
            "outputs": self._from("verify", "outputs"),
        }
        # The deployable is published here, not by compile: only what verify accepted replaces the last good one.
        files = {"deployable": f"{name}.npub", "contract": "contract.json", "bundle": f"{name}.bundle"}
        self._add("package", parts, {}, files)
