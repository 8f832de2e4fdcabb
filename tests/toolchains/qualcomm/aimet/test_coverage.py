"""Coverage: every float32 activation has an encoding, a reason, or a fault that names it."""

from __future__ import annotations

from npubake.toolchains.qualcomm.aimet.coverage import covered
from tests.graph import summaries

ALL = {"images", "stem", "stem_relu", "head", "state", "turned", "scores", "boxes"}  # tokens are int64
FUSED = [("Conv", "Relu")]


def test_with_all_encodings_nothing_is_left() -> None:
    found = covered(summaries.summary(), ALL | {"w", "b"}, [])
    assert (found.activations, found.quantised, found.uncovered) == (8, 8, ())
    assert list(found.faults()) == []


def test_inside_a_supergroup_none_is_wanted() -> None:
    found = covered(summaries.summary(), ALL - {"stem"}, FUSED)
    assert list(found.faults()) == []
    (entry,) = found.to_json()["float"]
    assert entry["tensor"] == "stem"
    assert "Conv + Relu (/stem/Conv, /stem/Relu)" in entry["why"]


def test_the_same_pair_is_missing_where_it_is_no_supergroup() -> None:
    (fault,) = covered(summaries.summary(), ALL - {"stem"}, [("Conv", "Clip")]).faults()
    assert (fault.where, "/stem/Conv" in fault.what) == ("stem", True)


def test_what_npubake_has_no_kernel_for_is_listed_and_no_fault() -> None:
    found = covered(summaries.summary(), ALL - {"state"}, FUSED)
    assert list(found.faults()) == []
    assert [entry.tensor for entry in found.uncovered] == ["state"]
    assert "/head/Lstm (LSTM)" in found.uncovered[0].why


def test_every_missing_tensor_is_named_at_once() -> None:
    found = covered(summaries.summary(), {"stem_relu"}, FUSED)
    assert [fault.where for fault in found.faults()] == ["images", "head", "turned", "scores", "boxes"]
    assert (found.activations, found.quantised) == (8, 1)


def test_a_graph_output_is_inside_no_supergroup() -> None:
    (fault,) = covered(summaries.summary(), ALL - {"scores"}, [("Softmax", "Softmax")]).faults()
    assert fault.where == "scores"


def test_a_tensor_of_two_readers_is_inside_no_supergroup() -> None:
    (fault,) = covered(summaries.summary(), ALL - {"turned"}, [("Transpose", "Softmax")]).faults()
    assert fault.where == "turned"
