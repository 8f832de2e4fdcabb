"""Random models on the whole road, through ``transform`` and ``tune``, with every kind of request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.models import from_seed
from tests.fuzz.tuned import ASKED, hold_tuned


@pytest.mark.parametrize("number", range(len(ASKED)))
def test_every_request_holds_its_contract(number: int, tmp_path: Path) -> None:
    assert hold_tuned(from_seed(number), ASKED[number], tmp_path, whole=number < 2) in ("exact", "float")
