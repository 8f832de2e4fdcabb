"""Every command once, on the small project: what it prints, as text and as JSON, and its exit code."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.e2e.workspace import REPOSITORY, Workspace

DOIT = [sys.executable, "-m", "doit"]


def doit(workspace: Workspace, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DOIT, *words],
        cwd=workspace.root,
        env=workspace.env(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_build_json_is_one_object_of_the_stated_form(built: Workspace) -> None:
    result = built.build()
    target = result.json["targets"]["small"]
    assert (built.root / target["manifest"]).is_file()
    assert {gate["boundary"] for gate in target["gates"]} == {"optimized", "quantized", "product"}
    assert set(target["metrics"]["top1"]) == {"float", "quantized"}
    assert target["metrics"]["latency_ms"] == "unmeasured"
    for task in result.json["tasks"]:
        assert {"stage", "key", "outcome", "seconds", "targets"} <= set(task)
        assert task["targets"] == ["small"]


def test_plan_says_who_decided_the_lane_and_check_exits_with_3(built: Workspace) -> None:
    assert built.run("plan", "small", "--check").code == 0
    built.edit("samples: 16", "samples: 12")
    result = built.run("plan", "small", "--check")
    assert result.code == 3
    assert "lane a8w8 (from the platform)" in result.out
    outcomes = {task["stage"]: task["outcome"] for task in built.run("plan", "small", "--json").json["tasks"]}
    assert outcomes["samples"] == "run"
    assert outcomes["observe"] == "unknown"
    assert outcomes["optimize"] == "reuse"


def test_plan_draws_itself(built: Workspace) -> None:
    assert built.run("plan", "small", "--graph", "mermaid").out.startswith("flowchart LR")
    assert built.run("plan", "small", "--graph", "dot").out.startswith("digraph")


def test_explain_shows_the_fields_old_and_new_value(built: Workspace) -> None:
    assert "up to date" in built.run("explain", "small").out
    built.edit("percentile: 0.9999", "percentile: 0.999")
    result = built.run("explain", "small", "--stage", "calibrate")
    assert "0.999" in result.out
    assert "percentile" in result.out


def test_what_a_target_lacks_is_not_told_of_those_it_shares_tasks_with(built: Workspace) -> None:
    (built.root / "recipes" / "other.yaml").write_text("version: 1\nextends: small.yaml\nplatform: generic\n")
    targets = built.run("status", "--json").json["targets"]
    assert (targets["small"]["current"], targets["small"]["to_restore"]) == (True, [])
    assert (targets["other"]["current"], bool(targets["other"]["to_restore"])) == (False, True)


def test_status_knows_what_is_current(built: Workspace) -> None:
    assert built.run("status", "small", "--json").json["targets"]["small"]["current"] is True
    built.edit("samples: 16", "samples: 12")
    facts = built.run("status", "small", "--json").json["targets"]["small"]
    assert facts["current"] is False
    assert "samples" in facts["to_run"]


@pytest.mark.untuned
def test_a_failed_rebuild_is_known_and_its_files_are_told_apart(built: Workspace) -> None:
    """``status``, ``verify TARGET`` and the failure itself: what failed, what is good still, what is not of it."""
    good = built.run("status", "small", "--json").json["targets"]["small"]
    assert (good["failed"], good["astray"], good["bundle"]) == ([], [], "build/small/small.bundle")
    built.edit("op_types: [GlobalAveragePool]", "op_types: [Gemm]")
    built.edit("sqnr_db: 15", "sqnr_db: 90")
    model = "build/small/small_quantized_model.onnx"
    failure = built.run("build", "small")
    assert failure.code == 1
    assert (
        "stays in place: build/small/small.bundle; what this build made instead is in build/small/failed/"
        in failure.err
    )
    facts = built.run("status", "small", "--json").json["targets"]["small"]
    assert (facts["failed"], facts["bundle"]) == (["gate quantized"], "build/small/small.bundle")
    assert facts["astray"] == []
    assert (built.root / "build/small/failed/small_quantized_model.onnx").read_bytes() != (
        built.root / model
    ).read_bytes()
    assert facts["finished"] == good["finished"]
    told = built.run("status", "small").out
    assert f"failed at gate quantized; last good: build/small/small.bundle of {good['finished']}" in told
    (built.root / model).unlink()  # as after a build that was killed
    assert built.run("status", "small", "--json").json["targets"]["small"]["astray"] == [model]
    assert "1 file there no longer is what the manifest says" in built.run("status", "small").out
    verified = built.run("verify", "small", "--json")
    assert (verified.code, verified.json["astray"]) == (0, [model])
    package = built.root / "build/small/small.npub"
    whole = package.read_bytes()
    package.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # what is deployed, beside a bundle that is whole
    loose = built.run("verify", "small")
    assert loose.code == 1
    assert "small.npub: not what the bundle holds" in loose.err
    assert "take model.npub from it" in loose.err
    package.write_bytes(whole)
    built.edit("sqnr_db: 90", "sqnr_db: 15")
    built.build()
    mended = built.run("status", "small", "--json").json["targets"]["small"]
    assert (mended["current"], mended["failed"], mended["astray"]) == (True, [], [])
    assert not (built.root / "build/small/failed").exists()


def test_a_build_that_ends_early_leaves_the_last_good_one_whole(built: Workspace) -> None:
    """What ``--until`` makes anew stands aside, until a whole build; where no manifest is, it stands in its place."""
    folder = built.root / "build" / "small"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    built.edit("op_types: [GlobalAveragePool]", "op_types: [Gemm]")
    early = built.build("small", "--until", "tune")
    assert {path: path.read_bytes() for path in before} == before
    aside = sorted(path.name for path in (folder / "until").iterdir())
    assert "small_calibrated_model.onnx" in aside
    told = {entry["path"] for entry in early.json["targets"]["small"]["artifacts"]}
    assert "build/small/until/small_calibrated_model.onnx" in told
    assert all((built.root / path).is_file() for path in told)
    assert built.build("small", "--until", "tune").ran() == []
    built.build()
    assert not (folder / "until").exists()
    assert built.run("status", "small", "--json").json["targets"]["small"]["current"] is True
    assert built.build().ran() == []


@pytest.mark.untuned
def test_a_first_build_that_failed_is_known(fresh: Workspace) -> None:
    assert "never built " in fresh.run("status", "small").out
    fresh.edit("sqnr_db: 15", "sqnr_db: 90")
    failure = fresh.run("build", "small")
    assert failure.code == 1
    assert "unmeasured" not in failure.out  # nothing was released that a board could measure
    assert "observe                  ..." in failure.err  # said when it began: captured output is not silent meanwhile
    facts = fresh.run("status", "small", "--json").json["targets"]["small"]
    assert (facts["failed"], facts["manifest"], facts["gates"]) == (["gate quantized"], None, [])
    assert "never built; failed at gate quantized" in fresh.run("status", "small").out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("build", "smal"), "small"),
        (("build", "recpie=small"), "recipe=small"),
        (("build", ""), "unset"),
        (("build", "recipe="), "unset"),
        (("build", "small", "--until", "observ"), "observe"),
        (("build", "small", "--toolchain", "horizn"), "reference"),
    ],
)
def test_mistakes_on_the_command_line_are_refused_with_the_nearest_name(
    built: Workspace, words: tuple[str, ...], hint: str
) -> None:
    result = built.run(*words)
    assert result.code == 2
    assert hint in result.err
    assert "Traceback" not in result.err


def test_a_missing_toolchain_says_what_to_do(built: Workspace) -> None:
    built.edit("platform: generic", "platform: j6e\ntoolchain: horizon")
    result = built.run("build", "small", "--json")
    assert result.code == 2
    assert result.json["error"]["who"] == "toolchain"
    assert "--toolchain reference" in result.err


def test_check_reports_all_refusals_with_their_line(built: Workspace) -> None:
    built.edit("op_types: [GlobalAveragePool]", "names: [no_such_layer]")
    built.edit("image: {type: gray}", "image: {type: nv12, range: full}")
    result = built.run("check", "small")
    assert result.code == 2
    lines = built.recipe.read_text().splitlines()
    override = next(number for number, line in enumerate(lines, 1) if "no_such_layer" in line)
    runtime = next(number for number, line in enumerate(lines, 1) if "nv12" in line)
    assert f"small.yaml:{override}:" in result.err
    assert f"small.yaml:{runtime}:" in result.err


def test_check_reads_the_first_example_of_each_data_set(built: Workspace) -> None:
    """Both sets are told at once, and the build's own record of ``samples`` stays what it was."""
    before = built.run("plan", "small", "--json").json["tasks"]
    result = built.run("check", "small", "--json")
    assert result.code == 0
    roles = sorted(task["role"] for task in result.json["tasks"])
    assert roles == ["check", "import", "measure_inputs first", "optimize", "samples first"]
    assert built.run("plan", "small", "--json").json["tasks"] == before
    for name in ("calibration", "validation"):
        folder = built.root / "data" / name
        for index, path in enumerate(sorted(folder.glob("*.png"))):
            np.save(path.with_suffix(".npy"), np.full((28, 28, 1), index / 100 + (name == "validation"), np.float32))
            path.unlink()
    labels = built.root / "data" / "validation" / "labels.json"
    labels.write_text(labels.read_text().replace(".png", ".npy"))
    refused = built.run("check", "small", "--json")
    assert refused.code == 2
    faults = [fault for fault in refused.json["faults"] if "float32" in fault["what"]]
    assert [fault["where"] for fault in faults] == ["0000.npy", "0100.npy"]
    assert all("preset: classification" in fault["hint"] for fault in faults)


