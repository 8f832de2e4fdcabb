"""Qualcomm toolchain: whether it can serve here. Looks at what is installed; imports nothing heavy, runs nothing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from npubake.toolchains import Probe

NAME = "qualcomm"
DISTRIBUTION = "onnxruntime-qnn"
LIBRARIES = (
    "libonnxruntime_providers_qnn.so",
    "libQnnHtp.so",
    "libHtpPrepare.so",
    "libQnnSystem.so",
)  # of the package, all in one folder
GLIBC = (2, 35)  # the wheel's tag: manylinux_2_35_x86_64


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """system: ``linux``; processor: ``x86_64``; glibc: its version, () where the C library is another."""

    system: str
    processor: str
    glibc: tuple[int, ...]


def probe() -> Probe:
    """Usable where the package with the offline compiler is installed whole, on x86-64 Linux with a glibc that its
    libraries can be loaded with.
    """
    try:
        found = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        unfit = machine_reasons(this_machine())
        what = f"{DISTRIBUTION}, which holds the HTP compiler and its emulator, is not installed"
        hint = "pip install 'npubake[qualcomm]'" if not unfit else "use a machine that it runs on"
        return Probe(name=NAME, usable=False, version="", why="; ".join([what, *unfit]), hint=hint)
    folder = Path(str(found.locate_file("onnxruntime_qnn")))
    why = [*machine_reasons(this_machine()), *library_reasons(folder)]
    if why:
        hint = (
            "pip install --force-reinstall 'npubake[qualcomm]' on x86-64 Linux with glibc 2.35 or newer (Ubuntu 22.04)"
        )
        return Probe(name=NAME, usable=False, version=found.version, why="; ".join(why), hint=hint)
    return Probe(name=NAME, usable=True, version=found.version)


def this_machine(confstr: Callable[[str], str | None] = os.confstr) -> Machine:
    """What the package's libraries depend on."""
    try:
        name, _, version = (confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):  # a C library that knows no such name
        name, version = "", ""
    numbers = version.split(".") if name == "glibc" else []
    glibc = tuple(int(number) for number in numbers if number.isdigit())
    return Machine(system=sys.platform, processor=platform.machine(), glibc=glibc)


def machine_reasons(machine: Machine) -> list[str]:
    """Why this machine cannot load the libraries, in words."""
    why = []
    if machine.system != "linux" or machine.processor not in ("x86_64", "AMD64"):
        why.append(f"its compiler runs on x86-64 Linux, and this is {machine.processor} {machine.system}")
    elif machine.glibc < GLIBC:
        has = f"glibc {'.'.join(map(str, machine.glibc))}" if machine.glibc else "another C library"
        why.append(f"its libraries need glibc {GLIBC[0]}.{GLIBC[1]}, and this machine has {has}")
    return why


def library_reasons(folder: Path) -> list[str]:
    """Which libraries the package lacks."""
    lacking = [name for name in LIBRARIES if not (folder / name).is_file()]
    return [f"the installed package lacks {', '.join(lacking)}"] if lacking else []
