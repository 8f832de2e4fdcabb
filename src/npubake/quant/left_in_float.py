"""quant: layers that a lane asks integers of and that stay in float, as sentences. Summary and decisions in; no numpy.

Nothing falls back without a word: ``check``, ``calibrate`` and ``tune`` say it of every such operator, with the reason
and with what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from npubake.graph.summary import FusionGroup, GraphSummary, NodeFact
from npubake.quant.lanes import NO_KERNEL, float_tensors
from npubake.quant.parameters import GroupParameters

_SHOWN = 5
_FREEZE = "export with constant weights, or fold what computes them"
_RECURRENT = ("a loop over time inside one operator", "unroll it into MatMul, Sigmoid and Tanh, or run it on the host")
_SPELL = "there is no integer kernel for this operator"
_ADVICE: Mapping[str, tuple[str, str]] = {
    "Conv": ("weights are computed in the model, for a window of more than 64 taps or with auto_pad", _FREEZE),
    "ConvTranspose": ("weights are computed in the model, and the integer kernel needs constant ones", _FREEZE),
    "Einsum": ("the equation is no product of two tensors that MatMul computes", "export with MatMul and Transpose"),
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
    "Resize": ("only nearest, and linear without antialias, are exact in integers", "export with one of them"),
    "AveragePool": ("windows divide by different counts", "export with count_include_pad, or without ceil_mode"),
    "Clip": ("limits are computed in the model", "export with constant limits"),
    "Pad": ("they pad with something else than a constant 0", "pad with 0, or in the application"),
    "MaxPool": ("indices are read", "export without the indices"),
    "Gather": ("indices are computed in the model", "use constant indices, or do it in the application"),
    "Slice": ("ends are computed in the model", "export with fixed sizes"),
    "LayerNormalization": ("scale or bias is computed, or the mean is read", "export with constant parameters"),
}
_CALL = (_SPELL, "express it by others at export, or cut the model there and do the rest in the application")


def left_in_float(summary: GraphSummary, groups: Mapping[str, GroupParameters]) -> Iterator[str]:
    """One sentence for each operator type (and float precision) of which layers stay in float against the lane.

    groups: what each computes in. What an import note names already (sub-graphs) is not said again.
    """
    nodes = {node.name: node for node in summary.nodes}
    found: dict[tuple[str, str], list[str]] = {}
    for group in summary.groups:
        node = nodes[group.nodes[0]]
        if groups[group.name].why.startswith(NO_KERNEL) and not (_converts(summary, group) or _noted(summary, node)):
            found.setdefault((node.op_type, groups[group.name].precision), []).append(node.name)
    for (kind, precision), names in found.items():
        why, what = _ADVICE.get(kind, _CALL)
        yield f"{kind} {_listed(names)} in {precision}: {why}; {what}"


def _converts(summary: GraphSummary, group: FusionGroup) -> bool:
    """True of a Cast that makes floats of a model's bytes or numbers: nothing is lost, and nothing computed."""
    types = {node.op_type for node in summary.nodes if node.name in group.nodes}
    return types == {"Cast"} and not float_tensors(summary, group.inputs)


def _noted(summary: GraphSummary, node: NodeFact) -> bool:
    """True where the import has said it: a node with graphs inside by its name, a foreign operator as domain.type."""
    return any(
        note.startswith(f"{node.op_type} {node.name!r}:")
        or any(word == node.op_type or word.endswith(f".{node.op_type}") for word in note.replace(",", " ").split())
        for note in summary.notes
    )


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    shown = ", ".join(repr(name) for name in names[:_SHOWN]) + rest
    return f"{shown} {'stays' if len(names) == 1 else 'stay'}"
