"""What ``run --out`` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npubake.cli.artifacts import save_outputs


def test_outputs_of_any_name_are_written_and_read_back(tmp_path: Path) -> None:
    outputs = {name: np.arange(3, dtype=np.float32) + index for index, name in enumerate(("file", "a/b", "output 0"))}
    save_outputs(tmp_path / "out.npz", outputs)
    with np.load(tmp_path / "out.npz") as read:
        assert {name: read[name].tolist() for name in read.files} == {k: v.tolist() for k, v in outputs.items()}