def test_build_until_a_stage_stops_there(fresh: Workspace) -> None:
    result = fresh.build("small", "--until", "observe")
    assert sorted(result.ran()) == ["check", "import", "observe", "optimize", "samples", "transform"]
    assert result.json["targets"]["small"]["manifest"] is None


def test_whatever_the_last_stage_the_recipe_is_checked_before_data_are_read(fresh: Workspace) -> None:
    """All but what the check itself is made of."""
    fresh.edit("quant_config:", "quant_config:\n  lane: fp16\n  hessian: true")
    refused = fresh.run("build", "small", "--until", "quantize", "--json")
    assert (refused.code, sorted(refused.ran())) == (2, ["import", "optimize"])
    assert [task["stage"] for task in refused.json["tasks"] if task["outcome"] == "failed"] == ["check"]
    assert fresh.build("small", "--until", "optimize").ran() == []


def test_a_fast_trial_stands_apart_and_is_not_releasable(built: Workspace) -> None:
    before = built.bundle()
    result = built.build("small", "--fast")
    assert result.json["targets"]["small-fast"]["deployable"] is False
    manifest = json.loads((built.root / "build" / "small-fast" / "manifest.json").read_text())
    assert manifest["reproducible"]["releasable"]["value"] is False
    assert built.bundle() == before


