"""Fixed-point room: bakes the runtime's input type, colour conversion and mean/scale into the integer model.

A pixel has 256 values, so the linear step and the quantisation behind it are one table a channel,
table[c][p] = clamp(rint(((p / divide_by - mean[c]) / std[c]) / scale) + zero_point), computed here once by IEEE single
operations (correctly rounded, hence the same on every CPU). The nodes before the table are those of ``pixel_nodes``; an
identity table is left out. Where the input is read otherwise than by one QuantizeLinear, the table holds float32 values
of the linear step itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from npubake.calibration.preprocessing import LinearStep
from npubake.errors import Fault, RecipeError, StageError
from npubake.fixedpoint.colour import RuntimeInput
from npubake.fixedpoint.pixel_nodes import PIXELS, Frame, Patch, look_up
from npubake.graph.inference import infer_shapes

PIXEL_VALUES = 256
LINE_LAYOUTS = ("NCHW", "NHWC")


def linear_table(spec: RuntimeInput, channels: int) -> NDArray[np.float32]:
    """float32 [channels, 256]: the calibration set's own linear step, of every pixel value."""
    step = LinearStep(
        channels=spec.channels,
        divide_by=float(spec.divide_by or 1),
        mean=spec.mean or (0.0,) * channels,
        std=spec.std or (1.0,) * channels,
        layout="NCHW",
    )
    pixels = np.arange(PIXEL_VALUES, dtype=np.uint8)[:, None, None]
    return step.apply(pixels.repeat(channels, axis=2)).reshape(channels, PIXEL_VALUES)


def quantised_table(values: NDArray[np.float32], scale: float, zero_point: NDArray[Any]) -> NDArray[Any]:
    """QuantizeLinear of ``values``: rint(x / scale) half to even, plus zero point, saturated to its dtype."""
    limits = np.iinfo(zero_point.dtype)
    steps = np.rint(values / np.float32(scale)).astype(np.int64) + int(zero_point)
    codes: NDArray[Any] = np.clip(steps, limits.min, limits.max).astype(zero_point.dtype)
    return codes


def bake_runtime_input(
    model: onnx.ModelProto, specs: Sequence[RuntimeInput]
) -> tuple[onnx.ModelProto, dict[str, dict[str, Any]]]:
    """The model with each described input replaced by the runtime's tensors, and ``{input: facts}`` for the record.

    Runtime tensors: nv12 ``<n>_y`` [N, H, W, 1] and ``<n>_uv`` [N, H/2, W/2, 2]; rgb, bgr, yuv444 [N, H, W, 3];
    gray [N, 1, H, W]; all uint8, under the input's own name but for nv12. A featuremap stays what it was.
    facts: those of the description, then height, width, layout, table (``identity``, ``integer``, ``float``) and real,
    the tensor that now holds the input's float values, '' where none does.
    Raises RecipeError with every fault of every input at once.
    """
    frames: dict[str, Frame] = {}
    faults: list[Fault] = []
    for spec in specs:
        faults += spec.faults()
        try:
            if spec.type != "featuremap":
                frames[spec.name] = frame_of(model, spec)
        except RecipeError as error:
            faults += error.faults
    if faults:
        raise RecipeError(*faults)
    baked = onnx.ModelProto()
    baked.CopyFrom(model)
    facts: dict[str, dict[str, Any]] = {}
    for spec in specs:
        facts[spec.name] = spec.facts()
        if spec.type != "featuremap":
            frame = frames[spec.name]
            form = _replace_input(baked, spec, frame)
            facts[spec.name] |= {"height": frame.height, "width": frame.width, "layout": frame.layout, "table": form}
            facts[spec.name]["real"] = real_name(spec.name) if form == "float" else ""
    return (infer_shapes(baked) if frames else baked), facts


