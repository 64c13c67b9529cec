"""`binlog-server ls`: lists the files of a store of either format, with their GTIDs and times."""

from __future__ import annotations

import argparse
import contextlib
import datetime
from collections.abc import Sequence
from typing import Any

from binlog_storage.classic.summary import summarize_files
from binlog_storage.console.arguments import add_json
from binlog_storage.console.output import show_json, show_table
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.log.summary import FileState, FileSummary, GroupEnd, summarize

from binlog_server.cli.given_store import add_store, given_store
from binlog_server.cli.keys import add_key_options, binlog_keys

_EPILOG = """
The times are those of the first and last group, in UTC. States: closed (it has a successor), last (being written, if a
server runs), empty (made ahead), damaged (the reason follows; `verify` tells more). A few pages are read of each .ibb
file, and the end of a traditional one that has a GTID index beside it; without one all of it.
"""
_HEAD = ("FILE", "SIZE", "STATE", "FIRST GTID", "FIRST TIME", "LAST GTID", "LAST TIME")


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "ls",
        help="list the files of a store, with GTIDs and times",
        description="List the files of a binlog directory with sizes, first and last GTID, times and state.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store(parser)
    add_json(parser, "one array with an object for each file")
    add_key_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code: 1 if a file is damaged. Raises `ConfigError`, `StorageError`."""
    files = _files(arguments)
    if arguments.json:
        show_json([_object(file) for file in files])
    else:
        show_table(_HEAD, list(map(_row, files)), right={1})
    return 1 if any(file.state is FileState.DAMAGED for file in files) else 0


def _files(arguments: argparse.Namespace) -> list[FileSummary]:
    directory, base = given_store(arguments.directory)
    if base is not None:
        keys = binlog_keys(arguments.config, directory)
        return list(summarize_files(ReadOnlyDisk(directory), base, keys))
    with contextlib.closing(OfflineBinlog.of_directory(directory)) as binlog:
        return [summarize(binlog, number) for number in binlog.pages.numbers]


def _object(file: FileSummary) -> dict[str, object]:
    return {
        "file": file.name,
        "size": file.size,
        "state": file.state.value,
        "damage": file.damage or None,
        **_end_object("first", file.first),
        **_end_object("last", file.last),
        "base_state": None if file.base_state is None else str(file.base_state),
    }


def _end_object(name: str, end: GroupEnd | None) -> dict[str, object]:
    return {
        f"{name}_gtid": None if end is None else str(end.gtid),
        f"{name}_time": None if end is None else _time(end, "T") + "Z",
    }


def _row(file: FileSummary) -> Sequence[str]:
    ends = [
        text
        for end in (file.first, file.last)
        for text in (("-", "-") if end is None else (str(end.gtid), _time(end, " ")))
    ]
    state = file.state.value + (f": {file.damage}" if file.damage else "")
    return (file.name, str(file.size), state, *ends)


def _time(end: GroupEnd, between: str) -> str:
    moment = datetime.datetime.fromtimestamp(end.timestamp, datetime.UTC)
    return moment.strftime(f"%Y-%m-%d{between}%H:%M:%S")