def test_run_feeds_an_image_to_the_built_artifact(built: Workspace, tmp_path: Path) -> None:
    image = built.root / "data" / "validation" / "0105.png"
    label = json.loads((built.root / "data" / "validation" / "labels.json").read_text())["0105.png"]
    result = built.run("run", "small", str(image), "--out", str(tmp_path / "out.npz"))
    assert result.code == 0, result.err
    assert int(np.load(tmp_path / "out.npz")["logits"].argmax()) == label
    assert built.run("run", "small", str(tmp_path / "none.png")).code == 2


def test_run_knows_the_picture_from_the_package_alone(built: Workspace, tmp_path: Path) -> None:
    """A copy of the .npub, away from manifest and bundle; the strongest classes are told, as text and as JSON."""
    image = built.root / "data" / "validation" / "0105.png"
    label = json.loads((built.root / "data" / "validation" / "labels.json").read_text())["0105.png"]
    package = tmp_path / "alone.npub"
    shutil.copy(built.root / "build" / "small" / "small.npub", package)
    result = built.run("run", str(package), str(image))
    assert result.code == 0, result.err
    shown = [line.split(":")[0].strip() for line in result.out.splitlines()[1:]]
    assert len(shown) == 5
    assert int(shown[0]) == label
    told = built.run("run", str(package), str(image), "--json").json["outputs"]["logits"]
    assert [entry["index"] for entry in told["top"]] == [int(index) for index in shown]
    values = told["values"]
    assert [entry["value"] for entry in told["top"]] == sorted(values, reverse=True)[:5]


