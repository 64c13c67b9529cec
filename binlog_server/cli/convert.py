"""`binlog-server convert`: makes a store of the other format, with all groups and facts of the first."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from binlog_storage.classic.encryption import Keys
from binlog_storage.console.arguments import add_dry_run, add_json
from binlog_storage.console.output import counted, show_json
from binlog_storage.console.progress import Progress
from binlog_storage.convert.compare import Compared, compare
from binlog_storage.convert.for_mariadb import copy_files
from binlog_storage.convert.stores import store_source, take_rest
from binlog_storage.convert.tables import first_difference, require_convertible
from binlog_storage.disk.local_path import path_argument
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.disk.state import STATE_NAME
from binlog_storage.errors import NotAStore
from binlog_storage.ibb.file_names import LOCK_NAME, file_number
from binlog_storage.intake.ibb_files import IbbFiles
from binlog_storage.intake.nothing_stored import NothingStored
from binlog_storage.intake.server_version import UPSTREAM_VERSION_KEY, note_server_version
from binlog_storage.intake.source import StoreSource
from binlog_storage.log.pending_redo import PendingRedo
from binlog_storage.tables.facts import OfflineFacts
from binlog_storage.verify.verify import Finding, Verifier

from binlog_server.cli.import_files import show_taken, take
from binlog_server.cli.keys import binlog_keys
from binlog_server.settings import config as configuration
from binlog_server.settings.config import Config, ConfigError
from binlog_server.settings.engine_limits import INNODB
from binlog_server.store.conversion import take_facts, wanted_of, without_limits
from binlog_server.store.store_directory import StoreDirectory, gone_on_in, has_no_store, open_state
from binlog_server.tables.held import FIRST_TABLE

_EPILOG = """
Of traditional binlog files an .ibb store is made, and of an .ibb store traditional files; SOURCE is left as it is. Both
servers must be stopped. Groups, their order and events, start markers, prepared XA transactions and the state where the
binlog begins stay; and accounts, leases and upstreams, where SOURCE is ours. After an interruption, also by kill -9,
the same command goes on. No server opens TARGET before it is whole. docs/convert.md has all of it.

