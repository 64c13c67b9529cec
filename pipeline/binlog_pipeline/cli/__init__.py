"""The command line: `binlog-spark COMMAND SOURCE`.

A command is a module here: its docstring's first line says what it does, `add_arguments` declares what it takes, `run`
does it and returns the exit code. Nothing heavy is imported before `run`, so `--help` needs neither pyspark nor
pyarrow, and is quick.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from binlog_storage.console.arguments import add_version, parse, target_of
from binlog_storage.console.running import (
    EXIT_FAILED,
    EXIT_USAGE,
    end_by,
    not_interrupted,
    run_command,
    run_program,
)
from binlog_storage.disk.local_path import room_at

from binlog_pipeline.errors import BadOption, PipelineError

COMMANDS: Final = (
    "stats",
    "export",
    "archive",
    "replay",
    "load",
    "state",
    "stream",
    "publish",
    "lag",
    "schema",
    "verify",
    "package",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. 0 done, 1 failed, 2 wrong usage."""
    code = run_program("binlog-spark", lambda: _run(argv))
    return end_by(code) if argv is None else code


def _run(argv: Sequence[str] | None) -> int:
    with not_interrupted():
        whole, commands = parser()
    arguments = parse(whole, commands, argv)
    errors: dict[type[Exception], int] = {BadOption: EXIT_USAGE, PipelineError: EXIT_FAILED}
    target = target_of(arguments)
    return run_command(
        "binlog-spark", lambda: int(arguments.run(arguments)), errors, target, room_at
    )


def parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The command line, and that of each command."""
    parser = argparse.ArgumentParser(
        prog="binlog-spark",
        description="MariaDB's binlog as data: statistics, typed Parquet, archives, state tables.",
    )
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = import_module(f"{__name__}.{name}")
        about, _, details = (module.__doc__ or "").partition("\n")
        command = commands.add_parser(
            name,
            help=_uncapitalized(about.rstrip(".")),
            description=about,
            epilog=details.strip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser, commands.choices


def _uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]
