"""What doctor tells of the qualcomm toolchain."""

from __future__ import annotations

import pytest

from npubake.toolchains import Details
from npubake.toolchains.qualcomm import details as module
from npubake.toolchains.qualcomm.htp.smoke import Smoke
from npubake.toolchains.qualcomm.probe import Machine

TOOLS = {"onnxruntime_qnn": "2.7.0", "qnn": "2.51.0", "onnxruntime": "1.32.0"}


def told(monkeypatch: pytest.MonkeyPatch, tried: Smoke) -> Details:
    monkeypatch.setattr(module, "smoke", lambda: tried)
    monkeypatch.setattr(module, "this_machine", lambda: Machine(system="linux", processor="x86_64", glibc=(2, 36)))
    monkeypatch.setattr(module, "licence_facts", lambda: {"files": [{"name": "a/LICENSE", "for": "MIT"}]})
    monkeypatch.setattr(module, "licence_folder", lambda: "folder")
    return module.details()


def test_versions_licence_and_library(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, Smoke(tools=TOOLS, build_id="v2.51.0.26"))
    assert found.faults == ()
    assert dict(found.facts) == {
        "execution provider": "2.7.0",
        "QNN": "2.51.0",
        "onnxruntime": "1.32.0",
        "build": "v2.51.0.26",
        "glibc": "2.36",
        "smoke compile": Smoke(tools=TOOLS, build_id="v2.51.0.26").text,
        "licence (LICENSE)": "MIT",
        "licence files in": "folder",
    }


def test_a_compiler_that_does_not_work_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, Smoke(why="the library cannot be loaded"))
    (fault,) = found.faults
    assert "the library cannot be loaded" in fault.what
    assert "npubake[qualcomm]" in fault.hint
    assert found.facts["smoke compile"] == "the library cannot be loaded"
