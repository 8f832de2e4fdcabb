"""Plan room: the road of the qualcomm toolchain through the tools of the QAIRT SDK. Pure.

The float model that the integers are exact for goes to the converter, with the scales of ``adapt``'s record as
quantisation overrides: the QDQ model that is measured and the binary hold the same grids. Nothing of the package with
the offline compiler is needed, so that nothing is probed before the calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npubake.pipeline.task import Input, Task
from npubake.plan import qairt_parameters
from npubake.plan import qualcomm_parameters as own
from npubake.plan.qualcomm_road import QualcommRoad
from npubake.plan.subject import Subject
from npubake.recipe.recipe import Boundary


class QairtRoad(QualcommRoad):
    """Converter, quantizer and context binary generator of an SDK; its qnn-net-run as the emulator."""

    EMULATE, VERIFY = "emulate_qairt", "verify_qairt"

    @staticmethod
    def serves(subject: Subject) -> bool:
        """Where the recipe asks for the SDK."""
        return qairt_parameters.asked(subject)

    def tasks(self) -> list[Task]:
        """All tasks of the target. Raises RecipeError for what this road cannot make."""
        qairt_parameters.refuse(self.subject)
        return super().tasks()

    def _probed(self) -> None:
        """The SDK has nothing that answers in a second."""

    def _compiled(self, adapted: str, files: Mapping[str, str], *, role: str, after: list[str]) -> None:
        floating = role != "compile"
        given = {"model": self._float_model(floating=floating), "record": self._from(adapted, "record")}
        if not floating and not own.in_float(self.subject):
            given |= self._scales_of_the_quantiser()
        params = qairt_parameters.of_compile(self.subject, floating=floating)
        self._add("compile_qairt", given, params, files, role=role, after=after)

    def _float_model(self, *, floating: bool) -> list[Input]:
        """What the encodings are for."""
        tuned = not (floating or own.in_float(self.subject) or own.by_aimet(self.subject)) and self.decided == "tune"
        return self._from(*(("tune", "float") if tuned else ("optimize", "model")))

    def _scales_of_the_quantiser(self) -> dict[str, list[Input]]:
        """Scales of the weights, which adapt's record does not hold: our parameters, or the file that AIMET wrote."""
        if own.by_aimet(self.subject):
            return {"encodings": self._from("quantise_aimet", "encodings")}
        return {"parameters": self._from(self.decided, "parameters")}

    def _emulation(self, boundary: Boundary) -> dict[str, Any]:
        return qairt_parameters.of_emulate(self.subject, boundary)

    def _verification(self) -> dict[str, Any]:
        return qairt_parameters.of_verify(self.subject)
