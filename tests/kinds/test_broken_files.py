"""Files that are no model, or no whole one: refused by what is wrong with them, never by a crash."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npubake.errors import BuildError, RecipeError
from npubake.graph.describing import tensor_facts
from npubake.graph.importing import import_model
from npubake.graph.model_file import external_files
from npubake.graph.optimizing import optimize_model
from tests.kinds.graphs import conv, model, node, pictures, two_convolutions, value, weights
from tests.kinds.road import assert_faithful, bake


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"weights")
    return buffer.getvalue()


OTHERS = {
    "a web page": b"\n<!DOCTYPE html>\n<html><head><title>404</title></head></html>",
    "an empty file": b"",
    "nothing but zero bytes": bytes(5000),
    "a blank file": b" \r\n" * 4,
    "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "a zip archive": _zip(),
    "a TensorFlow Lite model": b"\x1c\0\0\0TFL3" + bytes(64),
    "a safetensors file": (40).to_bytes(8, "little") + b'{"w":{"dtype":"F32","shape":[1]}}      ' + bytes(4),
    "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(64),
    "a GGUF file": b"GGUF\x03\0\0\0" + bytes(64),
    "a Python pickle": b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94.",
    "an XML file": b'<?xml version="1.0"?><net name="m"></net>',
    "a gzip archive": b"\x1f\x8b\x08\0" + bytes(32),
    "a model in ONNX Runtime's own format": b"\x18\0\0\0ORTM" + bytes(64),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_of_another_kind_is_called_by_its_name(kind: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        import_model(OTHERS[kind], {})
    (fault,) = caught.value.faults
    assert kind in fault.what
    assert fault.what.endswith(", no ONNX model")
    assert fault.path == "$.model.path"
    (tmp_path / "m.onnx").write_bytes(OTHERS[kind])
    with pytest.raises(RecipeError) as caught:
        tensor_facts(tmp_path / "m.onnx")
    assert kind in caught.value.faults[0].what


def test_a_model_that_is_cut_short_is_refused_wherever_it_is_cut() -> None:
    whole = two_convolutions().SerializeToString()
    for size in range(0, len(whole) - 1, 13):
        with pytest.raises(RecipeError) as caught:
            import_model(whole[:size], {})
        assert caught.value.faults[0].hint


def test_a_byte_that_fell_over_never_ends_in_a_crash() -> None:
    """Most such files are refused; in some the byte is a weight's, and they are models like any other."""
    whole = two_convolutions().SerializeToString()
    generator = random.Random(3)
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(generator.choice([1, 1, 3])):
            data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            optimize_model(import_model(bytes(data), {}))
        except BuildError:
            refused += 1
    assert 0 < refused < 150


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (TensorProto(name="w", dims=[4, 3, 3, 3], data_type=TensorProto.FLOAT, raw_data=bytes(16)), "432"),
        (TensorProto(name="w", dims=[2], data_type=TensorProto.FLOAT, float_data=[1, 2, 3]), "3 values"),
        (TensorProto(name="w", dims=[-1], data_type=TensorProto.FLOAT), "negative"),
        (TensorProto(name="w", dims=[1], data_type=77, raw_data=bytes(4)), "77"),
    ],
)
def test_a_weight_that_does_not_hold_its_values_is_told_by_name(tensor: TensorProto, word: str) -> None:
    source = two_convolutions()
    source.graph.initializer[0].CopyFrom(tensor)
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert "'w'" in fault.what
    assert word in fault.what


def test_a_cycle_is_told_by_its_nodes() -> None:
    source = model(
        [node("Add", "x b", "a", "first"), node("Relu", "a", "b", "second"), node("Neg", "b", "y", "behind")],
        {},
        [value("x", (2, 3))],
        [value("y", (2, 3))],
    )
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert fault.where == "first"
    assert "second" in fault.what
    assert "cycle" in fault.hint


