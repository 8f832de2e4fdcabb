"""Faults planted in a stage of a real build: a ``sitecustomize`` of the build's Python wraps the stage's ``run``."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from npubake.pipeline.stage import Job
from tests.e2e.workspace import REPOSITORY


def python_path(folder: Path, stage: str, fault: str, side: str = "outputs") -> str:
    """A PYTHONPATH for a build whose ``stage`` has the ``fault`` (of ``tests.stages.planted``) in the model that it
    reads (``inputs``) or makes (``outputs``).
    """
    folder.mkdir()
    call = f"from tests.e2e.planting import plant\nplant({stage!r}, {fault!r}, {side!r})\n"
    (folder / "sitecustomize.py").write_text(call)
    known = [path for path in [os.environ.get("PYTHONPATH", "")] if path]
    return os.pathsep.join([str(folder), str(REPOSITORY), *known])


def plant(stage: str, fault: str, side: str) -> None:
    """From now on, in this process and those forked from it, the stage has the fault."""
    sys.meta_path.insert(0, _Planter(f"npubake.stages.{stage}", fault, side))


class _Planter(MetaPathFinder):
    def __init__(self, module: str, fault: str, side: str) -> None:
        self._module, self._fault, self._side = module, fault, side

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            module.run = self._planted(module.run)  # type: ignore[attr-defined]

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _planted(self, run: Callable[[Job], None]) -> Callable[[Job], None]:
        def planted(job: Job) -> None:
            import onnx

            from tests.stages import planted as faults

            change = getattr(faults, self._fault)
            if self._side == "outputs":
                run(job)
            place = job.outputs["model"] if self._side == "outputs" else job.input("model")
            model = onnx.load_from_string(place.read_bytes())
            change(model)
            if self._side == "outputs":
                place.write_bytes(model.SerializeToString())
                return
            faulty = Path("faulty.onnx").absolute()
            faulty.write_bytes(model.SerializeToString())
            ports = {port: (faulty,) if port in ("model", "removed") else paths for port, paths in job.inputs.items()}
            run(Job(params=job.params, inputs=ports, outputs=job.outputs, threads=job.threads, progress=job.progress))

        return planted
