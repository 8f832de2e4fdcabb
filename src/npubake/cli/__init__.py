"""Command line room: argv -> one call -> print -> exit code. The only room that prints or exits."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from npubake.errors import BuildError, Fault, UsageError

# The command that argparse chose -> the module of this room that has the function of that name.
COMMANDS = {
    "build": "commands",
    "check": "commands",
    "plan": "commands",
    "explain": "commands",
    "status": "commands",
    "what_if": "what_if",
    "list": "listings",
    "doctor": "doctor",
    "new": "artifacts",
    "run": "artifacts",
    "verify": "artifacts",
    "export": "exporting",
    "cache_info": "cache",
    "cache_gc": "cache",
    "cache_fsck": "cache",
    "completion": "completion",
}


INTERRUPTED = 130  # 128 + SIGINT, as shells have it
PIPE_CLOSED = 141  # 128 + SIGPIPE: whoever read standard output has stopped


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; a ``BuildError`` is printed with all its faults."""
    words = sys.argv[1:] if argv is None else list(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that the terminal cannot show must not end a build
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def _run(words: Sequence[str]) -> int:
    from npubake.cli.parser import build_parser

    as_json = "--json" in words
    try:
        arguments = build_parser().parse_args(words)
        with _inside(arguments.directory):
            arguments.directory = "."
            module = importlib.import_module(f"npubake.cli.{COMMANDS[arguments.run]}")
            code: int = getattr(module, f"run_{arguments.run}")(arguments)
        return code
    except BuildError as error:
        return _refuse(error.who, error.exit_code, error.faults, as_json=as_json)
    except KeyboardInterrupt:
        fault = Fault(what="interrupted; finished stages are kept", hint="The same command goes on where it stopped.")
        return _refuse("interrupt", INTERRUPTED, (fault,), as_json=as_json)


@contextlib.contextmanager
def _inside(directory: str) -> Iterator[None]:
    """The command as if started in ``directory``. Raises UsageError where it is none."""
    try:
        before = Path.cwd() if directory != "." else None
        os.chdir(directory)
        Path.cwd()
    except (OSError, ValueError) as error:
        hint = "-C takes a folder; a folder that was deleted while a shell stands in it is none."
        raise UsageError(Fault(what="no such folder", where=directory, hint=hint)) from error
    try:
        yield
    finally:
        if before is not None:
            os.chdir(before)


def _refuse(who: str, exit_code: int, faults: Sequence[Fault], *, as_json: bool) -> int:
    if as_json:
        import json

        told = [asdict(fault) for fault in faults]
        print(json.dumps({"error": {"who": who, "exit_code": exit_code, "faults": told}}))
    print(f"npubake: {who} error" if who != "interrupt" else "npubake: stopped", file=sys.stderr)
    for fault in faults:
        print(fault, file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