def test_everything_that_dangles_is_told_at_once() -> None:
    source = model(
        [node("Add", "x lost", "y", "first"), node("Relu", "gone", "z", "second")],
        {},
        [value("x", (2, 3))],
        [value("y", (2, 3)), value("nowhere", (2, 3)), value("y", (2, 3))],
    )
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    told = [(fault.where, fault.what) for fault in caught.value.faults]
    assert [where for where, _ in told] == ["first", "second", "nowhere", "y"]
    assert "twice" in told[3][1]


def test_a_name_that_two_nodes_make_is_told() -> None:
    source = model(
        [node("Relu", "x", "y", "first"), node("Neg", "x", "y", "second")], {}, [value("x", (2,))], [value("y", (2,))]
    )
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert fault.where == "second"
    assert "first" in fault.what


@pytest.mark.parametrize(
    ("inner", "given", "copies", "word"),
    [("f.F", "x", 1, "recursive"), ("Relu", "x x", 1, "parameters"), ("Relu", "x", 2, "multiple")],
)
def test_functions_of_a_model_that_contradict_each_other_are_told(
    inner: str, given: str, copies: int, word: str
) -> None:
    domain, _, kind = inner.rpartition(".")
    body = helper.make_node(kind, ["a"], ["b"], domain=domain)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    function = helper.make_function("f", "F", ["a"], ["b"], [body], opsets)
    source = model([node("F", given, "y", "call", domain="f")], {}, [value("x", (2,))], [value("y", (2,))])
    source.opset_import.append(opsets[1])
    source.functions.extend([function] * copies)
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert word in fault.what
    assert fault.hint


@pytest.mark.parametrize("shape", [(2**60,), (1, 3, 2**40), (2**33, 2**33)])
def test_an_input_that_no_memory_holds_is_told(shape: tuple[int, ...]) -> None:
    source = model([node("Relu", "x", "y", "only")], {}, [value("x", shape)], [value("y", None)])
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert (fault.where, fault.path) == ("x", "$.model.inputs.x.shape")


def test_an_input_that_is_listed_twice_is_told() -> None:
    source = model([node("Relu", "x", "y", "only")], {}, [value("x", (2,)), value("x", (2,))], [value("y", (2,))])
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    (fault,) = caught.value.faults
    assert (fault.where, "twice" in fault.what) == ("x", True)


def test_what_an_inner_graph_reads_and_nobody_makes_is_told() -> None:
    branch = helper.make_graph([node("Relu", "phantom", "r", "inside")], "then", [], [value("r", (2,))])
    other = helper.make_graph([node("Neg", "x", "n")], "else", [], [value("n", (2,))])
    source = model(
        [node("If", "flag", "y", "choice", then_branch=branch, else_branch=other)],
        {},
        [value("x", (2,)), value("flag", (), TensorProto.BOOL)],
        [value("y", (2,))],
    )
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    assert [fault.where for fault in caught.value.faults] == ["inside"]


def _apart(folder: Path, location: str) -> tuple[onnx.ModelProto, list[Path]]:
    whole = two_convolutions()
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(
        two_convolutions(),
        folder / "m.onnx",
        save_as_external_data=True,
        location=location,
        size_threshold=0,
        convert_attribute=True,
    )
    return whole, [folder / location]


@pytest.mark.parametrize("location", ["m.onnx.data", "weights/all.bin"])
def test_weights_in_another_file_are_taken_in(location: str, tmp_path: Path) -> None:
    whole, data = _apart(tmp_path, location)
    baked = bake(tmp_path / "m.onnx", pictures(), tmp_path, data=data)
    assert_faithful(baked, whole, pictures(), 30)


def test_weights_in_another_file_that_is_not_there_or_too_short_are_told_by_both_names(tmp_path: Path) -> None:
    _, (path,) = _apart(tmp_path, "m.data")
    data = (tmp_path / "m.onnx").read_bytes()
    with pytest.raises(RecipeError) as caught:
        import_model(data, {})
    assert [("'m.data'" in fault.what) for fault in caught.value.faults] == [True] * 4
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(RecipeError) as caught:
        import_model(data, {}, weights=external_files(data, [path]))
    assert all("m.data" in fault.what for fault in caught.value.faults)


