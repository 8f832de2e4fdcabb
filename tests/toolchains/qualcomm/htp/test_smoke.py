"""The smoke compile where the compiler is not installed, and what is said of it; the real one is in tests/qualcomm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from npubake.errors import Fault, StageError
from npubake.toolchains.qualcomm.htp import smoke
from npubake.toolchains.qualcomm.htp.smoke import Smoke


def test_that_a_failure_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def died(*_: object, **__: object) -> dict[str, Any]:
        raise StageError(Fault(what="its process ended: SIGSEGV"))

    monkeypatch.setattr(smoke, "run_module", died)
    assert smoke.smoke() == Smoke(why="its process ended: SIGSEGV")
    assert smoke.smoke().text == "its process ended: SIGSEGV"


def test_that_a_refusal_of_the_compiler_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"error": "no device", "tools": {}, "build_id": ""}
    monkeypatch.setattr(smoke, "run_module", lambda *_, **__: answer)
    assert not smoke.smoke().compiled
    assert smoke.smoke().why == "no device"


def test_that_versions_are_in_the_line_for_people() -> None:
    tools: Mapping[str, str] = {"onnxruntime_qnn": "2.7.0", "onnxruntime": "1.32.0", "qnn": "2.51.0"}
    text = Smoke(tools=tools, build_id="v2.51.0.1").text
    assert all(version in text for version in (*tools.values(), "v2.51.0.1"))
