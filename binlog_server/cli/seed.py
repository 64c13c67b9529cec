"""`binlog-server seed`: lets an empty store begin at the GTID position of a dump or a backup."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import BinlogState
from binlog_storage.console.arguments import add_dry_run, add_json, gtid_position
from binlog_storage.console.output import show_json
from binlog_storage.disk.local_path import path_argument
from binlog_storage.errors import NotAStore

from binlog_server.cli.seed_backup import backup_position
from binlog_server.cli.seed_dump import dump_position
from binlog_server.settings import config as configuration
from binlog_server.settings.config import Config, ConfigError
from binlog_server.store.store_directory import StoreDirectory, gone_on_in, has_no_store

_EPILOG = """
Groups up to that position are not in the store then: give replicas of this server the dump or backup, too. The server
must be stopped. The same by SQL, while it runs: SET GLOBAL gtid_slave_pos = '...' before the first START SLAVE.
docs/seeding.md has all ways to begin.
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "seed",
        help="begin an empty store at the position of a dump or backup",
        description="Let an empty store begin at a position, so that an upstream is followed from there.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store_options(parser)
    sources = parser.add_mutually_exclusive_group(required=True)
    sources.add_argument(
        "--from-dump",
        type=path_argument,
        metavar="FILE",
        help="what mariadb-dump --master-data --gtid has written, also compressed by gzip",
    )
    sources.add_argument(
        "--from-backup", type=path_argument, metavar="DIR", help="what mariadb-backup has written"
    )
    sources.add_argument("--gtid-slave-pos", metavar="GTIDS", help="such as 0-1-4711,3-2-15")
    sources.add_argument(
        "--gtid-binlog-state", metavar="GTIDS", help="the master's, with all its servers"
    )
    add_dry_run(parser)
    add_json(parser)
    parser.set_defaults(run=run, makes="binlog_directory")


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a store and say how to open it."""
    parser.add_argument(
        "--directory", dest="binlog_directory", metavar="DIR", help="the store; made if missing"
    )
    parser.add_argument(
        "--config",
        type=path_argument,
        metavar="FILE.toml",
        help="the server's: sizes of the store's files, key file of encrypted ones",
    )


def open_store(arguments: argparse.Namespace) -> StoreDirectory:
    """Open the store of these options. Raises `ConfigError`, `StorageError`; `StoreInUse` while a server runs."""
    return StoreDirectory.of(_config(arguments))


@contextlib.contextmanager
def looked_at(arguments: argparse.Namespace) -> Iterator[StoreDirectory | None]:
    """The store of these options as it lies, for a dry run; None if there is none yet. Raises as `open_store`."""
    config = _config(arguments)
    path = gone_on_in(config.binlog_directory)
    if has_no_store(path):
        yield None
        return
    config = dataclasses.replace(config, innodb_read_only=True)
    with contextlib.closing(StoreDirectory.of(config, background=False, to_serve=True)) as there:
        yield there


def _config(arguments: argparse.Namespace) -> Config:
    overrides = {"binlog_directory": arguments.binlog_directory}
    return configuration.load(arguments.config, overrides)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`."""
    state, where = _wanted(arguments)
    if where and not arguments.json:
        print(where)
    if not len(state):
        raise NotAStore("the position is empty: a store begins there by itself")
    if arguments.dry_run:
        with looked_at(arguments) as there:
            changes = there is None or _is_to_begin(there.engine.binlog_state(), state)
    else:
        directory = open_store(arguments)
        try:
            changes = _is_to_begin(directory.engine.binlog_state(), state)
            if changes:
                directory.engine.reset(state)
        finally:
            directory.close()
    if arguments.json:
        show_json(
            {
                "position": str(state.position()),
                "found": where,
                "changed": changes,
                "dry_run": arguments.dry_run,
            }
        )
        return 0
    begins = "would begin" if arguments.dry_run else "begins"
    said = begins if changes else "was already"
    print(f"the store {said} at gtid_slave_pos '{state.position()}'")
    return 0


def _is_to_begin(there: BinlogState, state: BinlogState) -> bool:
    """Whether a store at `there` is to be given the state; False if it has it already.

    Raises `NotAStore` if the store is not empty.
    """
    if there == state or there.position() == state.position():
        return False
    if len(there):
        raise NotAStore(
            f"the store is at '{there.position()}' already: a position is given to an empty store only. Give another "
            "--directory; or start the server, and say RESET MASTER, which deletes all that is stored"
        )
    return True


def _wanted(arguments: argparse.Namespace) -> tuple[BinlogState, str | None]:
    """The binlog state to begin with, and the place of a file where it was found. Raises `ConfigError`, `NotAStore`."""
    try:
        if arguments.gtid_slave_pos is not None:
            return BinlogState(gtid_position(arguments.gtid_slave_pos)), None
        if arguments.gtid_binlog_state is not None:
            return BinlogState.parse(arguments.gtid_binlog_state), None
        if arguments.from_dump is not None:
            position, where = dump_position(arguments.from_dump)
        else:
            position, where = backup_position(arguments.from_backup)
    except (ServerError, ValueError) as error:
        raise ConfigError(str(error)) from None
    return BinlogState(position), where