def frame_of(model: onnx.ModelProto, spec: RuntimeInput) -> Frame:
    """Sizes and layout of the model's input, checked against the runtime type. Raises RecipeError."""
    where = f"runtime_input.{spec.name}"
    value = next((entry for entry in model.graph.input if entry.name == spec.name), None)
    if value is None:
        names = ", ".join(entry.name for entry in model.graph.input)
        raise RecipeError(Fault(where=where, what="the model has no such input", hint=f"inputs: {names}"))
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    count = 1 if spec.channels == "gray" else 3
    layouts = [layout for layout in LINE_LAYOUTS if len(shape) == len(layout) and shape[layout.index("C")] == count]
    if value.type.tensor_type.elem_type != TensorProto.FLOAT or not layouts or min(shape) < 1:
        hint = f"an image input is float32 of 4 dimensions with {count} channels; use type featuremap for others"
        raise RecipeError(Fault(where=where, what=f"shape {shape} is no {spec.channels} image", hint=hint))
    layout = layouts[0]
    sizes = dict(zip(layout, shape, strict=True))
    frame = Frame(batch=sizes["N"], channels=count, height=sizes["H"], width=sizes["W"], layout=layout)
    faults = []
    if spec.type == "nv12" and (frame.height % 2 or frame.width % 2):
        hint = "nv12 stores one chroma pair for 2 x 2 pixels: height and width must be even"
        faults.append(Fault(where=where, what=f"nv12 of {frame.height} x {frame.width}", hint=hint))
    for label, numbers in (("mean", spec.mean), ("std", spec.std)):
        if numbers is not None and len(numbers) != count:
            what = f"{label} has {len(numbers)} numbers"
            faults.append(Fault(where=where, what=what, hint=f"one a channel: {count}"))
    if faults:
        raise RecipeError(*faults)
    return frame


def real_name(name: str) -> str:
    """The tensor that holds an input's float values once the input itself takes the runtime's bytes."""
    return f"{name}/real"


def _replace_input(model: onnx.ModelProto, spec: RuntimeInput, frame: Frame) -> str:
    """Edit ``model`` in place; returns what the table became: ``identity``, ``integer`` or ``float``."""
    quantise = _only_quantize(model.graph, spec.name)
    patch = Patch(prefix=f"{spec.name}/runtime", nodes=[], constants=[], inputs=[])
    pixels = PIXELS[spec.type](patch, spec, frame)
    values = linear_table(spec, frame.channels)
    if quantise is None:
        result, form = look_up(patch, pixels, values, frame), "float"
    else:
        table = quantised_table(values, *_quantisation(model.graph, quantise))
        identity = table.dtype == np.uint8 and bool((table == np.arange(PIXEL_VALUES, dtype=np.uint8)).all())
        result = pixels if identity else look_up(patch, pixels, table, frame)
        form = "identity" if identity else "integer"
    if frame.layout == "NHWC":
        patch.add("Transpose", [result], "model_layout", perm=[0, 2, 3, 1])
    patch.nodes[-1].output[0] = real_name(spec.name) if quantise is None else quantise.output[0]
    _put_in_place(model, spec.name, patch, quantise)
    return form


def _put_in_place(model: onnx.ModelProto, name: str, patch: Patch, quantise: onnx.NodeProto | None) -> None:
    """Let the patch stand for input ``name`` and the node behind it; constants that nobody reads any more go."""
    old = onnx.GraphProto()
    old.CopyFrom(model.graph)
    rest = [node for node in old.node if quantise is None or node.output[0] != quantise.output[0]]
    if quantise is None:
        _rename_reads(rest, name, patch.nodes[-1].output[0])
    nodes = [*patch.nodes, *rest]
    read = {tensor for node in nodes for tensor in node.input} | {value.name for value in old.output}
    position = [value.name for value in old.input].index(name)
    graph = model.graph
    del graph.node[:], graph.input[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.input.extend([*old.input[:position], *patch.inputs, *old.input[position + 1 :]])
    graph.initializer.extend([*(tensor for tensor in old.initializer if tensor.name in read), *patch.constants])


def _rename_reads(nodes: Sequence[onnx.NodeProto], old: str, new: str) -> None:
    for node in nodes:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new


def _only_quantize(graph: onnx.GraphProto, name: str) -> onnx.NodeProto | None:
    """The QuantizeLinear that alone reads ``name`` with one scale and one zero point, else None."""
    readers = [node for node in graph.node if name in node.input]
    if len(readers) != 1 or readers[0].op_type != "QuantizeLinear" or len(readers[0].input) != 3:
        return None
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    scale = shapes.get(readers[0].input[1])
    return readers[0] if scale in ((), (1,)) else None


def _quantisation(graph: onnx.GraphProto, node: onnx.NodeProto) -> tuple[float, NDArray[Any]]:
    """Scale and zero point of a QuantizeLinear, both constants."""
    constants: Mapping[str, onnx.TensorProto] = {tensor.name: tensor for tensor in graph.initializer}
    if node.input[2] not in constants:
        raise StageError(Fault(where=node.name, what="the zero point of the input is no constant"))
    scale = numpy_helper.to_array(constants[node.input[1]])
    zero_point = numpy_helper.to_array(constants[node.input[2]])
    return float(scale.reshape(-1)[0]), zero_point.reshape(-1)[0]
