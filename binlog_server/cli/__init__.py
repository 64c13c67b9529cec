"""The command line: `binlog-server COMMAND`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import NoReturn

from binlog_storage.errors import StorageError

from binlog_server.cli import (
    backup,
    convert,
    demo,
    doctor,
    events,
    find,
    import_files,
    ls,
    monitoring,
    recover,
    seed,
    serve,
    user,
    verify,
)
from binlog_server.settings.config import ConfigError, did_you_mean

EXIT_USAGE = 2
EXIT_FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 done, 1 failed, 2 wrong usage."""
    whole, commands = parser()
    arguments, left = whole.parse_known_args(argv)
    if left:
        _refuse(commands[arguments.command], left)
    try:
        return int(arguments.run(arguments))
    except ConfigError as error:
        print(f"binlog-server: {error}", file=sys.stderr)
        return EXIT_USAGE
    except StorageError as error:
        print(f"binlog-server: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"binlog-server: {_told(error)}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_FAILED


def parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The command line, and that of each command."""
    parser = argparse.ArgumentParser(
        prog="binlog-server", description="A MariaDB replication server over a .ibb binlog store."
    )
    parser.add_argument(
        "--version", action="version", version=f"binlog-server {version('binlog-server')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    families = (serve, user, demo, events, find, verify, ls, seed, import_files, convert, backup)
    for command in (*families, recover, monitoring, doctor):
        command.add_to(commands)
    return parser, commands.choices


def _refuse(parser: argparse.ArgumentParser, left: Sequence[str]) -> NoReturn:
    """End with what a command does not know, and the option that was perhaps meant."""
    known = re.findall(r"--[a-z][a-z-]*", parser.format_help())
    meant = did_you_mean(left[0].partition("=")[0], known)
    parser.error(f"unrecognized arguments: {' '.join(left)}{meant}")


def _told(error: OSError) -> str:
    """An error of the operating system as text for a person: the file first, without the error number."""
    if error.filename is None or error.strerror is None:
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no {error.filename}"
    return f"{error.filename}: {error.strerror}"
