"""Command line room: the words a person may type. argparse only, so that ``--help`` and completion start at once."""

from __future__ import annotations

import argparse
import math
from typing import Any, NoReturn

from npubake import __version__
from npubake.errors import Fault, UsageError

EXIT_CODES = (
    "exit codes: 0 done; 1 a gate or stage failed; 2 a mistake in what was asked; 3 plan --check: work to do; "
    "130 interrupted; 141 the reader of standard output has gone"
)
_MOST = 4096  # tasks at once, and threads: more is a typing error
METHODS = ("minmax", "percentile", "entropy", "mse", "mean_minmax")  # quant/thresholds.py has them, and numpy
SORTS = (*METHODS, "int16", "float16", "tensor", "graph")
EXPORTS = ("encodings", "qdq", "input-list", "qairt-script")
TARGETS_HELP = "recipe or target names, comma lists, or recipe=NAME; none: all of the project"


class Parser(argparse.ArgumentParser):
    """argparse that refuses as every other part does. Raises UsageError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(Fault(what=message, where=self.prog, hint=" ".join(self.format_usage().split())))


def _word(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("an empty value: is a shell variable unset?")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {_MOST}")
    return int(text)


def _row(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no row: rows count from 0")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 <= days < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days, 0 or more")
    return days


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Every command's ``run`` default is its name in ``cli.COMMANDS``."""
    parser = Parser(
        prog="npubake",
        description="Bakes a trained model into a deployable artifact for an edge NPU, from one YAML recipe.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"npubake {__version__}")
    parser.add_argument("-C", "--directory", metavar="DIR", default=".", help="work as if started in DIR")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _building(commands)
    _asking(commands)
    _artifacts(commands)
    _housekeeping(commands)
    return parser


def _command(commands: Any, name: str, help_text: str, **extra: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, description=help_text[0].upper() + help_text[1:] + ".", epilog=EXIT_CODES, **extra
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parser.set_defaults(run=name)
    return parser


def _targets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help=TARGETS_HELP)
    parser.add_argument(
        "--toolchain", type=_word, metavar="NAME", help="use another toolchain than the platform's default"
    )
    parser.add_argument("--fast", action="store_true", help="a quick trial on a few samples; never deployable")


def _locking(parser: argparse.ArgumentParser, *, writes: bool) -> None:
    lock = parser.add_mutually_exclusive_group()
    lock.add_argument("--locked", action="store_true", help="refuse to build unless the lock matches")
    if writes:
        lock.add_argument("--update-lock", action="store_true", help="rewrite the recipe's lock first")


def _running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--jobs", type=_count, default=1, metavar="N", help="tasks at once (default 1)")
    parser.add_argument(
        "--threads", type=_count, default=0, metavar="N", help="threads of one task (default: all cores)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress; only the result")


def _building(commands: Any) -> None:
    build = _command(commands, "build", "build targets: run what changed, restore or reuse the rest")
    _targets(build)
    _locking(build, writes=True)
    _running(build)
    build.add_argument("-v", "--verbose", action="store_true", help="all tables of every target, however many")
    build.add_argument("-k", "--keep-going", action="store_true", help="go on with what a failure does not touch")
    until = "stop after this stage; check runs before all but import and optimize"
    build.add_argument("--until", type=_word, metavar="STAGE", help=until)
    check = _command(commands, "check", "report every refusal of the targets in seconds, without inference")
    _targets(check)
    _locking(check, writes=False)
    _running(check)


def _asking(commands: Any) -> None:
    plan = _command(commands, "plan", "list every task and whether it would run, with the reason")
    _targets(plan)
    plan.add_argument("--check", action="store_true", help="exit with 3 if anything would run")
    plan.add_argument("--until", type=_word, metavar="STAGE", help="only what this stage needs")
    plan.add_argument("--layers", action="store_true", help="instead what each layer is set to, and who decided")
    plan.add_argument(
        "--match", type=_word, metavar="PATTERN", help="of --layers those whose name, kind, role or operator type fits"
    )
    plan.add_argument("--graph", choices=("mermaid", "dot"), help="print the plan as a picture's source instead")
    explain = _command(commands, "explain", "show why tasks would run: each field's old and new value")
    _targets(explain)
    explain.add_argument("--stage", type=_word, metavar="STAGE", help="only this stage")
    status = _command(commands, "status", "show each target's last build, its gates and whether it is current")
    _targets(status)
    what_if = _command(
        commands,
        "what-if",
        "show what each tensor would lose to every method and number format, and what to mend, without inference",
    )
    what_if.set_defaults(run="what_if")
    _targets(what_if)
    what_if.add_argument("--tensor", type=_word, metavar="PATTERN", help="only tensors whose name fits")
    what_if.add_argument(
        "--sort", choices=SORTS, help="worst first by this figure, by name, or as in the graph (default: the method)"
    )
    what_if.add_argument("--strict", action="store_true", help="exit with 1 if there is a warning")
    listing = _command(commands, "list", "list recipes, platforms, presets and toolchains, or the layers of a target")
    listing.add_argument(
        "what", nargs="*", metavar="KIND", help="recipes, platforms, presets, toolchains; none: all; or layers TARGET"
    )


def _artifacts(commands: Any) -> None:
    new = _command(commands, "new", "write a commented recipe for an ONNX file")
    new.add_argument("model", metavar="MODEL.onnx", help="the model that it is for")
    new.add_argument("--name", type=_word, help="the recipe's name (default: the file's)")
    new.add_argument(
        "--platform", action="append", type=_word, metavar="NAME", help="platform, repeatable (default: generic)"
    )
    new.add_argument("--force", action="store_true", help="overwrite an existing recipe")
    run = _command(commands, "run", "feed images or arrays to a built artifact")
    run.add_argument("target", metavar="TARGET", help="a built target, or a package or bundle file")
    run.add_argument(
        "inputs",
        nargs="+",
        metavar="FILE",
        help="image, .npy or .npz (FILE.npz[3]: row 3 of a stack); NAME=FILE for several inputs",
    )
    run.add_argument("--out", type=_word, metavar="FILE.npz", help="write the outputs there")
    run.add_argument("--example", type=_row, metavar="N", help="row of array files that hold a stack, from 0")
    run.add_argument("--draw", type=_word, metavar="OUT.png", help="draw a detector's boxes into the picture")
    verify = _command(commands, "verify", "check every byte of a bundle and run it against its recorded outputs")
    verify.add_argument("bundle", metavar="BUNDLE", help="a bundle file, or a built target")
    _exporting(commands)


def _exporting(commands: Any) -> None:
    export = _command(commands, "export", "write what one who runs a vendor's SDK by hand needs of a built target")
    export.add_argument("target", type=_word, metavar="TARGET", help="a built target, or built as far as it takes")
    export.add_argument(
        "--format",
        choices=EXPORTS,
        required=True,
        help="encodings: quantisation overrides and their float model; qdq: the model with QuantizeLinear nodes; "
        "input-list: calibration samples as raw files; qairt-script: all of it and a script of the QAIRT SDK",
    )
    export.add_argument("--out", type=_word, metavar="DIR", help="where to (default: export/TARGET)")
    export.add_argument(
        "--encodings-version", choices=("0.6.1", "1.0.0"), default="1.0.0", help="form of the encodings (default 1.0.0)"
    )
    export.add_argument(
        "--converter", choices=("qairt", "qnn"), default="qairt", help="of the script: to a DLC, or to a model library"
    )
    export.add_argument(
        "--sdk-version",
        type=_word,
        metavar="VERSION",
        help="of the script: the SDK that it is for (default: that of QAIRT_SDK_ROOT, else the newest known)",
    )
    export.add_argument("--toolchain", type=_word, metavar="NAME", help="of the target, if not its platform's default")


def _housekeeping(commands: Any) -> None:
    _command(commands, "doctor", "show versions, CPU features, and which toolchains are usable and why not")
    cache = commands.add_parser("cache", help="look after the store", description="Look after the store.")
    actions = cache.add_subparsers(dest="action", metavar="ACTION", required=True)
    _command(actions, "info", "show the store's place and size").set_defaults(run="cache_info")
    gc = _command(actions, "gc", "remove what no build of this project needs, oldest first")
    gc.set_defaults(run="cache_gc")
    gc.add_argument("--max-size", metavar="SIZE", help="keep at most this much, e.g. 2GiB")
    gc.add_argument("--max-age", metavar="DAYS", type=_days, help="drop what no build used for so many days")
    gc.add_argument("--dry-run", action="store_true", help="only say what would go")
    _command(actions, "fsck", "hash every blob; damaged ones are dropped").set_defaults(run="cache_fsck")
    text = "print a shell completion script"
    completion = commands.add_parser("completion", help=text, description=f"{text.capitalize()}.")
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")
    completion.set_defaults(run="completion", json=False)