examples:
  binlog-server convert /var/lib/mysql /srv/new              the binlog of a MariaDB; or give its index file
  binlog-server convert /srv/store /srv/old --log-bin m-bin  back: m-bin.000001 ...
  binlog-server convert --verify-only /srv/store /srv/old    compare them, group by group
  binlog-server convert --for-mariadb /srv/store /srv/out    .ibb files that a MariaDB 12.3 may go on in
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "convert",
        help="make a store of the other format: traditional files, or .ibb files",
        description="Make a store of the other format, with all that is in the first.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "source", type=path_argument, metavar="SOURCE", help="the store that is read"
    )
    parser.add_argument(
        "target",
        type=path_argument,
        metavar="TARGET",
        help="the store of the other format: made, or gone on with",
    )
    parser.add_argument(
        "--log-bin", metavar="NAME", help="base name of the traditional files that are made"
    )
    parser.add_argument(
        "--config",
        type=path_argument,
        metavar="FILE.toml",
        help="of the server of TARGET: sizes of its files, server_id; key file of encrypted binlog files, of both",
    )
    parser.add_argument(
        "--online",
        action="store_true",
        help="take the groups while the server of SOURCE runs; without it, once it is stopped, the rest",
    )
    parser.add_argument(
        "--verify-only", action="store_true", help="only compare TARGET with SOURCE"
    )
    parser.add_argument(
        "--for-mariadb",
        action="store_true",
        help="make .ibb files of an .ibb store that a MariaDB 12.3 may take for its own: docs/hand-over.md",
    )
    parser.add_argument(
        "--without-tables",
        action="store_true",
        help="leave out the tables that SOURCE holds (local_tables)",
    )
    add_dry_run(parser)
    add_json(parser)
    parser.set_defaults(run=run, makes="target")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`, `OSError`."""
    source_path, target_path = arguments.source, arguments.target
    if os.path.realpath(source_path) == os.path.realpath(target_path):
        raise ConfigError("SOURCE and TARGET are the same")
    for path in (source_path, target_path):
        if (moved := gone_on_in(path)) != path:
            raise NotAStore(f"the store of {path} has gone on in {moved}: give that")
    keys = binlog_keys(arguments.config, target_path)
    if arguments.online:
        if arguments.verify_only or arguments.for_mariadb:
            raise ConfigError("--online is for the first runs of a conversion")
        with contextlib.closing(store_source(source_path, running=True, keys=keys)) as source:
            _convert(source, None, arguments)
        return 0
    with (
        _held(source_path, keys) as facts,
        contextlib.closing(store_source(source_path, keys=keys)) as source,
    ):
        _require_closed(source_path)
        if arguments.verify_only:
            with _held(target_path, keys) as there:
                _require_closed(target_path)
                with contextlib.closing(store_source(target_path, keys=keys)) as target:
                    found = _compare(source, target)
                of_tables = ""
                if facts is not None and there is not None and not arguments.without_tables:
                    of_tables = (
                        first_difference(facts.tables, there.tables) if found.is_same else ""
                    )
                return _verdict(found, of_tables, source.notes, as_json=arguments.json)
        if arguments.for_mariadb:
            tables = facts.other_tables if facts is not None else ()
            if any(number >= FIRST_TABLE for number in tables) and not arguments.without_tables:
                raise NotAStore(
                    f"{source_path} holds tables (local_tables), and a MariaDB does not take their rows. Drop them "
                    "first, or leave them out by --without-tables"
                )
            return _hand_over(source, arguments)
        if facts is not None and not arguments.without_tables:
            require_convertible(facts.tables)
        _convert(source, facts, arguments)
    return 0


@contextlib.contextmanager
def _held(path: Path, keys: Keys | None) -> Iterator[OfflineFacts | None]:
    """The facts of a store of ours, and its lock; None for a MariaDB's, where nothing is locked or made."""
    directory = path.parent if path.is_file() else path
    if {STATE_NAME, LOCK_NAME}.isdisjoint(ReadOnlyDisk(directory).names()):
        yield None
        return
    facts, disk = open_state(directory, keys)
    with contextlib.closing(disk):
        yield facts


def _require_closed(path: Path) -> None:
    """Of an `.ibb` store its redo log may have what its files lack; traditional files have all groups."""
    if not path.is_dir():
        return
    disk = ReadOnlyDisk(path)
    redo = PendingRedo.of(disk)
    if redo.damage:
        raise NotAStore(f"the redo log of {path} is damaged: {redo.damage}")
    if redo.count and any(file_number(name) is not None for name in disk.names()):
        raise NotAStore(
            f"{path} was not closed in an orderly way: the last {redo.count} steps of its redo log may be missing in "
            "its files. Start its server, stop it, and give this command again"
        )


def _convert(
    source: StoreSource, facts: OfflineFacts | None, arguments: argparse.Namespace
) -> None:
    config = _config(source, facts, arguments)
    if arguments.dry_run:
        _would_convert(source, config, arguments)
        return
    directory = StoreDirectory.of(config, converting=True)
    try:
        taken, seconds = take(directory.engine, source, directory.path)
        waiting = 0
        if arguments.online:
            taken.notes = [
                "TARGET is not whole: stop the server of SOURCE, and give this without --online"
            ]
        elif taken.is_beyond:
            taken.notes.append(
                f"{arguments.target} has groups behind the end of {arguments.source}: its facts and prepared XA "
                "transactions are left as they are"
            )
        else:
            tables = directory.table_engine
            rows = None
            if facts is not None and tables is not None and not arguments.without_tables:
                rows = facts.tables, tables
            waiting = take_rest(directory.engine, source, rows)
            if facts is None:
                note_server_version(directory.state, source.server_version)
            else:
                take_facts(facts.items(""), arguments.source, directory)
        if not arguments.online:
            directory.converted()
        position = directory.engine.binlog_state().position()
    finally:
        directory.close()
    show_taken(arguments, taken, position, seconds, waiting)


def _would_convert(source: StoreSource, config: Config, arguments: argparse.Namespace) -> None:
    """Read all of the source, and look at what is in the target."""
    if has_no_store(arguments.target):
        engine = NothingStored(None)
        taken, seconds = take(engine, source, arguments.target)
    else:
        config = dataclasses.replace(config, innodb_read_only=True)
        there = StoreDirectory.of(config, background=False, to_serve=True, converting=True)
        with contextlib.closing(there):
            engine = NothingStored(there.engine)
            taken, seconds = take(engine, source, arguments.target)
    waiting = len(source.prepared())
    show_taken(arguments, taken, engine.position, seconds, waiting)


def _config(
    source: StoreSource, facts: OfflineFacts | None, arguments: argparse.Namespace
) -> Config:
    """That of the target. Nothing is purged meanwhile."""
    options = wanted_of(source, arguments.target, arguments.log_bin)
    try:
        config = configuration.load(arguments.config, options)
    except ConfigError:
        if arguments.config is None or options["binlog_storage_engine"] != INNODB:
            raise
        configuration.load(arguments.config, {"binlog_directory": arguments.target})
        raise ConfigError(
            f"{arguments.config} is of a server with traditional files, and .ibb files are made: give that of TARGET's "
            "server, without binlog_storage_engine, log_bin and encrypt_binlog; the key file for SOURCE may stay"
        ) from None
    if facts is not None and (version := facts.get(UPSTREAM_VERSION_KEY)):
        return without_limits(config, server_version=version)  # of those who wrote the events
    return without_limits(config)


def _hand_over(source: StoreSource, arguments: argparse.Namespace) -> int:
    """Files for a MariaDB 12.3. Returns the exit code."""
    if not isinstance(source, IbbFiles):
        raise ConfigError(
            f"{arguments.source} has traditional binlog files: a MariaDB takes them as they are. docs/hand-over.md"
        )
    if waiting := source.prepared():
        raise NotAStore(
            f"{len(waiting)} prepared XA transactions wait ({waiting[0].xid.sql()} ...), which a MariaDB would roll "
            "back: XA COMMIT or XA ROLLBACK them first"
        )
    with Progress("verify") as progress:

        def report(finding: Finding) -> None:
            progress.end()
            print(finding, file=sys.stderr, flush=True)

        totals = Verifier(ReadOnlyDisk(arguments.source), report, progress.show).run()
    if totals.errors:
        raise NotAStore(f"{arguments.source} is damaged: nothing was copied")
    with Progress("copy") as progress:
        files, copied = copy_files(
            arguments.source, arguments.target, progress.show, dry_run=arguments.dry_run
        )
    if arguments.json:
        told = {"files": files, "groups": totals.groups, "copied": copied}
        show_json({**told, "dry_run": arguments.dry_run})
    else:
        would = "would be copied" if arguments.dry_run else "copied now"
        print(
            f"{counted(files, 'file')}, {counted(totals.groups, 'group')}, start LSN 0; {copied} of them {would}"
        )
    return 0


def _compare(source: StoreSource, target: StoreSource) -> Compared:
    with Progress("compare") as progress:

        def shown(done: Compared) -> None:
            progress.show(source.bytes_read, source.size, lambda: counted(done.groups, "group"))

        return compare(source, target, shown)


def _verdict(found: Compared, of_tables: str, notes: list[str], *, as_json: bool) -> int:
    """Say what a comparison has found. Returns the exit code."""
    code = 0 if found.is_same and not of_tables else 1
    if as_json:
        told = {
            "same": not code,
            "groups": found.groups,
            "bytes": found.size,
            "start_markers": found.markers,
            "prepared_xa": found.prepared,
            "difference": str(found.difference) if found.difference else None,
            "missing_from": str(found.missing) if found.missing else None,
            "more_from": str(found.more) if found.more else None,
            "tables": of_tables or None,
            "notes": notes,
        }
        show_json(told)
        return code
    for note in notes:
        print(f"binlog-server: {note}", file=sys.stderr)
    same = (
        f"{counted(found.groups, 'group')}, {found.size / (1 << 20):.1f} MiB, "
        f"{counted(found.markers, 'start marker')}"
    )
    if found.prepared:
        same += f", {counted(found.prepared, 'prepared XA transaction')}"
    if found.difference:
        print(f"different: {found.difference}")
    elif found.missing:
        print(f"not whole: TARGET has {same}, and lacks what follows from {found.missing} on")
    elif found.more:
        print(f"the same: {same}; TARGET goes on with {found.more}")
    else:
        print(f"the same: {same}")
    if of_tables:
        print(f"different tables: {of_tables}; give convert again, unless TARGET was served since")
    return code
