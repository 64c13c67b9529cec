"""`binlog-server seed`: lets an empty store begin at the GTID position of a dump or a backup."""

from __future__ import annotations

import argparse
from typing import Any

from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.disk.local_path import path_argument
from binlog_storage.engine import EngineAdmin
from binlog_storage.errors import NotAStore

from binlog_server.cli.seed_backup import backup_position
from binlog_server.cli.seed_dump import dump_position
from binlog_server.settings import config as configuration
from binlog_server.settings.config import ConfigError
from binlog_server.store.store_directory import StoreDirectory

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
    parser.set_defaults(run=run)


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
    overrides = {"binlog_directory": arguments.binlog_directory}
    config = configuration.load(arguments.config, overrides)
    return StoreDirectory.of(config)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`."""
    state, found = _wanted(arguments)
    for line in found:
        print(line)
    if not len(state):
        raise NotAStore("the position is empty: a store begins there by itself")
    directory = open_store(arguments)
    try:
        changed = _begin_at(directory.engine, state)
    finally:
        directory.close()
    said = "begins" if changed else "was already"
    print(f"the store {said} at gtid_slave_pos '{state.position()}'")
    return 0


def _begin_at(engine: EngineAdmin, state: BinlogState) -> bool:
    """Set the state of an empty store. False if the store has that state already.

    Raises `NotAStore` if the store is not empty.
    """
    there = engine.binlog_state()
    if there == state or there.position() == state.position():
        return False
    if len(there):
        raise NotAStore(
            f"the store is at '{there.position()}' already: a position is given to an empty store only. Give another "
            "--directory; or start the server, and say RESET MASTER, which deletes all that is stored"
        )
    engine.reset(state)
    return True


def _wanted(arguments: argparse.Namespace) -> tuple[BinlogState, list[str]]:
    """The binlog state to begin with, and lines that tell its source. Raises `ConfigError`, `NotAStore`."""
    try:
        if arguments.gtid_slave_pos is not None:
            return BinlogState(SlavePosition.parse(arguments.gtid_slave_pos)), []
        if arguments.gtid_binlog_state is not None:
            return BinlogState.parse(arguments.gtid_binlog_state), []
        if arguments.from_dump is not None:
            position, where = dump_position(arguments.from_dump)
        else:
            position, where = backup_position(arguments.from_backup)
    except ServerError as error:
        raise ConfigError(str(error)) from None
    return BinlogState(position), [where]