@pytest.mark.parametrize(
    ("key", "text", "word"),
    [
        ("offset", "-8", "offset '-8'"),
        ("offset", "first", "offset 'first'"),
        ("offset", "1e3", "offset '1e3'"),
        ("offset", "99999999999999999999999", "ends after"),
        ("offset", "4096", "ends after"),
        ("length", "-1", "length '-1'"),
        ("length", "12", "12 bytes"),
        ("length", "½", "length '½'"),
        ("location", "", "''"),
        ("location", "other.bin", "'other.bin'"),
        ("location", "../m.data", "'../m.data'"),
    ],
)
def test_a_damaged_place_of_values_is_told_by_tensor_and_file(key: str, text: str, word: str, tmp_path: Path) -> None:
    """Of every tensor at once: two are damaged here."""
    _, (path,) = _apart(tmp_path, "m.data")
    broken = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for tensor in broken.graph.initializer[:2]:
        kept = {entry.key: entry.value for entry in tensor.external_data} | {key: text}
        del tensor.external_data[:]
        for name, content in kept.items():
            tensor.external_data.add(key=name, value=content)
    with pytest.raises(RecipeError) as caught:
        import_model(broken.SerializeToString(), {}, "m.onnx", {"m.data": path})
    assert [fault.where for fault in caught.value.faults] == ["m.onnx", "m.onnx"]
    for fault, name in zip(caught.value.faults, ("'w'", "'b'"), strict=True):
        assert name in fault.what
        assert word in fault.what
        assert fault.path == "$.model.path"
        assert fault.hint


def test_a_name_of_a_file_that_is_no_text_is_damage(tmp_path: Path) -> None:
    _, (path,) = _apart(tmp_path, "m.data")
    data = (tmp_path / "m.onnx").read_bytes().replace(b"m.data", b"m.\xff\xfe\xfda")
    with pytest.raises(RecipeError) as caught:
        import_model(data, {}, "m.onnx", external_files(data, [path]))
    assert "UTF-8" in caught.value.faults[0].what


def test_values_outside_are_the_same_model(tmp_path: Path) -> None:
    _, (path,) = _apart(tmp_path, "m.data")
    data = (tmp_path / "m.onnx").read_bytes()
    inside = import_model(two_convolutions().SerializeToString(), {})
    outside = import_model(data, {}, weights=external_files(data, [path]))
    for left, right in zip(inside.graph.initializer, outside.graph.initializer, strict=True):
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(left), onnx.numpy_helper.to_array(right))


def test_a_model_without_nodes_is_told() -> None:
    empty = helper.make_model(helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(RecipeError) as caught:
        import_model(empty.SerializeToString(), {})
    assert caught.value.faults[0].path == "$.model.path"


def test_a_model_that_reads_nothing_gives_what_it_always_gave(tmp_path: Path) -> None:
    constants = {"k": weights(1, 3, 8, 8), "w": weights(4, 3, 3, 3), "b": weights(4)}
    source = model([conv("k", "y")], constants, [], [value("y", (1, 4, 8, 8))])
    assert_faithful(bake(source, pictures(), tmp_path), source, pictures(2), 30)


@pytest.mark.parametrize("kind", [0, 43])
@pytest.mark.parametrize("opset", [13, 21])
def test_a_type_that_there_is_not_is_told(kind: int, opset: int) -> None:
    source = two_convolutions(opset)
    source.graph.input[0].type.tensor_type.elem_type = kind
    source.graph.node[1].CopyFrom(node("Cast", "t", "u", to=kind))
    with pytest.raises(RecipeError) as caught:
        import_model(source.SerializeToString(), {})
    assert [fault.where for fault in caught.value.faults] == ["x", "Cast_u"]
    assert all(str(kind) in fault.what for fault in caught.value.faults)
