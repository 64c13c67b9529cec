"""The command line: `binlog-server COMMAND`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from binlog_storage.errors import StorageError

from binlog_server.cli import (
    backup,
    convert,
    demo,
    events,
    import_files,
    ls,
    seed,
    serve,
    user,
    verify,
)
from binlog_server.settings.config import ConfigError

EXIT_USAGE = 2
EXIT_FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 done, 1 failed, 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="binlog-server", description="A MariaDB replication server over a .ibb binlog store."
    )
    parser.add_argument(
        "--version", action="version", version=f"binlog-server {version('binlog-server')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (serve, user, demo, events, verify, ls, seed, import_files, convert, backup):
        command.add_to(commands)
    arguments = parser.parse_args(argv)
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


def _told(error: OSError) -> str:
    """An error of the operating system as text for a person: the file first, without the error number."""
    if error.filename is None or error.strerror is None:
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no {error.filename}"
    return f"{error.filename}: {error.strerror}"
