"""Every YAML trap: what is written, where the fault stands, and a word that its explanation must hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from npubake.document import reader
from npubake.document.reader import Document, read_document, read_text


def read(text: str | bytes) -> Document:
    document = Document(file="r.yaml")
    read_text(text.encode() if isinstance(text, str) else text, document)
    return document


TRAPS = [
    ("a: no", "r.yaml:1:4", "$.a", "boolean"),
    ("a: 1\nb: [x, On]", "r.yaml:2:8", "$.b[1]", "boolean"),
    ("on: 1", "r.yaml:1:1", "$.on", "as a key"),
    ("a: 010", "r.yaml:1:4", "$.a", "octal"),
    ("a: 089", "r.yaml:1:4", "$.a", "octal"),
    ("a: 0o17", "r.yaml:1:4", "$.a", "octal"),
    ("a: 1:30", "r.yaml:1:4", "$.a", "base-60"),
    ("a: 1:30.5", "r.yaml:1:4", "$.a", "base-60"),
    ("a: 1e-4", "r.yaml:1:4", "$.a", "exponent"),
    ("a: 1.5e3", "r.yaml:1:4", "$.a", "exponent"),
    ("a: 1_000", "r.yaml:1:4", "$.a", "YAML 1.2"),
    ("a: 0b11", "r.yaml:1:4", "$.a", "YAML 1.2"),
    ("a: .nan", "r.yaml:1:4", "$.a", "finite"),
    ("a: -.inf", "r.yaml:1:4", "$.a", "finite"),
    ("a: 1.0e+999", "r.yaml:1:4", "$.a", "finite"),
    ("a: {x: 1, y: 2, x: 3}", "r.yaml:1:17", "$.a.x", "twice"),
    ("a: &n [1, *n]", "r.yaml:1:4", "$.a[1]", "itself"),
    ("a: &n {b: *n}", "r.yaml:1:8", "$.a.b", "itself"),
    ("a: &n {x: 1}\nb:\n  <<: *n", "r.yaml:3:3", '$.b["<<"]', "merge"),
    ("1: a", "r.yaml:1:1", '$["1"]', "not text"),
    ("~: a", "r.yaml:1:1", '$["~"]', "not text"),
    ("? [a, b]\n: 1", "r.yaml:1:3", '$["?"]', "as a key"),
    ("a: !!python/name:os.system x", "r.yaml:1:4", "$.a", "tag"),
    ("a: !mine {x: 1}", "r.yaml:1:4", "$.a", "tag"),
    ("a: !!float x", "r.yaml:1:4", "$.a", "number"),
    ("a: 1\n---\nb: 2", "r.yaml:3:1", "", "2 YAML documents"),
    ("", "r.yaml:1:1", "", "empty"),
    ("# a comment\n", "r.yaml:1:1", "", "empty"),
    ("~", "r.yaml:1:1", "", "empty"),
    ("a:\n\tb: 1", "r.yaml:2:1", "", "tab"),
    ("a: 'open", "r.yaml:1:9", "", "not YAML"),
    ("a: *nowhere", "r.yaml:1:4", "", "alias"),
    ("a: @x", "r.yaml:1:4", "", "cannot start any token"),
    ('a: "x\\0y"', "r.yaml:1:4", "$.a", "U+0000"),
    ("a: 9223372036854775808", "r.yaml:1:4", "$.a", "larger"),
    (f"a: {10**30}", "r.yaml:1:4", "$.a", "larger"),
    ("a: x\x00y", "r.yaml:1:5", "", "U+0000"),
    (b"\xff\xfea\x00:\x00", "r.yaml:1:1", "", "UTF-16"),
    ("a: 1".encode("utf-16-be"), "r.yaml:1:1", "", "U+0000"),
    ("b: ok\na: n\u00e9".encode("latin-1"), "r.yaml:2:5", "", "0xe9"),
]


@pytest.mark.parametrize(("text", "where", "path", "words"), TRAPS, ids=[repr(trap[0])[:30] for trap in TRAPS])
def test_a_trap_is_one_fault_at_its_place_with_its_reason(text: str | bytes, where: str, path: str, words: str) -> None:
    (fault,) = read(text).faults
    assert (fault.where, fault.path) == (where, path)
    assert words in fault.what
    assert fault.hint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: true", True),
        ("a: False", False),
        ("a: 'no'", "no"),
        ('a: "010"', "010"),
        ("a: 1.0e-4", 1e-4),
        ("a: 0", 0),
        ("a: -12", -12),
        ("a: 0x1F", 31),
        ("a: 0.5", 0.5),
        ("a: .5", 0.5),
        ("a: 2024-01-01", "2024-01-01"),
        ("a: 0-1", "0-1"),
        ("a: v1e5x", "v1e5x"),
        ("a:", None),
        ("a: |\n  no\n", "no\n"),
        ("a: &n [1]\nb: *n", [1]),
        ("\ufeffa: 7", 7),
    ],
)
def test_what_is_no_trap_is_read(text: str, value: Any) -> None:
    document = read(text)
    assert document.faults == []
    assert document.root is not None
    found = document.root.plain()["a"]
    assert found == value
    assert type(found) is type(value)


def test_all_faults_of_a_text_come_at_once() -> None:
    document = read("a: no\nb: 010\nb: 1\nc: [1e-4, .nan]\n")
    assert [fault.where for fault in document.faults] == [f"r.yaml:{at}" for at in ("1:4", "2:4", "3:1", "4:5", "4:11")]


def test_every_tab_is_named() -> None:
    document = read("a:\n\tb: 1\n\tc: 2\n")
    assert [fault.where for fault in document.faults] == ["r.yaml:2:1", "r.yaml:3:1"]


def test_an_alias_bomb_ends_at_the_limit() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]  # 9 ** 12 values
    document = read("\n".join(lines))
    assert [fault.what for fault in document.faults] == [f"aliases expand to more than {reader.MAX_NODES} values"]


@pytest.mark.parametrize("depth", [70, 900, 20_000])
def test_deep_nesting_is_refused_without_a_crash(depth: int) -> None:
    (fault,) = read("a: " + "[" * depth + "]" * depth).faults
    assert "deep" in fault.what or "not YAML" in fault.what


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * (reader.MAX_BYTES + 1))
    (fault,) = read_document(path).faults
    assert str(reader.MAX_BYTES) in fault.what


def test_a_missing_file_and_a_folder_are_faults(tmp_path: Path) -> None:
    assert "no such file" in read_document(tmp_path / "x.yaml").faults[0].what
    assert "folder" in read_document(tmp_path).faults[0].what


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Co"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz-/ ", min_size=1), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abcxyz-/ ", min_size=1), JSON_VALUES, min_size=1, max_size=4))
def test_what_pyyaml_writes_is_read_back_without_a_fault(data: dict[str, Any]) -> None:
    document = read(yaml.safe_dump(data, allow_unicode=True, sort_keys=False))
    traps = [fault for fault in document.faults if "octal" not in fault.what and "exponent" not in fault.what]
    assert traps == []  # text like 089 is written without quotes by PyYAML, which is the trap
    if not document.faults:
        assert document.root is not None
        assert document.root.plain() == data


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    document = read(data)
    assert document.root is not None or document.faults


@given(st.text("ab:-[]{}&*!|>'\"%@`,# \n\t0189.e~<=?", max_size=60))
def test_no_text_raises(text: str) -> None:
    document = read(text)
    assert document.root is not None or document.faults
