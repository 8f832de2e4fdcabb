"""The known name that was meant."""

from __future__ import annotations

from npubake.nearest import did_you_mean, nearest

PLATFORMS = ["j6e", "j6p", "generic"]


def test_the_nearest_name_whatever_its_case() -> None:
    assert nearest("GENERICK", PLATFORMS) == ["generic"]
    assert nearest("zzz", PLATFORMS) == []
    assert nearest("j6q", PLATFORMS, most=2) == ["j6p", "j6e"]


def test_few_names_are_listed_and_of_many_the_first() -> None:
    assert did_you_mean("j6q", PLATFORMS) == "Did you mean 'j6p'? Accepted: generic, j6e, j6p."
    assert did_you_mean("zzz", PLATFORMS) == "Accepted: generic, j6e, j6p."
    assert did_you_mean("anything", []) == ""
    many = [f"/layer{index:03d}/Conv" for index in range(100)]
    assert did_you_mean("/layer042/Con", many) == "Did you mean '/layer042/Conv'?"
    assert did_you_mean("zzz", many).endswith("/layer009/Conv and others.")
