"""The facts of the vendor's documents, written here a second time; files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from npubake.errors import PlatformError
from npubake.platforms import FACTS, load_platform, load_platforms, platform_folder

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
COLUMNS = ("nv12_stride_bytes", "tensor_unit_bytes", "tail", "max_l2m_bytes", "lane", "max_core_num", "march")


@pytest.mark.parametrize("name", TABLE)
def test_the_facts_of_the_documents(name: str) -> None:
    assert tuple(PLATFORMS[name].values(*COLUMNS).values()) == TABLE[name]
    assert PLATFORMS[name].toolchains == ("reference", "horizon")


def test_the_rest() -> None:
    assert set(PLATFORMS) == {*TABLE, "generic"}
    assert PLATFORMS["generic"].toolchains == ("reference",)
    assert PLATFORMS["s6p"].ucp_ips.value == ("bpu",)
    assert [name for name in TABLE if PLATFORMS[name].tae_float.value] == ["j6b", "j6h", "j6p", "s6p"]
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
    assert len(FACTS) == 12


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
