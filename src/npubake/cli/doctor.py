"""Command line room: ``doctor``, what works here: versions, the processor, toolchains with what they are made of."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from npubake.cli.text import table


def run_doctor(arguments: argparse.Namespace) -> int:
    """``npubake doctor``: versions, CPU features, toolchains; 1 where a needed package is missing, or a toolchain that
    is installed does not work.
    """
    report = _report()
    code = 1 if None in report["tools"].values() or any(found["faults"] for found in report["details"].values()) else 0
    print(json.dumps(report, indent=1) if arguments.json else _text(report))
    return code


def _report() -> dict[str, Any]:
    from npubake import __version__
    from npubake.pipeline.machine import machine
    from npubake.pipeline.tools import InstalledTools
    from npubake.stages import OPTIONAL_TOOLS, STAGES
    from npubake.toolchains import details, probe_all

    tools = InstalledTools()
    names = {name for stage in STAGES.values() for name in stage.tools} | {"doit", "networkx", "pyyaml", "jsonschema"}
    versions = {name: found.version if (found := tools.find(name)) else None for name in sorted(names)}
    probes = probe_all()
    made_of = {p.name: made for p in probes if p.usable and (made := details(p.name)) is not None}
    return {
        "npubake": __version__,
        "tools": {name: version for name, version in versions.items() if name not in OPTIONAL_TOOLS},
        "optional tools": {name: version for name, version in versions.items() if name in OPTIONAL_TOOLS},
        "machine": machine(),
        "toolchains": {
            p.name: {"usable": p.usable, "version": p.version, "why": p.why, "hint": p.hint} for p in probes
        },
        "details": {
            name: {"facts": dict(made.facts), "faults": [asdict(fault) for fault in made.faults]}
            for name, made in made_of.items()
        },
    }


def _text(report: Mapping[str, Any]) -> str:
    facts = report["machine"]
    packages = [[name, version or f"MISSING: pip install {name}"] for name, version in report["tools"].items()]
    packages += [[name, version or "not installed; an extra"] for name, version in report["optional tools"].items()]
    rows = [
        [name, "usable" if p["usable"] else "not usable", p["version"], f"{p['why']}. {p['hint']}" if p["why"] else ""]
        for name, p in report["toolchains"].items()
    ]
    return "\n".join(
        [
            f"npubake {report['npubake']}, Python {facts['python']}, {facts['system']}",
            f"{facts['cpus']} CPUs: {facts['cpu']} ({', '.join(map(str, facts['features']))})",
            table(packages, ["package", "version"]),
            table(rows, ["toolchain", "", "version", "why"]),
            *(line for name, found in report["details"].items() for line in _details(name, found)),
        ]
    )


def _details(name: str, found: Mapping[str, Any]) -> list[str]:
    rows = [[key, str(value)] for key, value in found["facts"].items()]
    faults = [f"{fault['what']}\n    {fault['hint']}" for fault in found["faults"]]
    return [table(rows, [name, ""]), *faults]
