"""Command line room: shell completion, made from the parser itself by shtab."""

from __future__ import annotations

import argparse


def run_completion(arguments: argparse.Namespace) -> int:
    """``npubake completion bash``: put its output where the shell looks, e.g. ``eval "$(npubake completion bash)"``."""
    import shtab

    from npubake.cli.parser import build_parser

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return 0
