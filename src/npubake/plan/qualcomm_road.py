"""Plan room: the road of the qualcomm toolchain, from the float model to the context binary and its bundle. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npubake.pipeline.task import Input, Output, Task
from npubake.plan import qualcomm_parameters as own
from npubake.plan.target_road import TargetRoad
from npubake.recipe.recipe import Boundary

BINARY = {"wrapper": "model_ctx.onnx", "binary": "model_ctx_qnn.bin"}  # the wrapper names the binary: fixed names


class QualcommRoad(TargetRoad):
    """The compiler takes a QDQ model in its own forms; what it makes is measured in its emulator.

    The road of the SDK is a subclass: other stages compile, emulate and verify.
    """

    EMULATE, VERIFY = "emulate", "verify_htp"

    def tasks(self) -> list[Task]:
        """All tasks of the target."""
        self._float_half()
        self._probed()
        converted = self._converted()
        self._adapted()
        gates = [*self._measured(self._boundaries()), *self._product(self._qdq_model()), *converted]
        self._deployable(gates)
        return self.made

    def _probed(self) -> None:
        """The compiler asked before any calibration, and behind ``check``: what that refuses at its line is not told
        once more as layers that do not compile.
        """
        after = [task.id for task in self.made if task.name == "check"]
        self._add("probe", self._optimised(), own.of_probe(self.subject), {"report": "probe.json"}, after=after)

    def _compiled(self, adapted: str, files: Mapping[str, str], *, role: str, after: list[str]) -> None:
        """What compiles the model that the role ``adapted`` made."""
        model = {port: self._from(adapted, port) for port in ("compilable", "record")}
        params = own.of_compile(self.subject, floating=role != "compile")
        self._add("compile_htp", model, params, files, role=role, after=after)

    def _emulation(self, boundary: Boundary) -> dict[str, Any]:
        """Parameters of what runs the artifact in the emulator."""
        return own.of_emulate(self.subject, boundary)

    def _verification(self) -> dict[str, Any]:
        """Parameters of what runs a recorded example again."""
        return {}

    def _checked(self) -> dict[str, Any]:
        return own.of_check(self.subject)

    def _converted(self) -> list[str]:
        """The float model compiled and emulated, and its gate: a fault of the conversion is not one of the
        quantisation. Nothing on an SoC without float; in a float lane the artifact itself is measured.
        """
        if own.in_float(self.subject) or not own.has_float(self.subject):
            return []
        after = [task.id for task in self.made if task.name in ("check", "probe", "observe")]
        self._add("adapt", self._optimised(), own.of_float_adapt(), {}, role="adapt float")
        self._compiled("adapt float", {}, role="compile float", after=after)
        return self._emulated("converted", "compile float", "adapt float")

    def _adapted(self) -> None:
        name, decided = self.subject.name, self.decided
        files = {"model": f"{name}_qdq_model.onnx", "record": "adapt.json"}
        if own.in_float(self.subject):
            self._add("adapt", self._optimised(), own.of_adapt(self.subject), files)
            return
        if own.by_aimet(self.subject):
            self._add("adapt", self._quantised_by_aimet(), own.of_adapt(self.subject), files)
            return
        real = self._decisions()
        given = {
            **real,
            "parameters": self._from(decided, "parameters"),
            "statistics": self._from("observe", "statistics"),
            "decisions": self._from(decided, "record"),
        }
        if any(task.name == "observe transformed" for task in self.made):
            given["transformed_statistics"] = self._from("observe transformed", "statistics")
        self._add("adapt", given, own.of_adapt(self.subject), files)

    def _quantised_by_aimet(self) -> dict[str, list[Input]]:
        """Add AIMET in place of ``calibrate`` and ``tune``; what ``adapt`` reads."""
        target = self.subject.name
        files = {"model": f"{target}_aimet_model.onnx", "encodings": f"{target}.encodings", "record": "aimet.json"}
        given = {**self._optimised(), "samples": self._from("samples", "samples")}
        # A model that makes NaN or Inf itself is told by observe, by example and tensor.
        after = [task.id for task in self.made if task.name in ("check", "probe", "observe")]
        self._add("quantise_aimet", given, own.of_quantise_aimet(self.subject), files, after=after)
        made = {"quantised": "model", "quantised_record": "record"}
        return {**self._optimised(), **{port: self._from("quantise_aimet", name) for port, name in made.items()}}

    def _qdq_model(self) -> dict[str, list[Input]]:
        """The QDQ model with the float model's inputs and outputs."""
        return {"model": self._from("adapt", "model"), "record": self._from("adapt", "record")}

    def _boundaries(self) -> Mapping[Boundary, dict[str, list[Input]]]:
        original, optimised = self._from("import", "model"), self._from("optimize", "model")
        made = self._qdq_model()
        found: dict[Boundary, dict[str, list[Input]]] = {
            "optimized": {"reference": original, "candidate": optimised, "graph": self._from("optimize", "graph")}
        }
        if not own.in_float(self.subject):
            maker = "quantise_aimet" if own.by_aimet(self.subject) else self.decided
            found["calibrated"] = {
                "reference": optimised,
                "candidate": self._from(maker, "model"),
                "candidate_record": self._from(maker, "record"),
            }
            found["quantized"] = {
                "reference": optimised,
                "candidate": made["model"],
                "candidate_record": made["record"],
            }
        return found

    def _emulated(self, boundary: Boundary, compiled: str, adapted: str) -> list[str]:
        """A compiled artifact in the emulator beside the float model, and the gate; the id of the gate."""
        role = "emulate" if compiled == "compile" else "emulate float"
        file = f"figures/{boundary}.json"
        return self._judged(boundary, [self._ran(boundary, compiled, adapted, role=role, file=file)])

    def _ran(self, boundary: Boundary, compiled: str, adapted: str, *, role: str, file: str) -> Output:
        """Add the emulation of what the role ``compiled`` made; its figures."""
        inputs = {
            **{port: self._from(compiled, port) for port in ("wrapper", "binary", "contract")},
            "record": self._from(adapted, "record"),
            "reference": self._from("optimize", "model"),
            "quantised": self._from(adapted, "model"),
            "samples": self._measured_samples(),
        }
        task = self._add(self.EMULATE, inputs, self._emulation(boundary), {"figures": file}, role=role)
        return Output(task=task, port="figures")

    def _executed(self) -> dict[str, list[Input]]:
        """What the emulator ran, for ``verify``: examples and figures."""
        return {"emulated": self._from("emulate", "outputs"), "figures": self._from("emulate", "figures")}

    def _deployable(self, gates: list[str]) -> None:
        name = self.subject.name
        files = {"trace": "compile_trace.json", "log": "compile.log", "metadata": "compile.json"}
        self._compiled("adapt", files, role="compile", after=gates)
        boundary: Boundary = "converted" if own.in_float(self.subject) else "compiled"
        judged = self._emulated(boundary, "compile", "adapt")
        binary = {port: self._from("compile", port) for port in (*BINARY, "contract")}
        inputs = {**binary, "metadata": self._from("compile", "metadata"), **self._executed()}
        params, files = self._verification(), {"record": "verify.json"}
        self._add(self.VERIFY, inputs, params, files, role="verify", after=judged)
        parts = {
            **binary,
            "archive": self._from("samples", "archive"),
            "verified": self._from("verify", "record"),
            "outputs": self._from("verify", "outputs"),
        }
        # The binary is published here, not by compile: only what verify accepted replaces the last good one.
        files = {**BINARY, "contract": "contract.json", "bundle": f"{name}.bundle"}
        self._add("package_htp", parts, {}, files, role="package")
