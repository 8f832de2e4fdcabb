"""Room ``graph``: fixed sizes for the inputs. Sizes that the recipe states enter, faults leave; the model is changed.

A dimension without a number takes the stated size. Unstated, only a leading dimension named after the batch becomes 1;
every other one is a fault that names it. Some exporters write -1 or 0 for a size that is not known, or give all of them
one mark (``?``): neither is a size or a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import onnx

from npubake.errors import Fault
from npubake.nearest import did_you_mean

_MOST = 2**31  # elements of an input: compilers and runtimes count them in int32
_BATCH_NAMES = ("n", "b", "bs")
_MARKS = ("?", "*", "-1", "None")  # what Paddle, TensorFlow and others write for every open dimension alike


def fix_input_shapes(model: onnx.ModelProto, stated: Mapping[str, Sequence[int] | None]) -> list[Fault]:
    """Give every input of ``model`` its static shape, in place; returns what stands against it."""
    names = [value.name for value in model.graph.input]
    faults = [_unknown(name, names) for name in stated if name not in names]
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        _open_marked(value)
    symbols: dict[str, tuple[int, str]] = {}
    for value in model.graph.input:
        if value.type.HasField("tensor_type"):
            faults.extend(_fix(value, stated.get(value.name), symbols))
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.Clear()
    return faults


def _open_marked(value: onnx.ValueInfoProto) -> None:
    """Leave the dimensions of ``value`` open that are marked as not known."""
    for dim in value.type.tensor_type.shape.dim:
        if (dim.HasField("dim_value") and dim.dim_value < 1) or dim.dim_param in _MARKS:
            dim.Clear()


def _unknown(name: str, names: Sequence[str]) -> Fault:
    hint = did_you_mean(name, names) or "the model has no inputs"
    return Fault(what=f"the model has no input {name!r}", where=name, path=f"$.model.inputs.{name}", hint=hint)


def _fix(value: onnx.ValueInfoProto, stated: Sequence[int] | None, symbols: dict[str, tuple[int, str]]) -> list[Fault]:
    name, tensor = value.name, value.type.tensor_type
    if not tensor.HasField("shape"):
        if stated is None:
            return [_fault(name, f"input {name!r} declares no shape", "state")]
        tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in stated)
    dims = tensor.shape.dim
    if stated is not None and len(stated) != len(dims):
        return [_fault(name, f"input {name!r} has {len(dims)} dimensions, the recipe states {list(stated)}", "correct")]
    faults: list[Fault] = []
    for axis, dim in enumerate(dims):
        symbol = dim.dim_param or "without a name"
        wanted = stated[axis] if stated is not None else None
        if dim.HasField("dim_value"):
            if wanted is not None and wanted != dim.dim_value:
                what = f"axis {axis} of input {name!r} is fixed to {dim.dim_value}, the recipe states {wanted}"
                faults.append(_fault(name, what, "correct"))
            continue
        if wanted is None and axis == 0 and _is_batch(dim.dim_param):
            wanted = 1
        if wanted is None or wanted < 1:
            faults.append(_fault(name, f"axis {axis} ({symbol}) of input {name!r} has no fixed size", "state"))
            continue
        known = symbols.setdefault(dim.dim_param, (wanted, name)) if dim.dim_param else (wanted, name)
        if known[0] != wanted:
            what = f"dimension {symbol!r} is {wanted} in input {name!r} and {known[0]} in input {known[1]!r}"
            faults.append(_fault(name, what, "correct"))
        dim.Clear()
        dim.dim_value = wanted
    sizes = [dim.dim_value for dim in dims]
    if not faults and prod(sizes) >= _MOST:
        faults.append(_fault(name, f"input {name!r} of {sizes} has {prod(sizes)} elements, 2^31 or more", "lower"))
    return faults


def _is_batch(symbol: str) -> bool:
    return "batch" in symbol.lower() or symbol.lower() in _BATCH_NAMES


def _fault(name: str, what: str, verb: str) -> Fault:
    hint = f"{verb} model.inputs.{name}.shape in the recipe, for example [1, 3, 640, 640], or export with fixed sizes"
    return Fault(what=what, where=name, path=f"$.model.inputs.{name}.shape", hint=hint)
