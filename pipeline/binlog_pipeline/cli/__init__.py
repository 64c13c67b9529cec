"""The command line: `binlog-spark COMMAND SOURCE`.

A command is a module here: its docstring's first line says what it does, `add_arguments` declares what it takes, `run`
does it and returns the exit code. Nothing heavy is imported before `run`, so `--help` needs neither pyspark nor
pyarrow, and is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_storage.errors import StorageError

from binlog_pipeline.errors import BadOption, PipelineError

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
COMMANDS: Final = (
    "stats",
    "export",
    "archive",
    "replay",
    "state",
    "stream",
    "lag",
    "schema",
    "verify",
    "package",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. 0 done, 1 failed, 2 wrong usage."""
    arguments = parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except BadOption as error:
        return _complaint(error, EXIT_USAGE)
    except BrokenPipeError:  # who reads our output has gone, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except (PipelineError, StorageError, ProtocolError, OSError) as error:
        return _complaint(error, EXIT_FAILED)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        package = {"py4j": "pyspark"}.get(package, package)  # which brings it
        extra = "spark" if package == "pyspark" else "jobs"
        needed = f"{package} is needed for that: pip install '.[{extra}]'"
        return _complaint(needed, EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_FAILED


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="binlog-spark",
        description="MariaDB's binlog as data: statistics, typed Parquet, archives, state tables.",
    )
    parser.add_argument(
        "--version", action="version", version=f"binlog-spark {version('binlog-server')}"
    )
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
    return parser


def _uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]


def _complaint(error: object, code: int) -> int:
    """Print an error in one line, whatever its text. Returns `code`."""
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"binlog-spark: {text}", file=sys.stderr)
    return code
