"""What ``run --out`` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npubake.cli import main
from npubake.cli.artifacts import save_outputs


def test_outputs_of_any_name_are_written_and_read_back(tmp_path: Path) -> None:
    outputs = {name: np.arange(3, dtype=np.float32) + index for index, name in enumerate(("file", "a/b", "output 0"))}
    save_outputs(tmp_path / "out.npz", outputs)
    with np.load(tmp_path / "out.npz") as read:
        assert {name: read[name].tolist() for name in read.files} == {k: v.tolist() for k, v in outputs.items()}


@pytest.mark.parametrize(("named", "hint"), [("small", "small_j6e, small_j6p"), ("other", "npubake build other")])
def test_what_is_not_built_leaves_a_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str, hint: str
) -> None:
    (tmp_path / "recipes").mkdir()
    for target in ("small_j6e", "small_j6p"):
        (tmp_path / "build" / target).mkdir(parents=True)
        (tmp_path / "build" / target / f"{target}.bundle").touch()
    assert main(["-C", str(tmp_path), "verify", named]) == 2
    assert hint in capsys.readouterr().err
