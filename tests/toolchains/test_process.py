"""Processes that end well, badly, late or not at all, and what they see of this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from npubake.errors import StageError, ToolchainError
from npubake.toolchains import process

ECHO = "tests.toolchains.echoing"


def python(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


def test_that_output_and_status_come_back(tmp_path: Path) -> None:
    ended = process.run(python("import sys; print('said'); sys.exit(3)"), folder=tmp_path, timeout=60)
    assert (ended.status, ended.text, ended.how) == (3, "said\n", "exit status 3")


def test_that_a_signal_has_its_name(tmp_path: Path) -> None:
    ended = process.run(python("import os; os.kill(os.getpid(), 11)"), folder=tmp_path, timeout=60)
    assert ended.how == "SIGSEGV"


def test_that_only_the_fixed_environment_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QNN_SDK_ROOT", "elsewhere")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    text = "import json, os; print(json.dumps(dict(os.environ)))"
    ended = process.run(python(text), folder=tmp_path, timeout=60, environment={"OURS": "1"})
    seen = json.loads(ended.text)
    assert seen["TZ"] == "UTC"
    assert seen["HOME"] == seen["TMPDIR"] == str(tmp_path)
    assert set(seen) <= {*process.FIXED, "HOME", "TMPDIR", "OURS", "LC_CTYPE"}


def test_that_a_missing_command_is_a_toolchain_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as refused:
        process.run([str(tmp_path / "qairt-converter")], folder=tmp_path, timeout=60)
    assert refused.value.faults[0].where == "qairt-converter"


def alive(pid: int) -> bool:
    """Whether a process still runs; one that ended and waits to be fetched does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


PARENT = """
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open("child.part", "w") as stream:
        stream.write(str(child.pid))
    os.rename("child.part", "child")
    print("before the end", flush=True)
    time.sleep(600)
"""


def test_that_the_time_limit_ends_it_with_all_that_it_started(tmp_path: Path) -> None:
    started = tmp_path / "child"
    with pytest.raises(StageError) as refused:
        process.run(python(PARENT), folder=tmp_path, timeout=3)
    assert "did not end within 3 s" in refused.value.faults[0].what
    assert "before the end" in refused.value.faults[0].hint
    assert_ended(int(started.read_text()))


def test_that_an_interrupt_ends_it_with_all_that_it_started(tmp_path: Path) -> None:
    started = tmp_path / "child"

    def watch() -> None:
        if started.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process.run(python(PARENT), folder=tmp_path, timeout=60, watch=watch)
    assert_ended(int(started.read_text()))


def test_that_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    text = f"""
        from pathlib import Path
        from npubake.toolchains import process
        text = "import os, time; open('own', 'w').write(str(os.getpid())); time.sleep(600)"
        command = [{sys.executable!r}, "-c", text]
        process.run(command, folder=Path({str(tmp_path)!r}), timeout=600)
    """
    starter = subprocess.Popen(python(text))
    try:
        wait_for(lambda: (tmp_path / "own").exists() and (tmp_path / "own").read_text() != "")
        pid = int((tmp_path / "own").read_text())
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    assert_ended(pid)


def assert_ended(pid: int) -> None:
    wait_for(lambda: not alive(pid))
    assert not alive(pid)


def wait_for(happened: object) -> None:
    assert callable(happened)
    end = time.monotonic() + 30
    while not happened() and time.monotonic() < end:
        time.sleep(0.02)


def test_that_a_module_answers(tmp_path: Path) -> None:
    answer = process.run_module(ECHO, {"say": [1, "two"]}, folder=tmp_path, timeout=60)
    assert answer == {"said": [1, "two"]}
    assert (tmp_path / process.PRINTED).read_text() == "printed\n"


def test_that_a_refusal_of_a_module_keeps_its_faults(tmp_path: Path) -> None:
    with pytest.raises(StageError) as refused:
        process.run_module(ECHO, {"refuse": ["a", "b"]}, folder=tmp_path, timeout=60)
    assert [(fault.what, fault.where) for fault in refused.value.faults] == [("a", "here"), ("b", "here")]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_that_a_module_that_dies_is_told_apart(tmp_path: Path, number: signal.Signals) -> None:
    with pytest.raises(process.ProcessDied) as died:
        process.run_module(ECHO, {"die": int(number)}, folder=tmp_path, timeout=60)
    assert number.name in died.value.faults[0].what


def test_that_an_old_answer_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / process.ANSWER).write_text("{}")
    with pytest.raises(process.ProcessDied):
        process.run_module(ECHO, {"die": int(signal.SIGKILL)}, folder=tmp_path, timeout=60)


def test_that_the_end_of_long_output_is_whole_lines() -> None:
    text = "".join(f"line {number}\n" for number in range(2000)).encode()
    shown = process.tail(text)
    assert shown.startswith("... line ")
    assert shown.endswith("line 1999")
    assert process.tail(b" short \n") == "short"


def test_the_command_finds_the_same_addresses_each_time(tmp_path: Path) -> None:
    code = "import ctypes; print(id(ctypes), ctypes.addressof(ctypes.c_int.in_dll(ctypes.pythonapi, 'Py_NoSiteFlag')))"
    told = {process.run([sys.executable, "-I", "-c", code], folder=tmp_path, timeout=30).text for _ in range(4)}
    assert len(told) == 1


def test_memory_that_was_never_written_reads_as_zeros(tmp_path: Path) -> None:
    code = (
        "import ctypes; c = ctypes.CDLL(None)\n"
        "c.malloc.restype = ctypes.c_void_p; c.free.argtypes = [ctypes.c_void_p]\n"
        "used = c.malloc(200); ctypes.memset(used, 7, 200); c.free(used)\n"
        "print(all(set(ctypes.string_at(c.malloc(200), 200)) == {0} for _ in range(20)))"
    )
    assert process.run([sys.executable, "-I", "-c", code], folder=tmp_path, timeout=30).text.strip() == "True"


def test_what_a_lone_module_sees_does_not_depend_on_where_this_process_is() -> None:
    with process.fixed_folder() as folder:
        answer = process.run_module("tests.toolchains.surroundings", {}, folder=folder, timeout=60, packages=("tests",))
        assert set(answer["path"]) - set(answer["own"]) == {f"{folder}/packages"}
        assert answer["variables"]["HOME"] == answer["folder"] == str(folder)
        assert len(str(folder)) == len("/tmp/npubake-12345678")
        assert answer["compiled"] == []
    assert not folder.exists()


def test_a_package_that_is_not_installed_is_named() -> None:
    with process.fixed_folder() as folder, pytest.raises(ToolchainError) as caught:
        process.run_module(ECHO, {}, folder=folder, timeout=60, packages=("no_such_package", "tests"))
    assert [fault.where for fault in caught.value.faults] == ["no_such_package"]
