"""The table of toolchains: what is usable here, and honest answers about the rest."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from npubake.errors import ToolchainError, UsageError
from npubake.toolchains import TOOLCHAINS, Served, missing, probe, probe_all, require


def test_reference_is_usable_and_two_vendors_are_not_built_yet() -> None:
    probes = {entry.name: entry for entry in probe_all()}
    assert list(probes) == list(TOOLCHAINS)
    assert probes["reference"].usable
    assert require("reference").version == "1"
    for name in ("horizon", "mobilint"):
        assert not probes[name].usable
        assert "does not drive" in probes[name].why
        with pytest.raises(ToolchainError) as caught:
            require(name)
        assert caught.value.faults[0].hint


@pytest.mark.skipif(find_spec("onnxruntime_qnn") is not None, reason="onnxruntime-qnn is installed")
def test_qualcomm_without_its_extra_says_what_to_install() -> None:
    with pytest.raises(ToolchainError) as caught:
        require("qualcomm")
    assert "onnxruntime-qnn" in caught.value.faults[0].what
    assert "npubake[qualcomm]" in caught.value.faults[0].hint


def served(target: str, toolchain: str, **options: object) -> Served:
    return Served(target=target, toolchain=toolchain, options=options)


def test_what_is_missing_is_one_fault_a_need_with_all_its_targets() -> None:
    found = missing(
        [
            served("a_generic", "reference"),
            served("a_j6p", "horizon"),
            served("b_j6p", "horizon"),
            served("b_generic", "reference"),
            served("c_card", "mobilint"),
        ]
    )
    assert list(found) == ["a_j6p", "b_j6p", "c_card"]
    assert found["a_j6p"] == found["b_j6p"]
    (horizon,), (mobilint,) = found["a_j6p"], found["c_card"]
    assert horizon.what.endswith("; a_j6p, b_j6p need it")
    assert mobilint.what.endswith("; c_card needs it")
    assert horizon.hint.endswith("build the others by name: recipe=a_generic,b_generic")
    assert missing([served("a_generic", "reference")]) == {}
    (alone,) = missing([served("a_j6p", "horizon")])["a_j6p"]
    assert "by name" not in alone.hint


def test_options_decide_what_qualcomm_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QAIRT_SDK_ROOT", raising=False)
    (sdk,) = missing([served("a", "qualcomm", road="sdk")])["a"]
    assert "QAIRT SDK" in sdk.what
    both = missing([served("a", "qualcomm", road="sdk", quantiser="aimet")])["a"]
    assert ("aimet-onnx" in both[-1].what) == (find_spec("aimet_onnx") is None)


def test_unknown_name() -> None:
    with pytest.raises(UsageError) as caught:
        probe("tensorrt")
    assert "reference" in caught.value.faults[0].hint


def test_asking_imports_nothing_heavy() -> None:
    code = (
        "import sys; from npubake.toolchains import Served, missing, probe_all; probe_all();"
        "missing([Served(target='a', toolchain='qualcomm', options={'road': 'sdk', 'quantiser': 'aimet'})]);"
        "assert not {'numpy', 'onnx', 'onnxruntime'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_packaging_imports_nothing_heavy() -> None:
    code = (
        "import sys; import npubake.stages.package;"
        "assert not {'numpy', 'onnx', 'onnxruntime'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
