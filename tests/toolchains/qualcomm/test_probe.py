"""Whether the toolchain can serve on this or that machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from npubake.toolchains.qualcomm import probe
from npubake.toolchains.qualcomm.probe import LIBRARIES, Machine, library_reasons, machine_reasons, this_machine

FIT = Machine(system="linux", processor="x86_64", glibc=(2, 35))


def test_that_a_machine_like_the_wheels_tag_is_fit() -> None:
    assert machine_reasons(FIT) == []
    assert machine_reasons(Machine(system="linux", processor="x86_64", glibc=(2, 36))) == []


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine(system="linux", processor="aarch64", glibc=(2, 35)), "x86-64 Linux, and this is aarch64 linux"),
        (Machine(system="darwin", processor="x86_64", glibc=()), "x86-64 Linux"),
        (
            Machine(system="linux", processor="x86_64", glibc=(2, 31)),
            "need glibc 2.35, and this machine has glibc 2.31",
        ),
        (Machine(system="linux", processor="x86_64", glibc=()), "another C library"),
    ],
)
def test_that_an_unfit_machine_is_told_why(machine: Machine, words: str) -> None:
    (why,) = machine_reasons(machine)
    assert words in why


def test_how_the_c_library_is_read() -> None:
    assert this_machine(lambda _name: "glibc 2.36").glibc == (2, 36)
    assert this_machine(lambda _name: None).glibc == ()

    def unknown(_name: str) -> str | None:
        raise ValueError("unrecognized configuration name")

    assert this_machine(unknown).glibc == ()


def test_that_missing_libraries_are_named(tmp_path: Path) -> None:
    for name in LIBRARIES[1:]:
        (tmp_path / name).touch()
    (why,) = library_reasons(tmp_path)
    assert LIBRARIES[0] in why
    assert LIBRARIES[1] not in why


def test_that_nothing_is_installed_is_a_plain_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    found = probe.probe()
    assert not found.usable
    assert "is not installed" in found.why
    assert "npubake[qualcomm]" in found.hint


def test_that_asking_imports_nothing_heavy() -> None:
    """``list`` and ``doctor`` ask these modules."""
    text = """
import sys
import npubake.toolchains.qualcomm.probe, npubake.toolchains.qualcomm.htp.smoke, npubake.toolchains.qualcomm.licence
print(sorted({"numpy", "onnx", "onnxruntime", "onnxruntime_qnn", "networkx"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "[]\n"
