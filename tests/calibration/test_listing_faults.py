"""calibration: what listings alone tell of the data of a build."""

from __future__ import annotations

from typing import Any

import pytest

from npubake.calibration.listing_faults import data_faults


def listing(*digests: str, kind: str = "images") -> dict[str, Any]:
    return {"kind": kind, "files": [{"name": f"{digest}.png", "digest": digest} for digest in digests]}


def test_enough_data_that_nothing_shares() -> None:
    assert list(data_faults(listing("a", "b"), listing("c"), wanted=2, smoke=False)) == []
    assert list(data_faults(None, None, wanted=2, smoke=False)) == []


@pytest.mark.parametrize(
    ("calibration", "path"),
    [(listing("a"), "$.calibration.samples"), (listing(kind="random"), "$.calibration.data")],
)
def test_a_trial_takes_what_a_release_refuses(calibration: dict[str, Any], path: str) -> None:
    assert [fault.path for fault in data_faults(calibration, None, wanted=2, smoke=False)] == [path]
    assert list(data_faults(calibration, None, wanted=2, smoke=True)) == []


def test_rows_of_an_archive_are_counted_where_it_is_read() -> None:
    assert list(data_faults(listing("a", kind="npz"), None, wanted=64, smoke=False)) == []


def test_every_shared_file_is_named_up_to_ten() -> None:
    many = [f"{number}" for number in range(12)]
    faults = list(data_faults(listing(*many), listing(*reversed(many)), wanted=1, smoke=True))
    assert [fault.where for fault in faults] == [f"{digest}.png" for digest in many[:10]]
    assert all("12 such files" in fault.hint for fault in faults)