def test_run_takes_rows_of_a_stack_and_says_what_it_left_out(built: Workspace, tmp_path: Path) -> None:
    held = np.load(REPOSITORY / "data" / "digits_cls" / "validation.npz")
    pixels = np.rint(held["images"][:4] * 255).astype(np.uint8)
    stack = tmp_path / "stack.npz"
    np.savez(stack, images=pixels, labels=held["labels"][:4])
    by_row = built.run("run", "small", f"{stack}[3]", "--json")
    assert by_row.code == 0, by_row.err
    assert by_row.json["outputs"]["logits"]["top"][0]["index"] == held["labels"][3]
    by_option = built.run("run", "small", str(stack), "--example", "3", "--json")
    assert by_option.json["outputs"] == by_row.json["outputs"]
    assert "note: stack.npz: left out" in by_option.err
    without = built.run("run", "small", str(stack))
    assert without.code == 2
    assert "stage error" not in without.err
    assert f"{stack}[0]" in without.err
    drawn = built.run("run", "small", f"{stack}[3]", "--draw", str(tmp_path / "x.png"))
    assert drawn.code == 2
    assert not (tmp_path / "x.png").exists()


def test_verify_accepts_the_bundle_and_no_other_bytes(built: Workspace, tmp_path: Path) -> None:
    assert built.run("verify", "small").code == 0
    bundle = next((built.root / "build" / "small").glob("*.bundle"))
    content = bundle.read_bytes()
    for position in (0, len(content) // 3, len(content) // 2, len(content) - 1):
        damaged = tmp_path / f"damaged{position}.bundle"
        damaged.write_bytes(content[:position] + bytes([content[position] ^ 0x40]) + content[position + 1 :])
        result = built.run("verify", str(damaged))
        assert result.code == 1, position
        assert "Traceback" not in result.err
    (tmp_path / "cut.bundle").write_bytes(content[:-100])
    assert built.run("verify", str(tmp_path / "cut.bundle")).code == 1


def test_new_writes_a_recipe_that_loads(fresh: Workspace) -> None:
    result = fresh.run("new", "models/digits_mobilenet.onnx", "--name", "mine", "--platform", "j6e")
    assert result.code == 0, result.err
    text = (fresh.root / "recipes" / "mine.yaml").read_text()
    assert "[1, 1, 28, 28]" in text
    schema = text.splitlines()[0].partition("$schema=")[2]
    assert json.loads((fresh.root / "recipes" / schema).read_text())["properties"]["preset"]
    listed = fresh.run("list", "recipes", "--json").json["recipes"]
    assert {"mine", "small"} <= {row["name"] for row in listed}
    assert fresh.run("new", "models/digits_mobilenet.onnx", "--name", "mine").code == 2
    assert fresh.run("new", "recipes/small.yaml").code == 2


def test_layers_of_a_target_are_the_names_that_overrides_take(built: Workspace) -> None:
    layers = built.run("list", "layers", "small", "--json").json["layers"]
    pools = [row["name"] for row in layers if row["type"] == "GlobalAveragePool"]
    assert len(pools) == 1
    assert len({row["name"] for row in layers}) == len(layers) > len({row["fused into"] for row in layers})
    assert pools[0] in built.run("list", "layers", "small").out
    built.edit("op_types: [GlobalAveragePool]", f'names: ["{pools[0]}"]')
    assert built.run("check", "small").code == 0
    for words in ([], ["nothing"], ["small", "small"]):
        refused = built.run("list", "layers", *words)
        assert (refused.code, "--until optimize" in refused.err) == (2, True)
    (built.root / "build" / "small" / "graph.json").write_text("[]")
    refused = built.run("list", "layers", "small")
    assert (refused.code, "--until optimize" in refused.err) == (2, True)


def test_lists_doctor_and_completion(built: Workspace) -> None:
    listed = built.run("list", "--json").json
    names = {row["name"] for row in listed["platforms"]}
    assert names > {"j6e", "j6m", "j6b", "j6h", "j6p", "s6p", "generic", "qcs9075", "qcs8275", "x-elite"}
    assert {row["name"] for row in listed["toolchains"]} == {"reference", "horizon", "qualcomm", "mobilint"}
    assert built.run("list").code == 0
    report = built.run("doctor", "--json").json
    assert report["toolchains"]["reference"]["usable"] is True
    assert report["tools"]["onnxruntime"]
    assert built.run("doctor").code == 0
    assert "_shtab_npubake" in built.run("completion", "bash").out


def test_cache_commands(built: Workspace) -> None:
    facts = built.run("cache", "info", "--json").json
    assert facts["records"] == 23
    assert built.run("cache", "gc", "--max-age", "0", "--json").json["keys"] == []
    assert built.run("cache", "fsck").code == 0
    blob = next(path for path in (built.root / ".npubake" / "store" / "cas").rglob("*") if path.is_file())
    blob.chmod(0o644)
    blob.write_bytes(b"damage")
    assert built.run("cache", "fsck").code == 1
    assert built.run("cache", "gc", "--max-size", "many").code == 2


def test_locked_refuses_and_update_lock_rewrites(built: Workspace) -> None:
    lock = built.root / "recipes" / "small.lock"
    data = json.loads(lock.read_text())
    assert built.run("build", "small", "--locked").code == 0
    data["tools"]["numpy"] = "1.0"
    lock.write_text(json.dumps(data))
    assert built.run("build", "small", "--locked").code == 2
    plain = built.run("build", "small")
    assert plain.code == 0
    assert "numpy" in plain.err
    assert "numpy" in built.run("build", "small").err  # as long as it differs, also where nothing is to be done
    assert built.run("build", "small", "--update-lock").code == 0
    assert built.run("build", "small", "--locked").code == 0


@pytest.mark.untuned
def test_a_lock_is_written_by_a_build_alone_and_follows_what_the_recipe_asks_for(built: Workspace) -> None:
    path, manifest = built.root / "recipes" / "small.lock", built.root / "build" / "small" / "manifest.json"

    def used() -> str:
        return str(json.loads(manifest.read_bytes())["reproducible"]["origin"]["lock"])

    def digest() -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    path.unlink()
    for command in ("check", "plan", "explain", "status"):
        built.run(command, "small")
        assert not path.exists(), command
    assert "wrote small.lock\n" in built.build().err
    assert used() == digest()
    before = path.read_bytes()
    built.edit("size: [28, 28]}", "size: [28, 28], interpolation: nearest}")
    for command in ("check", "plan", "explain", "status"):
        built.run(command, "small")
        assert path.read_bytes() == before, command
    assert "another preprocessing" in built.run("plan", "small").err
    assert built.run("build", "small", "--locked").code == 2
    assert path.read_bytes() == before
    assert "wrote small.lock: the recipe asks for another preprocessing\n" in built.build().err
    assert json.loads(path.read_bytes())["preset"]["resize"]["interpolation"] == "nearest"
    assert used() == digest()
    assert built.run("build", "small", "--locked").code == 0


def test_it_works_from_a_folder_below(built: Workspace) -> None:
    assert built.run("build", "small", "--json", cwd=built.root / "data" / "calibration").ran() == []


def test_doits_own_command_line_does_the_same(built: Workspace) -> None:
    shutil.rmtree(built.root / "build")
    done = doit(built, "build", "recipe=small")
    assert done.returncode == 0, done.stderr
    assert "restored" in done.stdout
    assert (built.root / "build" / "small" / "manifest.json").is_file()
    again = doit(built, "build", "recipe=small")
    assert "reused" in again.stdout
    assert built.build().ran() == []
    assert "small" in doit(built, "list").stdout
    assert "build small" in doit(built, "info", "small").stdout
    assert doit(built, "-n", "2", "build", "recipe=small").returncode == 0
    assert not list(built.root.glob(".doit.db*"))
    assert doit(built, "clean", "build").returncode == 0
    assert not list((built.root / "build" / "small").glob("*.onnx"))


@pytest.mark.parametrize(
    "words", [("build", "recpie=small"), ("build", "recipe=smal"), ("build", ""), ("build", "recipe=")]
)
def test_doit_refuses_what_stock_doit_would_build(built: Workspace, words: tuple[str, ...]) -> None:
    done = doit(built, *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_the_shipped_recipes_can_be_planned() -> None:
    repository = Workspace(REPOSITORY)
    assert repository.run("list", "recipes").code == 0


@pytest.mark.untuned
def test_keep_going_builds_what_a_refusal_does_not_touch(built: Workspace) -> None:
    text = built.recipe.read_text()
    (built.root / "recipes" / "wrong.yaml").write_text(
        text.replace("op_types: [GlobalAveragePool]", "names: [nowhere]")
    )
    (built.root / "recipes" / "other.yaml").write_text(text.replace("percentile: 0.9999", "percentile: 0.999"))
    stopped = built.run("build", "wrong", "other", "--json")
    assert stopped.code == 2
    assert "calibrate" not in stopped.ran()
    result = built.run("build", "wrong", "other", "--json", "--keep-going")
    assert result.code == 2
    assert "calibrate" in result.ran()
    assert result.json["targets"]["other"]["manifest"] == "build/other/manifest.json"
    assert result.json["targets"]["wrong"]["manifest"] is None


@pytest.mark.untuned
def test_keep_going_builds_what_bad_data_of_another_recipe_do_not_touch(fresh: Workspace) -> None:
    """Refused before any task: the same example twice, a labels file that is none, weights that are not there."""
    text = fresh.recipe.read_text()
    for name in ("calibration", "validation"):
        shutil.copytree(fresh.root / "data" / name, fresh.root / "data" / f"{name}_bad")
    first = min((fresh.root / "data" / "calibration_bad").iterdir())
    shutil.copy(first, first.with_name("again.png"))
    (fresh.root / "data" / "validation_bad" / "labels.json").write_text("[")
    model = onnx.load(fresh.root / "models" / "digits_mobilenet.onnx")
    onnx.save_model(model, fresh.root / "models" / "apart.onnx", save_as_external_data=True, location="gone.bin")
    (fresh.root / "models" / "gone.bin").unlink()
    changes = {
        "twice": ("../data/calibration", "../data/calibration_bad"),
        "unlabelled": ("../data/validation", "../data/validation_bad"),
        "lost": ("digits_mobilenet.onnx", "apart.onnx"),
    }
    for name, (old, new) in changes.items():
        (fresh.root / "recipes" / f"{name}.yaml").write_text(text.replace(old, new))
    words = ("build", *changes, "small", "--until", "import", "--json")
    assert fresh.run(*words).code == 2
    result = fresh.run(*words, "-k")
    assert (result.code, result.ran()) == (2, ["import"])
    assert set(result.json["targets"]) == {*changes, "small"}
    for place in ("again.png", "validation_bad", "gone.bin"):
        assert any(place in f"{fault['where']} {fault['what']}" for fault in result.json["faults"])
    assert fresh.run("build", *changes, "--until", "import", "-k").code == 2  # none is left


def test_what_a_stage_warns_of_reaches_the_person_each_time(built: Workspace) -> None:
    wide = "op_types: [GlobalAveragePool, Gemm]}\n    set: {activation: float32}\n  - match: {op_types: [Flatten]}"
    built.edit("op_types: [GlobalAveragePool]}", wide)
    built.edit("set: {activation: int16}", "set: {activation: int8}")
    for _ in range(2):  # the second time nothing is to be done
        result = built.run("build", "small")
        assert "warning: tune: " in result.err
        assert "is rounded to uint8 again by" in result.err
