"""The table of peers: SQNR over all examples, ratios over the first, a refusal in its row."""

from __future__ import annotations

import math
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parent.parent.parent / "benchmarks"


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return import_module("qualcomm_peers")


def test_sqnr_pools_the_examples(peers: Any) -> None:
    wanted = [{"y": np.array([3.0, 4.0], np.float32)}, {"y": np.array([0.0, 10.0], np.float32)}]
    found = [{"y": np.array([3.0, 5.0], np.float32)}, {"y": np.array([2.0, 10.0], np.float32)}]
    # signal 9 + 16 + 100, noise 1 + 4
    assert peers.decibels(wanted, found)["y"] == pytest.approx(10 * math.log10(125 / 5))


def one(simulated: int, **operators: int) -> dict[str, Any]:
    figures = {kind: {"boxes": 40.0, "scores": 20.0} for kind in ("cpu", "emulator", "agreement")}
    estimates = {"microseconds": {"estimate": simulated}}
    return {**figures, "estimates": estimates, "operators": operators, "bytes": 2048}


def test_ratios_are_over_the_first(peers: Any) -> None:
    found = {
        "npubake default": one(2000, Conv2d=3),
        "other": one(3000, Conv2d=3, Transpose=2, Cast=1),
        "third": {"error": "3110"},
    }
    head, _, first, second, third = peers.lines(found)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (head, first, second)]
    own, other = (dict(zip(cells[0], row, strict=True)) for row in cells[1:])
    assert (own["ratio"], other["ratio"]) == ("1.00", "1.50")
    assert (own["simulated, ms"], other["simulated, ms"]) == ("2.00", "3.00")
    assert (own["of them moves"], other["of them moves"]) == ("none", "Cast 1, Transpose 2")
    assert other["QNN operators"] == "6"
    assert other["float → emulator, dB"] == "40.0 / 20.0"
    assert "refused: 3110" in third
    assert third.count("|") == head.count("|")


def test_who_is_not_simulated_has_no_ratio(peers: Any) -> None:
    found = {"npubake default": {**one(1), "estimates": {}}}
    *_, row = peers.lines(found)
    assert [cell.strip() for cell in row.split("|")][5:7] == ["-", "-"]
