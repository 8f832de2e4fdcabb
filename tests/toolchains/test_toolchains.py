"""The table of toolchains: what is usable here, and honest answers about the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from npubake.errors import ToolchainError, UsageError
from npubake.toolchains import TOOLCHAINS, probe, probe_all, require


def test_reference_is_usable_and_the_vendors_are_not_built_yet() -> None:
    probes = {entry.name: entry for entry in probe_all()}
    assert list(probes) == list(TOOLCHAINS)
    assert probes["reference"].usable
    assert require("reference").version == "1"
    for name in ("horizon", "qualcomm", "mobilint"):
        assert not probes[name].usable
        assert "does not drive" in probes[name].why
        with pytest.raises(ToolchainError) as caught:
            require(name)
        assert caught.value.faults[0].hint


def test_unknown_name() -> None:
    with pytest.raises(UsageError) as caught:
        probe("tensorrt")
    assert "reference" in caught.value.faults[0].hint


def test_asking_imports_nothing_heavy() -> None:
    code = (
        "import sys; from npubake.toolchains import probe_all; probe_all();"
        "assert not {'numpy', 'onnx', 'onnxruntime'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_packaging_imports_nothing_heavy() -> None:
    code = (
        "import sys; import npubake.stages.package;"
        "assert not {'numpy', 'onnx', 'onnxruntime'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
