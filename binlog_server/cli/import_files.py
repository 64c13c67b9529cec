"""`binlog-server import`: copies the groups of existing binlog files into a store."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.places import Where, archive_argument
from binlog_storage.classic.encryption import Keys
from binlog_storage.console.arguments import add_dry_run, add_json
from binlog_storage.console.output import counted, show_json
from binlog_storage.console.progress import Progress
from binlog_storage.disk.local_path import path_argument
from binlog_storage.intake.intake import (
    Intake,
    IntakeTarget,
    Taken,
    progress_text,
    taken_object,
)
from binlog_storage.intake.nothing_stored import NothingStored
from binlog_storage.intake.server_version import note_server_version
from binlog_storage.intake.source import IntakeSource

from binlog_server.cli.keys import archive_keys, binlog_keys
from binlog_server.cli.seed import add_store_options, looked_at, open_store
from binlog_server.settings.config import ConfigError
from binlog_server.store.given_source import source_of

_EPILOG = """
An empty store begins where the first file does, or behind the last group of which a purge has left a half. In a store
that has groups the files must have the place where it ends; what comes before that is passed over. So the same command
may be given again: after an interruption, or with later files. The server must be stopped. docs/seeding.md has all ways
to begin.

examples:
  binlog-server import --directory DIR /backup/mariadb-bin.0*
      traditional binlog files of MariaDB, in the order of their numbers
  binlog-server import --directory DIR --index /backup/mariadb-bin.index
      those that the index names
  binlog-server import --directory DIR /backup/mysql
      the .ibb files of that directory, of a stopped MariaDB 12.3 or of another store
  binlog-server import --directory DIR s3://bucket/path
      an archive there, or in a directory (docs/archive.md)
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "import",
        help="take the groups of existing binlog files into a store",
        description="Take the groups of existing binlog files into a store, exactly behind what it has.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store_options(parser)
    parser.add_argument("--index", type=path_argument, metavar="FILE", help="the index of a binlog")
    parser.add_argument(
        "paths",
        nargs="*",
        type=archive_argument,
        metavar="FILES|DIR|URL",
        help="binlog files, a folder of them, or an archive",
    )
    add_dry_run(parser)
    add_json(parser)
    parser.set_defaults(run=run, makes="binlog_directory")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`."""
    keys = binlog_keys(arguments.config, arguments.binlog_directory)
    for_archive = archive_keys(arguments.config, arguments.binlog_directory)
    source = _source(arguments.index, arguments.paths, keys, for_archive)
    try:
        if arguments.dry_run:
            with looked_at(arguments) as there:
                engine = NothingStored(None if there is None else there.engine)
                taken, seconds = take(engine, source, arguments.binlog_directory)
            position = engine.position
        else:
            directory = open_store(arguments)
            try:
                taken, seconds = take(directory.engine, source, directory.path)
                note_server_version(directory.state, source.server_version)
                position = directory.engine.binlog_state().position()
            finally:
                directory.close()
    finally:
        source.close()
    show_taken(arguments, taken, position, seconds)
    return 0


def _source(
    index: Path | None, paths: list[Where], keys: Keys | None, for_archive: ArchiveKeys
) -> IntakeSource:
    """The source of groups that the arguments name. Raises `ConfigError`, `StorageError`, `OSError`."""
    if (index is None) == (not paths):
        raise ConfigError(
            "give either binlog files, or a directory of .ibb files, an archive, or --index"
        )
    return source_of(paths, index, keys, for_archive)


def take(engine: IntakeTarget, source: IntakeSource, target: Path) -> tuple[Taken, float]:
    """Take the groups of a source, with its progress. Returns what was taken and the seconds. Raises `StorageError`.

    target: the directory of the engine.
    """
    with Progress("import") as progress:

        def shown(taken: Taken) -> None:
            text = partial(progress_text, taken, source, target)
            progress.show(source.bytes_read, source.size, text)

        return Intake(engine, source, shown).run(), progress.seconds


def show_taken(
    arguments: argparse.Namespace,
    taken: Taken,
    position: SlavePosition,
    seconds: float,
    prepared_xa: int | None = None,
) -> None:
    """Say what an intake has done, or would do, and the position behind it."""
    if arguments.json:
        more = {} if prepared_xa is None else {"prepared_xa": prepared_xa}
        show_json({**taken_object(taken, position, seconds), **more, "dry_run": arguments.dry_run})
        return
    for line in taken.notes:
        print(f"binlog-server: {line}", file=sys.stderr)
    print(_taken_summary(taken, seconds, would=arguments.dry_run))
    if prepared_xa:
        print(f"{prepared_xa} prepared XA transactions wait, as in {arguments.source}")
    print(f"the store {'would end' if arguments.dry_run else 'ends'} at '{position}'")


def _taken_summary(taken: Taken, seconds: float, *, would: bool) -> str:
    begins = "would begin" if would else "begins"
    begun = f"; the store {begins} at '{taken.began_at}'" if taken.began_at is not None else ""
    if not taken.groups:
        return f"nothing to do: the store has all groups of these files{begun}"
    mib = taken.size / (1 << 20)
    passed = f"; of those read, {taken.passed_over} were there already" if taken.passed_over else ""
    if would:
        return f"{counted(taken.groups, 'group')} would be stored, {mib:.1f} MiB{passed}{begun}"
    speed = f"{mib / max(seconds, 1e-3):.0f} MiB/s"
    return f"{counted(taken.groups, 'group')} stored, {mib:.1f} MiB in {seconds:.1f} s, {speed}{passed}{begun}"
