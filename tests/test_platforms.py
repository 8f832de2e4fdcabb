"""The facts of the vendor's documents, written here a second time; files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from npubake.errors import PlatformError
from npubake.platforms import FACTS, combine, load_platform, load_platforms, platform_folder

ROOT = Path(__file__).resolve().parents[1]
PLATFORMS = load_platforms(ROOT)
MIB = 1 << 20

# "Platform Differences" and "Deployment Consistency Analysis": stride, unit, tail, L2M; cores and march: compiler lists
TABLE = {
    "j6e": (32, 64, "int32", None, "a8w8", 1, "nash-e"),
    "j6m": (32, 64, "int32", None, "a8w8", 1, "nash-m"),
    "j6b": (32, 128, "float32", None, "a8w8", 1, "nash-b"),
    "j6h": (64, 256, "float32", 24 * MIB, "fp16_a8w8", 3, "nash-h"),
    "j6p": (64, 256, "float32", 24 * MIB, "fp16_a8w8", 4, "nash-p"),
    "s6p": (64, 256, "float32", 12 * MIB, "fp16_a8w8", 4, "nash-starry-p"),
}
# What a binary of the QNN 2.51.0 compiler says of itself (SoC, architecture, vector memory), and in which lanes it made
# one of a model of convolutions and attention: measured with onnxruntime-qnn 2.7.0, SoC by SoC.
INTEGER_LANES, ALL_LANES = ("a8w8", "a16w8", "w4a16"), ("a8w8", "a16w8", "a16w16", "w4a16", "fp16", "fp16_a8w8")
QUALCOMM = {
    "qcs9075": ("77", "v73", 8 * MIB, "QCS9100", ALL_LANES),
    "qcs8275": ("82", "v75", 8 * MIB, "QCS8300", ALL_LANES),
    "qcs6490": ("93", "v68", 2 * MIB, "QCS6490", INTEGER_LANES),
    "qcs8550": ("66", "v73", 8 * MIB, "QCS8550", ALL_LANES),
    "sa8255p": ("52", "v73", 8 * MIB, "SA8255", ALL_LANES),
    "sa8295p": ("39", "v68", 8 * MIB, "SA8295", ("a8w8", "a16w8", "w4a16", "fp16", "fp16_a8w8")),
    "x-elite": ("60", "v73", 8 * MIB, "SC8380XP", ALL_LANES),
}
COLUMNS = ("nv12_stride_bytes", "tensor_unit_bytes", "tail", "max_l2m_bytes", "lane", "max_core_num", "march")


@pytest.mark.parametrize("name", TABLE)
def test_the_facts_of_the_documents(name: str) -> None:
    assert tuple(PLATFORMS[name].values(*COLUMNS).values()) == TABLE[name]
    assert PLATFORMS[name].toolchains == ("reference", "horizon")


@pytest.mark.parametrize("name", QUALCOMM)
def test_the_facts_of_the_compiler(name: str) -> None:
    platform = PLATFORMS[name]
    found = [getattr(platform, fact).value for fact in ("soc_model", "march", "vtcm_bytes", "soc", "lanes")]
    assert tuple(found) == QUALCOMM[name]
    assert ("float16" in platform.precisions.value) == ("fp16" in QUALCOMM[name][4])
    assert (platform.vendor, platform.toolchains, platform.tail.value) == ("Qualcomm", ("qualcomm",), "quantized")


def test_the_rest() -> None:
    assert set(PLATFORMS) == {*TABLE, *QUALCOMM, "generic"}
    assert PLATFORMS["generic"].toolchains == ("reference",)
    assert PLATFORMS["s6p"].ucp_ips.value == ("bpu",)
    assert [name for name in TABLE if PLATFORMS[name].tae_float.value] == ["j6b", "j6h", "j6p", "s6p"]
    assert all(PLATFORMS[name].soc_model.value is None for name in (*TABLE, "generic"))
    assert [name for name in TABLE if "float16" in PLATFORMS[name].precisions.value] == ["j6h", "j6p", "s6p"]


def test_what_is_uncertain_says_so() -> None:
    assert PLATFORMS["s6p"].march.status == "inferred"
    assert PLATFORMS["s6p"].max_l2m_bytes.status == "inferred"
    assert PLATFORMS["j6h"].max_core_num.status == "conflict"
    for platform in PLATFORMS.values():
        for name, fact in platform.facts().items():
            assert fact.source, name
            assert fact.note or fact.status == "stated", name


def test_values_are_json_and_only_what_is_asked_for() -> None:
    assert PLATFORMS["j6p"].values("tail", "precisions") == {
        "tail": "float32",
        "precisions": ["int8", "int16", "float16", "float32"],
    }
    assert len(FACTS) == 15


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("tail:", "tial:", "$.tial"),
        ("  status: stated", "  status: sure", "$.soc.status"),
        ("value: J6P", "value: 6", "$.soc.value"),
        ("name: j6p", "name: j6q", "$.name"),
        ("[reference, horizon]", "[reference, horizom]", "$.toolchains[1]"),
    ],
)
def test_faults_of_a_platform_file(tmp_path: Path, old: str, new: str, path: str) -> None:
    text = (ROOT / "platforms" / "j6p.yaml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "j6p.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(PlatformError) as caught:
        load_platform(tmp_path / "j6p.yaml")
    assert path in [fault.path for fault in caught.value.faults]


def test_the_faults_of_all_files_come_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "platforms"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text("version: 1\nversion: 1\n", encoding="utf-8")
    with pytest.raises(PlatformError) as caught:
        load_platforms(tmp_path)
    assert {Path(fault.where.split(":")[0]).name for fault in caught.value.faults} == {"a.yaml", "b.yaml"}


def test_a_projects_own_platforms_come_first(tmp_path: Path) -> None:
    assert platform_folder(tmp_path) == ROOT / "platforms"
    (tmp_path / "platforms").mkdir()
    assert platform_folder(tmp_path) == ROOT / "platforms"  # an empty folder holds none
    (tmp_path / "platforms" / "x.yaml").write_text("version: 1\n", encoding="utf-8")
    assert platform_folder(tmp_path) == tmp_path / "platforms"


def test_a_file_may_leave_out_how_activations_are_scaled(tmp_path: Path) -> None:
    text = (ROOT / "platforms" / "generic.yaml").read_text(encoding="utf-8")
    start, end = text.index("activation_granularities:"), text.index("nv12_stride_bytes:")
    path = tmp_path / "generic.yaml"
    path.write_text(text[:start] + text[end:], encoding="utf-8")
    fact = load_platform(path).activation_granularities
    assert (fact.value, fact.status) == (("per_tensor",), "inferred")


def stated(folder: Path, name: str, changes: dict[str, str]) -> Path:
    text = (ROOT / "platforms" / f"{name}.yaml").read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_qualcomm_platform_states_what_its_toolchain_needs(tmp_path: Path) -> None:
    cut = (ROOT / "platforms" / "qcs9075.yaml").read_text(encoding="utf-8")
    path = stated(tmp_path, "qcs9075", {'value: "77"': "value: null", cut[cut.index("vtcm_bytes:") :]: ""})
    with pytest.raises(PlatformError) as caught:
        load_platform(path)
    assert [fault.path for fault in caught.value.faults] == ["$.soc_model", "$.vtcm_bytes", "$.lanes"]
    path = stated(tmp_path, "qcs9075", {'value: "77"': "value: QCS9100"})
    with pytest.raises(PlatformError) as caught:
        load_platform(path)
    assert [fault.path for fault in caught.value.faults] == ["$.soc_model.value"]


def test_one_platform_of_two_socs() -> None:
    pair = combine("qcs9075+qcs8275", PLATFORMS)
    assert pair.name == "qcs9075+qcs8275"
    assert pair.values("soc_model", "march", "vtcm_bytes", "soc", "max_core_num") == {
        "soc_model": "77,82",
        "march": "v73,v75",
        "vtcm_bytes": 8 * MIB,
        "soc": "QCS9100,QCS8300",
        "max_core_num": 1,
    }
    assert "soc_model 77" in pair.vtcm_bytes.source
    assert "soc_model 82" in pair.vtcm_bytes.source
    assert combine("qcs9075", PLATFORMS) is PLATFORMS["qcs9075"]


def test_socs_that_differ_share_what_all_have() -> None:
    three = combine("sa8295p+qcs9075+qcs6490", PLATFORMS)
    assert three.vtcm_bytes.value == 2 * MIB
    assert three.lanes.value == ("a8w8", "a16w8", "w4a16")
    assert three.precisions.value == ("int8", "int16")
    assert three.march.value == "v68,v73,v68"
    assert "a16w16 is refused" in three.lanes.note


@pytest.mark.parametrize(
    ("name", "whats", "hint"),
    [
        ("qcs9075+qcs8276", ["there is no platform 'qcs8276'"], "'qcs8275'"),
        ("qcs9074+qcs8276", ["there is no platform 'qcs9074'", "there is no platform 'qcs8276'"], "'qcs9075'"),
        ("qcs8275+qcs9075", ["'qcs8275+qcs9075' is not in order"], "'qcs9075+qcs8275'"),
        ("qcs9075+qcs9075", ["'qcs9075' stands in 'qcs9075+qcs9075' more than once"], "once"),
        ("j6p+qcs9075", ["j6p cannot share a binary"], "of its own"),
        ("qcs9075+", ["there is no platform ''"], "qcs9075"),
    ],
)
def test_what_is_no_platform_of_two(name: str, whats: list[str], hint: str) -> None:
    with pytest.raises(PlatformError) as caught:
        combine(name, PLATFORMS)
    assert [fault.what[: len(what)] for fault, what in zip(caught.value.faults, whats, strict=True)] == whats
    assert hint in caught.value.faults[0].hint


def test_facts_that_cannot_hold_for_two_are_refused(tmp_path: Path) -> None:
    every = "value: [a8w8, a16w8, a16w16, w4a16, fp16, fp16_a8w8]"
    odd = load_platform(stated(tmp_path, "qcs8275", {"value: a8w8": "value: a16w8", every: "value: [fp16]"}))
    with pytest.raises(PlatformError) as caught:
        combine("qcs8275+qcs6490", {**PLATFORMS, "qcs8275": odd})
    lane, lanes = (fault.what for fault in caught.value.faults)
    assert lane == "lane differs: qcs8275 has a16w8, qcs6490 has a8w8"
    assert lanes.endswith("they have no lanes in common")


def test_two_files_of_one_soc_are_no_pair(tmp_path: Path) -> None:
    twin = load_platform(stated(tmp_path, "qcs8275", {'value: "82"': 'value: "77"'}))
    with pytest.raises(PlatformError) as caught:
        combine("qcs9075+qcs8275", {**PLATFORMS, "qcs8275": twin})
    assert "soc_model 77" in caught.value.faults[0].what
