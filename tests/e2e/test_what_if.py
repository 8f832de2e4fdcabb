"""``npubake what-if``: forecasts and findings from the last build's statistics, and nothing is run."""

from __future__ import annotations

from npubake.quant.thresholds import MEASURED_METHODS
from tests.e2e.workspace import Workspace


def test_every_tensor_has_its_figures_and_nothing_runs(built: Workspace) -> None:
    before = sorted(path.name for path in (built.root / ".npubake").rglob("*"))
    answer = built.run("what-if", "small", "--json").json["targets"]["small"]
    assert sorted(path.name for path in (built.root / ".npubake").rglob("*")) == before
    assert (answer["method"], answer["samples"]) == ("percentile", 16)
    rows = answer["tensors"]
    assert {"image", "logits"} <= {row["tensor"] for row in rows}
    assert all(tuple(row["eight_bits"]["uint8"]) == MEASURED_METHODS for row in rows)
    figures = [row["eight_bits"]["uint8"]["percentile"] for row in rows]
    assert figures == sorted(figures)  # the worst first, by the recipe's method
    table = built.run("what-if", "small", "--sort", "tensor", "--tensor", "*Add*").out
    assert "percentile 0.9999" in table.splitlines()[0]
    assert all("Add" in line for line in table.splitlines() if line.startswith("  /"))


def test_a_change_of_method_needs_no_build(built: Workspace) -> None:
    built.edit("method: percentile, percentile: 0.9999", "method: entropy")
    answer = built.run("what-if", "small", "--json")
    assert (answer.code, answer.json["targets"]["small"]["method"]) == (0, "entropy")
    built.edit("method: entropy", "method: auto")
    rows = built.run("what-if", "small", "--json").json["targets"]["small"]["tensors"]
    figures = [row["eight_bits"]["uint8"]["mse"] for row in rows]
    assert figures == sorted(figures)
    assert built.run("what-if", "small").code == 0


def test_strict_fails_on_a_warning_alone(built: Workspace) -> None:
    answer = built.run("what-if", "small", "--json", "--strict")
    warned = any(entry["severity"] == "warning" for entry in answer.json["targets"]["small"]["findings"])
    assert answer.code == int(warned)


def test_mistakes_are_refused(built: Workspace) -> None:
    unknown = built.run("what-if", "small", "--tensor", "logit")
    assert (unknown.code, "logits" in unknown.err) == (2, True)
    assert built.run("what-if", "small", "--sort", "size").code == 2
    assert built.run("what-if", "nothing").code == 2


def test_before_observe_it_says_what_makes_the_statistics(fresh: Workspace) -> None:
    refused = fresh.run("what-if", "small")
    assert (refused.code, "npubake build small --until observe" in refused.err) == (2, True)
