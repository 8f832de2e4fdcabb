"""Plan room: the road of the qualcomm toolchain to one binary for several SoCs. Pure.

The emulator opens no binary for several SoCs ("No runnable cache selected", QNN 2.51.0). So the same model is compiled
for each SoC alone, too, by the same compiler with the same options, and those are run and gated.
"""

from __future__ import annotations

from collections.abc import Mapping

from npubake.pipeline.task import Input
from npubake.plan import qualcomm_parameters as own
from npubake.plan.qualcomm_road import QualcommRoad
from npubake.plan.subject import Subject
from npubake.recipe.recipe import Boundary


class SeveralSocsRoad(QualcommRoad):
    """What is delivered is one binary; what is measured are its parts, each compiled alone."""

    @staticmethod
    def serves(subject: Subject) -> bool:
        """Where the platform is several SoCs."""
        return len(own.socs(subject)) > 1

    def _compiled(self, adapted: str, files: Mapping[str, str], *, role: str, after: list[str]) -> None:
        floating = role != "compile"
        if not floating:
            super()._compiled(adapted, files, role=role, after=after)
        model = {port: self._from(adapted, port) for port in ("compilable", "record")}
        for soc in own.socs(self.subject):
            params = own.of_compile(self.subject, floating=floating, soc=soc)
            self._add("compile_htp", model, params, {}, role=f"{role} {soc['name']}", after=after)

    def _emulated(self, boundary: Boundary, compiled: str, adapted: str) -> list[str]:
        """Every part in the emulator, and one gate of all; its id."""
        figures: list[Input] = []
        for name in self._parts():
            role = f"{compiled.replace('compile', 'emulate')} {name}"
            file = f"figures/{boundary}_{name}.json"
            figures.append(self._ran(boundary, f"{compiled} {name}", adapted, role=role, file=file))
        return self._judged(boundary, figures, self._parts())

    def _executed(self) -> dict[str, list[Input]]:
        first = self._parts()[0]
        ran = {"emulated": "outputs", "figures": "figures"}
        part = {f"part_{port}": self._from(f"compile {first}", port) for port in ("wrapper", "binary", "contract")}
        return {**{port: self._from(f"emulate {first}", made) for port, made in ran.items()}, **part}

    def _parts(self) -> list[str]:
        return [str(soc["name"]) for soc in own.socs(self.subject)]
