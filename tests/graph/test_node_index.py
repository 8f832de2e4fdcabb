"""graph: the index of nodes answers after any edits what looking through all nodes would."""

from __future__ import annotations

import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from npubake.graph.node_index import NodeIndex

NAMES = ["a", "b", "c", "d", ""]
EDITS = st.lists(
    st.tuples(st.sampled_from(["append", "remove", "change"]), st.integers(0, 20), st.lists(st.sampled_from(NAMES))),
    max_size=30,
)


@given(edits=EDITS)
def test_any_edits_leave_what_looking_through_finds(edits: list[tuple[str, int, list[str]]]) -> None:
    index, nodes = NodeIndex([]), list[onnx.NodeProto]()
    for count, (kind, place, inputs) in enumerate(edits):
        if kind == "append" or not nodes:
            nodes.append(helper.make_node("Sum", inputs, [f"made{count}"]))
            index.append(nodes[-1])
        elif kind == "remove":
            index.remove(nodes.pop(place % len(nodes)))
        else:
            changed = nodes[place % len(nodes)]
            index.unlink(changed)
            changed.input[:] = inputs
            changed.output[0] = f"made{count}"
            index.link(changed)
    assert [id(node) for node in index] == [id(node) for node in nodes]
    assert len(index) == len(nodes)
    for name in NAMES:
        wanted = [id(node) for node in nodes for read in node.input if read == name]
        assert [id(node) for node in index.readers(name)] == wanted
    for count in range(len(edits)):
        makers = [id(node) for node in nodes if node.output[0] == f"made{count}"]
        made = index.producer(f"made{count}")
        assert ([] if made is None else [id(made)]) == makers


def test_a_node_that_is_not_there_is_forgotten_twice() -> None:
    node = helper.make_node("Relu", ["a"], ["b"])
    index = NodeIndex([node])
    index.remove(node)
    index.remove(node)
    assert index.producer("b") is None
    assert index.readers("a") == []
