"""Summaries of the tests that need no model."""

from __future__ import annotations

from npubake.graph.summary import FusionGroup, GraphSummary, GroupKind, NodeFact, Provenance, TensorFact

KINDS: tuple[GroupKind, ...] = ("conv", "float", "movement", "softmax", "movement")


def summary() -> GraphSummary:
    """images -> stem Conv + Relu -> head Conv -> LSTM -> Transpose -> Softmax (scores) and Slice (boxes)."""
    nodes = (
        NodeFact(name="/stem/Conv", op_type="Conv", inputs=("images", "w", "b"), outputs=("stem",)),
        NodeFact(name="/stem/Relu", op_type="Relu", inputs=("stem",), outputs=("stem_relu",)),
        NodeFact(name="/head/Conv", op_type="Conv", inputs=("stem_relu", "w2", "b2"), outputs=("head",)),
        NodeFact(name="/head/Lstm", op_type="LSTM", inputs=("head",), outputs=("state",)),
        NodeFact(name="/head/Transpose", op_type="Transpose", inputs=("state",), outputs=("turned",)),
        NodeFact(name="/head/Softmax", op_type="Softmax", inputs=("turned",), outputs=("scores",)),
        NodeFact(name="/head/Slice", op_type="Slice", inputs=("turned",), outputs=("boxes",)),
    )
    groups = [
        FusionGroup(
            name="/stem/Conv", kind="conv", nodes=("/stem/Conv", "/stem/Relu"), inputs=("images",),
            outputs=("stem_relu",), function="relu",
        )
    ]  # fmt: skip
    groups += [
        FusionGroup(name=node.name, kind=kind, nodes=(node.name,), inputs=node.inputs[:1], outputs=node.outputs)
        for node, kind in zip(nodes[2:], KINDS, strict=True)
    ]
    shapes = {"images": (1, 3, 640, 641), "tokens": (1, 16), "boxes": (1, 4, 8400), "scores": (1, 2, 8400)}
    tensors = {name: TensorFact(shape=shape, dtype="float32") for name, shape in shapes.items()}
    tensors["tokens"] = TensorFact(shape=(1, 16), dtype="int64")
    for node in nodes:
        for name in node.outputs:
            tensors.setdefault(name, TensorFact(shape=(1, 8, 80, 80), dtype="float32"))
    return GraphSummary(
        inputs=("images", "tokens"),
        outputs=("boxes", "scores"),
        tensors=tensors,
        nodes=nodes,
        groups=tuple(groups),
        provenance=(
            Provenance(old="/stem/bn_out", new="stem", relation="same"),
            Provenance(old="/stem/conv_out", new="", relation="gone"),
        ),
    )
