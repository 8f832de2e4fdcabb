"""Command line room: argv -> one call -> print -> exit code. The only room that prints or exits."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from npubake.errors import BuildError

# The command that argparse chose -> the module of this room that has the function of that name.
COMMANDS = {
    "build": "commands",
    "check": "commands",
    "plan": "commands",
    "explain": "commands",
    "status": "commands",
    "list": "listings",
    "doctor": "listings",
    "new": "artifacts",
    "run": "artifacts",
    "verify": "artifacts",
    "cache_info": "cache",
    "cache_gc": "cache",
    "cache_fsck": "cache",
    "completion": "completion",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; a ``BuildError`` is printed with all its faults."""
    from npubake.cli.parser import build_parser

    arguments = build_parser().parse_args(argv)
    try:
        module = importlib.import_module(f"npubake.cli.{COMMANDS[arguments.run]}")
        code: int = getattr(module, f"run_{arguments.run}")(arguments)
        sys.stdout.flush()
        return code
    except BuildError as error:
        return _refuse(error, as_json=arguments.json)
    except KeyboardInterrupt:
        print("interrupted; finished stages are kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _refuse(error: BuildError, *, as_json: bool) -> int:
    if as_json:
        import json

        faults = [asdict(fault) for fault in error.faults]
        print(json.dumps({"error": {"who": error.who, "exit_code": error.exit_code, "faults": faults}}))
    print(f"npubake: {error.who} error", file=sys.stderr)
    print(error, file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
