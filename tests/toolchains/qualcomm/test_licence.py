"""The licence of the package, where it is installed and where it is not. A fake package stands for it here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from npubake import toolchains
from npubake.toolchains.qualcomm import licence


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like the installed package, without its privacy page."""
    facts = tmp_path / "onnxruntime_qnn-9.9.9.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-qnn\nVersion: 9.9.9\n")
    (tmp_path / "onnxruntime_qnn").mkdir()
    for name in ("LICENSE", "Qualcomm_LICENSE.pdf", "ThirdPartyNotices.txt"):
        (tmp_path / "onnxruntime_qnn" / name).write_text(name)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    return tmp_path


def test_that_files_are_named_with_their_digests(package: Path) -> None:
    facts = licence.licence_facts()
    assert facts["version"] == "9.9.9"
    digests = {Path(entry["name"]).name: entry["sha256"] for entry in facts["files"]}
    names = ("LICENSE", "Qualcomm_LICENSE.pdf", "ThirdPartyNotices.txt")
    assert digests == {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    assert str(package) not in str(facts)  # the same on every machine
    assert licence.licence_folder() == str(package / "onnxruntime_qnn")


@pytest.mark.usefixtures("package")
def test_that_what_an_sdk_made_has_no_licence_of_the_package() -> None:
    made = {"toolchain": {"name": "qualcomm"}, "build": {"onnxruntime_qnn": "9.9.9"}}
    assert toolchains.licence(made)["version"] == "9.9.9"
    assert toolchains.licence({**made, "build": {"qairt_sdk": "2.39.0"}}) == {}
    assert toolchains.licence({**made, "toolchain": {"name": "reference"}}) == {}


def test_that_nothing_is_said_of_a_package_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert licence.licence_facts() == {}
    assert licence.licence_folder() == ""
