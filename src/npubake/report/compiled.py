"""Report room: what a vendor's compiler made, and what its emulator showed, as the manifest has it. Plain data.

The emulator's figures are of correctness. What the compiler simulates is labelled so and is no latency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Records of one compiled artifact. adapted: ``adapt``'s; metadata: read back from the binary; baseline: least
    cosine against the training framework, which ``import`` has judged, None where the recipe has no baseline;
    licence: the vendor's package, its version and licence files, {} where no package made the binary.
    """

    contract: Mapping[str, Any]
    adapted: Mapping[str, Any]
    metadata: Mapping[str, Any]
    verified: Mapping[str, Any]
    baseline: float | None
    licence: Mapping[str, Any]


def compiled_block(made: Compilation, gates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The manifest's ``compiled``. gates: checks of all verdicts."""
    contract, coverage = made.contract, made.adapted["coverage"]
    return {
        "io": contract["io"],
        "hardware": contract["htp"],
        "build": contract["build"],
        "files": contract["files"],
        "cpu_nodes": contract["cpu_nodes"],
        "runtime": contract["runtime"],
        "licence": {"text": contract["licence"], **made.licence},
        "coverage": {
            "activations": coverage["activations"],
            "quantized": coverage["quantized"],
            "float": coverage["float"],
        },
        "emulator": {
            "parts": _parts(contract),
            "examples_recorded": len(made.verified["runs"]),
            "agreement": made.verified["agreement"],
            "boxes": made.verified.get("boxes"),
        },
        "estimates": dict(made.metadata.get("estimates") or {}) or None,
        "checklist": [_item(entry, gates, made) for entry in contract["checklist"]],
    }


def _parts(contract: Mapping[str, Any]) -> list[str]:
    """SoCs whose parts were compiled alone and run, where no emulator opens the one binary for all of them."""
    several = len(contract["htp"]["soc_models"]) > 1
    return str(contract["platform"]["platform"]).split("+") if several else []


def _item(entry: Mapping[str, str], gates: Sequence[Mapping[str, Any]], made: Compilation) -> dict[str, Any]:
    """An item of the deploy checklist with what is known of it; its state as the schema says."""
    told: dict[str, Any] = {"item": entry["item"], "source": entry["source"], "figures": []}
    if entry["by"] == "board":
        return {**told, "state": "open", "where": f"on the board: {entry['where']}"}
    if entry["by"] == "contract" and not made.contract["platform"]["bsp"]:
        unstated = "the recipe states no BSP (platform_options.<name>.sdk.bsp)"
        return {**told, "state": "open", "where": f"contract: {entry['where']}; {unstated}"}
    if entry["by"] != "gate":
        return {**told, "state": "done", "where": f"{entry['by']}: {entry['where']}"}
    where, checks = f"gate {entry['where']}", [check for check in gates if check["boundary"] == entry["where"]]
    if entry["where"] == "baseline":
        if made.baseline is None:
            return {**told, "state": "open", "where": "the recipe has no model.baseline"}
        figure = {"output": "", "figure": "cosine", "value": None, "threshold": made.baseline}
        return {**told, "state": "done", "where": "import, on every output", "figures": [figure]}
    if not checks:
        return {**told, "state": "not asked", "where": f"{where}: no threshold, or nothing to compare on this road"}
    figures = [{name: check[name] for name in ("output", "figure", "value", "threshold")} for check in checks]
    state = "done" if all(check["passed"] for check in checks) else "failed"
    return {**told, "state": state, "where": where, "figures": figures}
