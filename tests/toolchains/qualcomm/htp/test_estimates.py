"""The compiler's simulated figures, from a recorded profile."""

from __future__ import annotations

from npubake.toolchains.qualcomm.htp.estimates import LABEL, read_estimates
from tests.toolchains.qualcomm.compiler_words import PROFILE


def test_that_the_simulation_is_read_and_labelled() -> None:
    assert read_estimates(PROFILE) == {
        "label": LABEL,
        "cycles": {"estimate": 12309, "lower": 10933, "upper": 14068},
        "microseconds": {"estimate": 8, "lower": 7, "upper": 9},
        "bytes": {"input_fill": 30720, "intermediate_spill": 0, "output_spill": 2048},
    }
    assert "simulated" in LABEL


def test_that_times_of_this_machine_are_left_out() -> None:
    other = PROFILE.replace("35730", "99999")
    assert read_estimates(other) == read_estimates(PROFILE)


def test_that_no_simulation_is_no_estimate() -> None:
    lines = [line for line in PROFILE.splitlines() if "Simulated" not in line]
    assert read_estimates("\n".join(lines)) == {}
    assert read_estimates("") == {}
