"""Qualcomm toolchain, SDK road: the same command lines as a shell script, for one who runs the SDK by hand. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from npubake.toolchains.qualcomm.qairt.commands import Command
from npubake.toolchains.qualcomm.qairt.sdk import DESCRIPTION, HOST, VARIABLE

_HEAD = """\
#!/bin/bash
# {title}
# Written by npubake for the QAIRT SDK {version}; the flags of other versions differ.
set -euo pipefail
cd "$(dirname "$0")"

if [ -z "${{{variable}:-}}" ]; then
  echo "set {variable} to the folder of the QAIRT SDK, which holds bin/ and lib/" >&2
  exit 2
fi
for tool in {tools}; do
  if [ ! -x "${variable}/bin/{host}/$tool" ]; then
    echo "${variable}/bin/{host}/$tool is missing: is {variable} the folder of an SDK?" >&2
    exit 2
  fi
done
found="$(sed -n "s/^version: *['\\"]*v*\\([0-9.]*\\).*/\\1/p" "${variable}/{description}" 2>/dev/null || true)"
case "${{found:-$(basename "${variable}")}}" in
  {series}*) ;;
  *) echo "this script is for QAIRT SDK {version}; here is ${{found:-an SDK without {description}}}" >&2
     exit 2 ;;
esac
export QNN_SDK_ROOT="${variable}"
export PATH="${variable}/bin/{host}:$PATH"
export LD_LIBRARY_PATH="${variable}/lib/{host}:${{LD_LIBRARY_PATH:-}}"
export PYTHONPATH="${variable}/lib/python:${{PYTHONPATH:-}}"
"""


def script_text(
    title: str, version: str, commands: Sequence[Command], *, folders: Iterable[str] = (), inner: str = ""
) -> str:
    """The script. folders: made before the first command; inner: the backend's two configuration files, as shell.

    It checks that the variable is set, that the tools are there and that the SDK is of the version that the flags are
    for. Every word is quoted, ``{sdk}`` becomes the variable.
    """
    head = _HEAD.format(
        title=_one_line(title),
        version=version,
        series=".".join([*version.split(".")[:2], ""]),
        variable=VARIABLE,
        host=HOST,
        description=DESCRIPTION,
        tools=" ".join(dict.fromkeys(command.tool for command in commands)),
    )
    made = [f"mkdir -p {' '.join(map(shlex.quote, folders))}"] if folders else []
    steps = [_step(command) for command in commands]
    return "\n".join([head, *made, *([inner] if inner else []), *steps])


def here_document(path: str, text: str) -> str:
    """Shell that writes ``text`` to ``path``; ``{sdk}`` in it becomes the variable, no other sign is read."""
    quoted = text.replace("\\", "\\\\").replace("$", "\\$").replace("`", "\\`").replace("{sdk}", f"${VARIABLE}")
    return f"cat > {shlex.quote(path)} <<NPUBAKE_END\n{quoted}NPUBAKE_END"


def _step(command: Command) -> str:
    lines = [f'echo "{command.tool}"', f'"${VARIABLE}/bin/{HOST}/{command.tool}"']
    words = [_word(word) for word in command.words]
    rows: list[str] = []
    for word in words:
        if word.startswith("-") or not rows:
            rows.append(word)
        else:
            rows[-1] += f" {word}"
    return lines[0] + "\n" + " \\\n  ".join([lines[1], *rows]) + "\n"


def _word(word: str) -> str:
    if word.startswith("{sdk}/"):
        return f'"${VARIABLE}"/{shlex.quote(word.removeprefix("{sdk}/"))}'
    return shlex.quote(word)


def _one_line(text: str) -> str:
    return " ".join(text.split())
