"""quant: the table of lanes, and which precision a lane asks of a fusion group. Data; no numpy, no onnx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from npubake.errors import Fault, RecipeError
from npubake.graph.summary import FusionGroup, GraphSummary
from npubake.quant.parameters import Precision, WeightType

NO_KERNEL = "no integer kernel"  # how the reason of a decision begins where a lane could not be followed


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A precision choice. general: for every group; op_types: for groups that hold a node of that operator type;
    weights: of weighted groups in integers (quant/weight_choice.py says which keep int8 in a lane of int4).
    everywhere: every result of an integer group is rounded, since the toolchain's kernels keep nothing unrounded.
    """

    name: str
    general: Precision
    weights: WeightType = "int8"
    op_types: Mapping[str, Precision] = field(default_factory=dict)
    everywhere: bool = False

    @property
    def fallback(self) -> Precision:
        """Precision of a group without an integer kernel: float16 where the lane has it, else float32."""
        return "float16" if self.general == "float16" else "float32"


_TENSOR_CORE: Mapping[str, Precision] = dict.fromkeys(
    ("Conv", "Gemm", "MatMul", "ConvTranspose", "Resize", "GridSample"), "int8"
)
LANES: Mapping[str, Lane] = {
    lane.name: lane
    for lane in (
        Lane(name="a8w8", general="int8"),
        Lane(name="a16w8", general="int16"),
        Lane(name="a16w16", general="int16", weights="int16"),
        Lane(name="w4a16", general="int16", weights="int4"),
        Lane(name="fp16", general="float16"),
        Lane(name="fp16_a8w8", general="float16", op_types=_TENSOR_CORE),
    )
}
_SPELLINGS: Mapping[frozenset[str], str] = {frozenset(name.split("_")): name for name in LANES}
_LETTERS: Mapping[str, str] = {
    "w8a8": "a8w8",
    "w8a16": "a16w8",
    "w16a16": "a16w16",
    "a16w4": "w4a16",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one group computes in, and who decided."""

    precision: Precision
    why: str


def parse_lane(text: str) -> Lane:
    """The lane that ``text`` names; either order of letters and of parts (``w8a8``, ``a8w8_fp16``) is read.

    Raises RecipeError, naming the lanes there are.
    """
    parts = frozenset(_LETTERS.get(part, part) for part in text.strip().lower().split("_"))
    if parts not in _SPELLINGS:
        raise RecipeError(Fault(what=f"lane {text!r} is not known", path="$.lane", hint=f"one of {', '.join(LANES)}"))
    return LANES[_SPELLINGS[parts]]


def lane_decision(summary: GraphSummary, group: FusionGroup, op_types: frozenset[str], lane: Lane) -> Decision:
    """What ``lane`` gives to ``group``, whose nodes are of ``op_types``.

    Groups of kind ``float`` have no integer kernel and take the lane's float type; groups that make no float32 tensor
    (shape arithmetic, indices) stay as they are, called float32.
    """
    if not holds_float(summary, group):
        return Decision(precision="float32", why="no float32 tensor to quantise")
    special = sorted(op_types & lane.op_types.keys())
    asked = lane.op_types[special[0]] if special else lane.general
    if is_integer(asked) and not has_integer_kernel(summary, group):
        return Decision(precision=lane.fallback, why=f"{NO_KERNEL} (lane {lane.name} asks {asked})")
    return Decision(precision=asked, why=f"lane {lane.name}")


def is_integer(precision: Precision) -> bool:
    return precision in ("int8", "int16")


def holds_float(summary: GraphSummary, group: FusionGroup) -> bool:
    """True where the group makes a float32 tensor."""
    return any(summary.tensors[name].dtype == "float32" for name in group.outputs)


def has_integer_kernel(summary: GraphSummary, group: FusionGroup) -> bool:
    """True where the group can be computed in integers: its kind has a kernel, it reads float32 and makes only that."""
    floats = float_tensors(summary, group.inputs)
    return group.kind != "float" and bool(floats) and float_tensors(summary, group.outputs) == group.outputs


def float_tensors(summary: GraphSummary, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``names`` that are float32."""
    return tuple(name for name in names if summary.tensors[name].dtype == "float32")
