"""Reading recipes: what is valid, every fault of a bad one at its place, extends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from npubake.errors import RecipeError
from npubake.recipe.loader import discover, load_recipe
from npubake.recipe.quant_config import Stored
from npubake.recipe.recipe import Gate, RuntimeInput
from tests.recipe.writing import SMALL, write

BAD = """\
version: 1
nmae: x
model:
  path: 3
  inputs:
    images: {shape: [1, 3, 0, 640], layuot: NCHW}
preset: yolo_64
runtime_input:
  images: {type: nv12}
calibration: {data: a, samples: no, purpose: relaese}
quant_config:
  lane: a8w16
  calibration: {method: percentile, percentile: 99.99}
layer_overrides:
  - match: {}
    set: {activation: int4}
  - set: {activation: int16}
gates: {quantized: {cosine: 1e-1}}
remove: {inputs: [Quantize, Quantize], outputs: Softmax}
platforms: []
platform_options:
  j6p: {max_l2m_size: 6 MB}
toolchain_options: {horizom: {}}
"""

# (place, path, what is found, a word of the hint)
FAULTS = [
    ("2:1", "$.nmae", "unknown key 'nmae'", "'name'"),
    ("4:9", "$.model.path", "found the number 3", "text"),
    ("6:28", "$.model.inputs.images.shape[2]", "found the number 0", "at least 1"),
    ("6:37", "$.model.inputs.images.layuot", "unknown key 'layuot'", "'layout'"),
    ("7:9", "$.preset", "found the text 'yolo_64'", "'yolo_640'"),
    ("9:11", "$.runtime_input.images", "the key 'range' is missing", "full"),
    ("10:33", "$.calibration.samples", "'no' is a boolean in YAML 1.1 and text in YAML 1.2", "false"),
    ("10:46", "$.calibration.purpose", "found the text 'relaese'", "'release'"),
    ("12:9", "$.quant_config.lane", "found the text 'a8w16'", "a16w8"),
    ("13:49", "$.quant_config.calibration.percentile", "found the number 99.99", "at most 1"),
    ("15:12", "$.layer_overrides[0].match", "found 0 entries", "at least 1"),
    ("16:23", "$.layer_overrides[0].set.activation", "found the text 'int4'", "int8"),
    ("17:5", "$.layer_overrides[1]", "the key 'match' is missing", "name pattern"),
    (
        "18:29",
        "$.gates.quantized.cosine",
        "'1e-1' is text in YAML 1.1, not a number: its exponent needs a dot before it and a sign",
        "1.0e-1",
    ),
    ("19:18", "$.remove.inputs", "an entry is given twice", "once"),
    ("19:49", "$.remove.outputs", "found the text 'Softmax'", "a list"),
    ("20:12", "$.platforms", "found 0 entries", "at least 1"),
    ("22:23", "$.platform_options.j6p.max_l2m_size", "found the text '6 MB'", "6MiB"),
    ("23:21", "$.toolchain_options.horizom", "unknown key 'horizom'", "'horizon'"),
]


def faults_of(path: Path) -> list[tuple[str, str, str]]:
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    return [(fault.where, fault.path, fault.what) for fault in caught.value.faults]


def test_all_faults_of_a_bad_recipe_come_at_once_in_reading_order(tmp_path: Path) -> None:
    path = write(tmp_path, "bad.yaml", BAD)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    found = [(fault.where, fault.path, fault.what) for fault in caught.value.faults]
    assert found == [(f"{path}:{place}", at, what) for place, at, what, _ in FAULTS]
    for fault, (_, _, _, word) in zip(caught.value.faults, FAULTS, strict=True):
        assert word in fault.hint


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ("quant_config: {max_int16: 4}", "'max_int16' is a key of quant_config.tuning."),
        ("max_int16: 4", "'max_int16' is a key of quant_config.tuning."),
        ("quant_config: {tuning: {hessian: {}}}", "'hessian' is a key of quant_config."),
        ("quant_config: {metric: {name: top1}}", "'metric' stands at the top level."),
        ("quant_config: {calibration: {symmetric: true}}", "'symmetric' is a key of quant_config.weights."),
        ("layer_overrides: [{match: {names: [a]}, set: {}, activation: int16}]", "of layer_overrides[].set."),
    ],
)
def test_a_key_in_the_wrong_block_is_told_where_it_belongs(tmp_path: Path, more: str, word: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, "r.yaml", f"{SMALL}{more}\n"))
    assert any(word in fault.hint for fault in caught.value.faults if fault.what.startswith("unknown key"))


@pytest.mark.parametrize(
    ("more", "path", "words"),
    [
        ("platform: j6p", "$.platform", "both 'platform' and 'platforms'"),
        ("preprocess: {channels: rgb}", "$.preprocess", "both 'preset' and 'preprocess'"),
        ("runtime_input: {x: {type: rgb, range: full}}", "$.runtime_input.x.range", "type rgb"),
        ("quant_config: {calibration: {percentile: 0.99}}", "$.quant_config.calibration.percentile", "percentile"),
        (
            "layer_overrides: [{match: {names: [a]}, set: {percentile: 0.99}}]",
            "$.layer_overrides[0].set.percentile",
            "percentile",
        ),
        ("platform_options: {j6q: {core_num: 1}}", "$.platform_options.j6q", "not built"),
        ("toolchain_options: {reference: {level: 3}}", "$.toolchain_options.reference", "takes no options"),
    ],
)
def test_rules_between_keys(tmp_path: Path, more: str, path: str, words: str) -> None:
    ((_, at, what),) = faults_of(write(tmp_path, "r.yaml", SMALL + more + "\n"))
    assert at == path
    assert words in what


@pytest.mark.parametrize(
    ("block", "path"),
    [
        ("{channels: rgb, mean: [0.5], std: [0.5]}", "$.preprocess.mean"),
        ("{channels: rgb, mean: [1, 2], mean_domain: 0-1}", "$.preprocess.mean"),
        ("{channels: gray, std: [1, 1, 1], mean_domain: 0-1}", "$.preprocess.std"),
        ("{channels: rgb, mean: [1, 1, 1], std: [1], mean_domain: 0-1}", "$.preprocess.std"),
        ("{resize: {kind: letterbox, size: [8, 8]}}", "$.preprocess.resize"),
        ("{scale: {divide_by: 255}}", "$.preprocess.scale"),
        ("{channels: rgb, resize: {kind: resize_exact, size: [8, 8], fill: 3}}", "$.preprocess.resize.fill"),
        ("{channels: rgb, resize: {kind: resize_shorter, size: [8, 9]}}", "$.preprocess.resize.size"),
        (
            "{channels: rgb, resize: {kind: resize_exact, size: [8, 8]}, crop: {size: [9, 8]}}",
            "$.preprocess.crop.size",
        ),
    ],
)
def test_rules_of_a_preprocessing_block(tmp_path: Path, block: str, path: str) -> None:
    text = SMALL.replace("preset: classification", f"preprocess: {block}")
    ((_, at, _),) = faults_of(write(tmp_path, "r.yaml", text))
    assert at == path


@pytest.mark.parametrize(
    ("preset", "refused"),
    [
        ("preset: classification", True),
        ("preset: classification_torchvision", True),
        ("preset: yolo_640", False),
        ("preset: {name: yolo_640, resize: {kind: resize_exact, size: [640, 640]}}", True),
        ("preset: {name: classification_torchvision, resize: {kind: letterbox, size: [256, 256]}}", False),
        ("preprocess: {channels: rgb, resize: {kind: letterbox, size: [256, 256]}}", False),
        ("preprocess: {channels: rgb}", True),
    ],
)
def test_bars_are_allowed_where_bars_are_put(tmp_path: Path, preset: str, refused: bool) -> None:
    text = SMALL.replace("preset: classification", preset).replace("../data}", "../data, letterboxed: allowed}")
    path = write(tmp_path, "r.yaml", text)
    if refused:
        assert [at for _, at, _ in faults_of(path)] == ["$.calibration.letterboxed"]
    else:
        assert load_recipe(path).calibration.letterboxed == "allowed"


def test_random_data_need_purpose_smoke(tmp_path: Path) -> None:
    text = SMALL.replace("../data", "random")
    ((_, at, _),) = faults_of(write(tmp_path, "r.yaml", text))
    assert at == "$.calibration.data"
    smoke = load_recipe(write(tmp_path, "s.yaml", text.replace("random}", "random, purpose: smoke}")))
    assert (smoke.calibration.data, smoke.calibration.purpose) == (None, "smoke")


@pytest.mark.parametrize(("text", "kind"), [("- version: 1\n", "a list"), ("version\n", "text"), ("7\n", "one value")])
def test_a_root_that_is_no_mapping(tmp_path: Path, text: str, kind: str) -> None:
    ((where, _, what),) = faults_of(write(tmp_path, "r.yaml", text))
    assert where.endswith("r.yaml:1:1")
    assert what == f"the file is {kind} where a mapping belongs"


@pytest.mark.parametrize("key", ["model", "calibration", "platforms", "preset"])
def test_what_a_recipe_must_have(tmp_path: Path, key: str) -> None:
    text = "".join(line for line in SMALL.splitlines(keepends=True) if not line.startswith(key))
    assert len(faults_of(write(tmp_path, "r.yaml", text))) == 1


def test_the_smallest_recipe_has_the_name_of_its_file_and_the_defaults(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, "small.yaml", SMALL))
    assert recipe.name == "small"
    assert recipe.model.path == tmp_path / "m.onnx"
    assert recipe.calibration.data == tmp_path / "data"
    assert recipe.gates["quantized"] == Gate(cosine=0.99, sqnr_db=20)
    assert recipe.metric is None


@pytest.mark.parametrize(("written", "read"), [("w8a16", "a16w8"), ("fp16_w8a8", "fp16_a8w8"), ("a8w8", "a8w8")])
def test_either_order_of_a_lanes_letters_is_read(tmp_path: Path, written: str, read: str) -> None:
    recipe = load_recipe(write(tmp_path, "r.yaml", SMALL + f"quant_config: {{lane: {written}}}\n"))
    assert recipe.quant_config.lane == read


def test_matched_boxes_are_judged_of_a_detector_alone(tmp_path: Path) -> None:
    gate = "gates: {compiled: {boxes_matched: 0.8}}\n"
    recipe = load_recipe(write(tmp_path, "r.yaml", SMALL + gate + "metric: {name: coco_map, data: v}\n"))
    assert recipe.gates["compiled"] == Gate(cosine=0.99, sqnr_db=20, boxes_matched=0.8)
    for metric in ("", "metric: {name: top1, data: v}\n"):
        with pytest.raises(RecipeError) as refused:
            load_recipe(write(tmp_path, "r.yaml", SMALL + gate + metric))
        assert [fault.path for fault in refused.value.faults] == ["$.gates.compiled.boxes_matched"]
    load_recipe(write(tmp_path, "r.yaml", SMALL + "gates: {compiled: {boxes_matched: null}}\n"))


def test_a_null_gate_is_measured_but_not_judged(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, "r.yaml", SMALL + "gates: {quantized: {cosine: null}}\n"))
    assert recipe.gates["quantized"] == Gate(cosine=None, sqnr_db=20)


@pytest.mark.parametrize(
    ("size", "count"), [("6MiB", 6291456), ("512 KiB", 524288), ("100B", 100), ("25165824", 25165824)]
)
def test_sizes(tmp_path: Path, size: str, count: int) -> None:
    text = SMALL + f"platform_options: {{generic: {{max_l2m_size: {size}}}}}\n"
    assert load_recipe(write(tmp_path, "r.yaml", text)).options("generic").max_l2m_bytes == count


def test_a_platforms_runtime_input_replaces_the_recipes(tmp_path: Path) -> None:
    text = SMALL + (
        "runtime_input: {x: {type: rgb}, y: {type: gray}}\n"
        "platform_options: {generic: {runtime_input: {x: {type: nv12, range: video}}}}\n"
    )
    recipe = load_recipe(write(tmp_path, "r.yaml", text))
    assert recipe.runtime_inputs_on("generic") == {
        "x": RuntimeInput(type="nv12", range="video"),
        "y": RuntimeInput(type="gray"),
    }
    assert recipe.runtime_inputs_on("j6p")["x"] == RuntimeInput(type="rgb")


def test_extends_merges_and_paths_stay_relative_to_their_file(tmp_path: Path) -> None:
    base = write(tmp_path, "shared/_base.yaml", SMALL.replace("version: 1\n", "version: 1\nname: base\n").replace(
        "../data}", "../data, samples: 8}"))  # fmt: skip
    path = write(tmp_path, "child.yaml", "version: 1\nextends: shared/_base.yaml\nplatform: j6p\n"
                 "calibration: {data: mine}\npreprocess: {channels: gray}\n")  # fmt: skip
    recipe = load_recipe(path)
    assert recipe.name == "child"
    assert (recipe.platforms, recipe.single) == (("j6p",), True)
    assert recipe.model.path == tmp_path / "recipes" / "m.onnx"
    assert recipe.calibration.data == tmp_path / "recipes" / "mine"
    assert recipe.calibration.samples == 8
    assert recipe.preprocessing.channels == "gray"
    assert recipe.files == (base, path)
    assert recipe.where("$.model.path") == f"{base}:3:15"
    assert recipe.where("$.calibration.data") == f"{path}:4:21"


def test_faults_of_a_base_name_the_base(tmp_path: Path) -> None:
    base = write(tmp_path, "_base.yaml", SMALL + "quant_config: {lane: int3}\nx: no\n")
    path = write(tmp_path, "child.yaml", "version: 1\nextends: _base.yaml\ncalibration: {sampels: 3}\n")
    assert [(where, at) for where, at, _ in faults_of(path)] == [
        (f"{base}:6:22", "$.quant_config.lane"),
        (f"{base}:7:1", "$.x"),
        (f"{base}:7:4", "$.x"),
        (f"{path}:3:15", "$.calibration.sampels"),
    ]


def test_circles_and_missing_bases_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path, "a.yaml", "version: 1\nextends: b.yaml\n")
    write(tmp_path, "b.yaml", "version: 1\nextends: ../recipes/a.yaml\n")
    circle = [fault for fault in faults_of(first) if fault[1] == "$.extends"]
    assert [what for _, _, what in circle] == ["'extends' goes in a circle: a.yaml -> b.yaml -> a.yaml"]
    lost = write(tmp_path, "c.yaml", "version: 1\nextends: bb.yaml\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(lost)
    fault = next(fault for fault in caught.value.faults if fault.path == "$.extends")
    assert "'b.yaml'" in fault.hint


def test_discover_reads_names_and_leaves_bases_out(tmp_path: Path) -> None:
    write(tmp_path, "b.yaml", SMALL + "name: first\n")
    write(tmp_path, "a.yaml", SMALL)
    write(tmp_path, "_base.yaml", SMALL)
    write(tmp_path, "broken.yaml", "a: 'open\n")
    assert list(discover(tmp_path)) == ["a", "first", "broken"]
    write(tmp_path, "c.yaml", SMALL + "name: a\n")
    with pytest.raises(RecipeError) as caught:
        discover(tmp_path)
    assert caught.value.faults[0].where.endswith("c.yaml:6:7")


def test_a_hundred_recipes_are_read_quickly(tmp_path: Path) -> None:
    for index in range(100):
        write(tmp_path, f"r{index}.yaml", SMALL)
    load_recipe(tmp_path / "recipes" / "r0.yaml")
    start = time.perf_counter()
    for path in discover(tmp_path).values():
        load_recipe(path)
    assert time.perf_counter() - start < 2.0  # 0.1 s here; a schema compiled for each recipe takes 10 s


@pytest.mark.parametrize("named", ["5", "[a.yaml]", "{}", '""', "~"])
def test_extends_names_one_file(tmp_path: Path, named: str) -> None:
    write(tmp_path, "a.yaml", SMALL)
    path = write(tmp_path, "b.yaml", f"version: 1\nextends: {named}\n")
    assert ("no recipe is named here", "$.extends") in [(what, at) for _, at, what in faults_of(path)]


def test_a_path_with_an_escaped_zero_byte_is_refused_once(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", 'extends: "b\\0.yaml"\n' + SMALL)
    assert [at for _, at, _ in faults_of(path)] == ["$.extends"]


def test_a_long_chain_of_bases_is_refused(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path, f"r{number}.yaml", f"version: 1\nextends: r{number + 1}.yaml\n")
    write(tmp_path, "r40.yaml", SMALL)
    assert any("build on one another" in what for _, _, what in faults_of(tmp_path / "recipes" / "r0.yaml"))
    assert load_recipe(tmp_path / "recipes" / "r20.yaml").name == "r20"


def test_an_extended_name_that_no_file_can_have(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", f"extends: {'x' * 5000}.yaml\n{SMALL}")
    assert [at for _, at, _ in faults_of(path)] == ["$.extends"]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("calibration: {data: ../data, samples: 16.0}", "$.calibration.samples"),
        ("model: {path: m.onnx, inputs: {x: {shape: [1, 3.0]}}}", "$.model.inputs.x.shape[1]"),
        ("platform_options: {generic: {max_l2m_size: 6.0}}", "$.platform_options.generic.max_l2m_size"),
        (f"name: {'n' * 101}", "$.name"),
    ],
)
def test_sizes_are_whole_numbers_and_names_fit_a_file_name(tmp_path: Path, line: str, place: str) -> None:
    key = line.split(":")[0]
    kept = [text for text in SMALL.splitlines() if not text.startswith(f"{key}:")]
    path = write(tmp_path, "a.yaml", "\n".join([*kept, line, ""]))
    assert [at for _, at, _ in faults_of(path)] == [place]


def test_a_loaded_sample_set_takes_the_place_of_calibration_data(tmp_path: Path) -> None:
    plain = SMALL.replace("calibration: {data: ../data}\n", "")
    assert [path for _, path, _ in faults_of(write(tmp_path, "r.yaml", plain))] == ["$"]
    load = "quant_config: {load: {samples: ../set.npz}}\n"
    recipe = load_recipe(write(tmp_path, "r.yaml", plain + load))
    assert recipe.quant_config.load is not None
    assert recipe.quant_config.load.samples == Stored(path=tmp_path / "set.npz")
    (fault,) = faults_of(write(tmp_path, "r.yaml", SMALL + load))
    assert (fault[1], "loaded samples" in fault[2]) == ("$.calibration.data", True)
    digest = "0123456789abcdef" * 4
    for text, stored in (
        (digest, Stored(digest=digest)),
        (f"{{path: x.npz, digest: '{digest}'}}", Stored(path=tmp_path / "recipes" / "x.npz", digest=digest)),
    ):
        named = load_recipe(write(tmp_path, "r.yaml", plain + load.replace("../set.npz", text))).quant_config.load
        assert named is not None
        assert named.samples == stored


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("weights: {bits: '8'}", "Accepted: a whole number, one of 4, 8, 16."),
        ("bias_correction: true", 'Accepted: text, one of "none", "analytic", "empirical".'),
    ],
)
def test_a_value_of_the_wrong_type_is_one_fault_with_all_that_is_accepted(
    tmp_path: Path, line: str, words: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, "r.yaml", f"{SMALL}quant_config: {{{line}}}\n"))
    (fault,) = caught.value.faults
    assert str(fault.hint).startswith(words)
