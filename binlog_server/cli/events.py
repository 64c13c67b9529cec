"""`binlog-server events`: the groups of binlog files, or of a server, as SQL that `mariadb` applies, or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

from binlog_protocol.dump.dump_position import DumpFilter, Verdict
from binlog_protocol.errors import ProtocolError, ServerError
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.debezium_form import DebeziumForm, DebeziumOptions
from binlog_protocol.event_text.json_form import JsonForm
from binlog_protocol.event_text.sql_form import SqlForm
from binlog_protocol.gtid import U32_MAX, BinlogState, Gtid, SlavePosition
from binlog_storage.archive.places import Where, store_argument
from binlog_storage.classic.binlog import read_head
from binlog_storage.classic.directory import bases
from binlog_storage.classic.encryption import Keys, given_to_read
from binlog_storage.classic.event_reader import CLASSIC_MAGIC
from binlog_storage.classic.file_list import of_index
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.console.arguments import (
    add_json,
    gtid_position,
    number_argument,
    table_argument,
    time_argument,
)
from binlog_storage.console.message_options import add_message_options, message_options
from binlog_storage.disk.given_files import open_given
from binlog_storage.disk.local_path import path_argument
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine.backup import require_readable
from binlog_storage.errors import NotAStore, PositionPurged, StorageError
from binlog_storage.ibb.file_names import file_numbers
from binlog_storage.log.groups import IBB_MAGIC, OfflineBinlog, OfflineGroup

from binlog_server.cli.keys import add_key_options, binlog_keys
from binlog_server.cli.servers import add_login_options, is_server, server_info, sole_server
from binlog_server.relay.server_history import ServerHistory
from binlog_server.settings.config import ConfigError

_LATEST: Final = "latest"

_EXAMPLES = """
examples:
  binlog-server events /var/lib/binlog
      everything in the store, as SQL; `-v` adds the rows, decoded, as comments
  binlog-server events /var/lib/binlog --start-position 0-1-4711 | mariadb
      give a server what came after that GTID, under the same GTIDs
  binlog-server events DIR --stop-datetime '2026-11-20T10:00:00Z' | mariadb
      point-in-time recovery
  binlog-server events DIR --table shop.orders --json | jq 'select(.rows)'
      every change of one table
  binlog-server events binlog-000007.ibb binlog-000008.ibb
      the groups that begin in these files; what they refer to is read from files beside them
  binlog-server events master-bin.000001
      traditional binlog files are read too
  binlog-server events mariadb://repl@db1:3306 --password-file pw --follow --start-position latest --json
      every change of a running server, from now on
  binlog-server events DIR --debezium --topic-prefix shop --mask-column 'shop.users.e*mail' | jq .value.after
      the messages that Debezium's connector for MariaDB would send

positions are GTID lists, as of a replica: behind --start-position 0-1-5,1-2-7 domains 0 and 1 begin after these GTIDs
and other domains at their beginning; with --stop-position only the domains in it are shown, up to and with its GTIDs.
Groups are shown whole. Times are local, as those of mariadb-binlog; with Z they are UTC. A running server may be
writing the directory: what it has not written out yet is not seen.

mariadb://USER@HOST:PORT is a running server, ours or a MariaDB, which is read as a replica does (REPLICATION SLAVE): up
to where its binlog ended when this began, or for ever with --follow. A connection that is lost between two groups is
made again, and no group is shown twice. If it is lost inside a large group, of which a part was shown, that is an
error: begin again behind the GTID in front of it.
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "events",
        help="show the events of binlog files, or of a server, as SQL or JSON",
        description="Show the events of a binlog directory, of binlog files, or of a running server, each once.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    what = "binlog files of either format, or a store; or a server: mariadb://USER@HOST:PORT"
    add("paths", nargs="+", type=_path_or_server, metavar="FILES|DIR|SERVER", help=what)
    add("--follow", action="store_true", help="of a server: go on with what comes")
    after = "show what comes after these GTIDs; of a server also 'latest': what comes from now on"
    add("--start-position", metavar="GTIDS", help=after)
    add("--stop-position", metavar="GTIDS", help="show up to and with these GTIDs")
    when: dict[str, Any] = {"type": time_argument, "metavar": "TIME"}
    add("--start-datetime", **when, help="show groups from then on: '2026-11-20 10:00:00'")
    add("--stop-datetime", **when, help="stop at the first group of then or later")
    _add_choices(parser)
    add(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="rows as comments; -vv with column names and types",
    )
    add_json(parser, "a line with an object for each event, rows decoded")
    add(
        "--debezium",
        action="store_true",
        help="a line with an object for each change message in Debezium's form: topic, key, value, headers",
    )
    add("-s", "--short-form", action="store_true", help="SQL without the comments about each event")
    add(
        "--local-load",
        type=path_argument,
        metavar="DIR",
        help="where the files of LOAD DATA statements are put",
    )
    add_message_options(parser, path_argument)
    add_key_options(parser)
    add_login_options(parser)
    parser.set_defaults(run=run, makes="local_load")


def _add_choices(parser: argparse.ArgumentParser) -> None:
    add, number = parser.add_argument, number_argument(0, U32_MAX)
    add(
        "--domain",
        type=number,
        action="append",
        default=[],
        metavar="ID",
        help="only this domain; repeatable",
    )
    add(
        "--server-id",
        type=number,
        action="append",
        default=[],
        metavar="ID",
        help="only groups of this server",
    )
    add(
        "--database",
        action="append",
        default=[],
        metavar="NAME",
        help="only rows in, and statements run with it",
    )
    add(
        "--table",
        type=table_argument,
        action="append",
        default=[],
        metavar="[DB.]TABLE",
        help="only rows of it, and no statements",
    )


def _path_or_server(text: str) -> Where:
    return text if is_server(text) else store_argument(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`."""
    with contextlib.ExitStack() as stack:
        history = _history(arguments, stack)
        try:
            selection = GroupSelection(arguments, None if history is None else history.end)
        except (ValueError, ServerError) as error:
            raise ConfigError(str(error)) from None
        source: _Source
        if history is None:
            keys = binlog_keys(arguments.config, ".")
            source = _Files(arguments.paths, selection.position, keys)
            stack.callback(source.close)
        else:
            source = _Server(history, selection.position, follows=arguments.follow)
        try:
            _write(arguments, selection, source)
            sys.stdout.flush()
        except ProtocolError as error:
            raise StorageError(str(error)) from None
        for line in (*source.notes(), *selection.notes(source.name)):
            _tell(line)
    return 0


def _tell(line: str) -> None:
    print(f"binlog-server: {line}", file=sys.stderr, flush=True)


def _history(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> ServerHistory | None:
    """The binlog of the server that was given; None for files. Raises `ConfigError`, `ServerUnreadable`."""
    url = sole_server(arguments.paths)
    if url is None:
        if arguments.follow:
            raise ConfigError("--follow is for a server: mariadb://USER@HOST:PORT")
        return None
    history = ServerHistory(server_info(url, arguments))
    stack.callback(history.close)
    return history


def _write(arguments: argparse.Namespace, selection: GroupSelection, source: _Source) -> None:
    output = sys.stdout.buffer
    pieces = _pieces(arguments, selection.of(source))
    for of_group in pieces:
        output.writelines(of_group)
        if arguments.follow:
            output.flush()


def _pieces(
    arguments: argparse.Namespace, groups: Iterable[OfflineGroup]
) -> Iterator[Iterable[bytes]]:
    """What is written: for each group, and in front of all and behind them."""
    choice = Choice(frozenset(arguments.database), frozenset(arguments.table))
    if arguments.debezium:
        yield from _messages(choice, _message_options(arguments), groups)
    elif arguments.json:
        yield from _objects(JsonForm(choice), groups)
    else:
        files = None if arguments.local_load is None else _LoadFiles(arguments.local_load)
        script = SqlForm(
            choice, verbose=arguments.verbose, comments=not arguments.short_form, save_file=files
        )
        yield (script.head(),)
        for group in groups:
            if group.gtid is None:
                yield script.marker(group.marker(), group.where)
            else:
                yield script.group(group.events(), group.where)
        yield (script.tail(),)


def _objects(form: JsonForm, groups: Iterable[OfflineGroup]) -> Iterator[Iterator[bytes]]:
    for group in groups:
        found = (
            iter([form.marker(group.marker())])
            if group.gtid is None
            else form.group(group.events())
        )
        place = {"file": group.file, "offset": group.place.offset}
        yield (_line({**place, **item}) for item in found)


def _messages(
    choice: Choice, options: DebeziumOptions, groups: Iterable[OfflineGroup]
) -> Iterator[Iterator[bytes]]:
    form = DebeziumForm(choice, options, time.time, version("binlog-server"))
    for group in groups:
        if group.gtid is not None:
            messages = form.group(group.events(), group.file, group.place.offset)
            yield (_line(message._asdict()) for message in messages)


def _message_options(arguments: argparse.Namespace) -> DebeziumOptions:
    try:
        return message_options(arguments)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from None


def _line(item: dict[str, Any]) -> bytes:
    text = json.dumps(item, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace") + b"\n"


class _LoadFiles:
    """Keeps the files of LOAD DATA statements; the script names them by their absolute paths."""

    def __init__(self, directory: Path) -> None:
        if "'" in str(directory) or "\\" in str(directory):
            raise ConfigError(
                f"--local-load {directory}: a path without quotes and backslashes, please"
            )
        self._directory = Path(os.path.realpath(directory))
        self._directory.mkdir(parents=True, exist_ok=True)
        self._count = 0

    def __call__(self, file_id: int, data: bytes, first: bool) -> bytes:
        """Append a piece to a file, or begin the file with it (`first`). Returns its absolute path in bytes."""
        if first:
            self._count += 1
        path = self._directory / f"load-{os.getpid()}-{self._count}-{file_id}"
        with path.open("xb" if first else "ab") as file:
            file.write(data)
        return os.fsencode(path)


def traditional_files(paths: list[Path]) -> list[Path]:
    """The files of a directory that has a traditional binlog; else the same paths. Raises `BackupRefused`."""
    if len(paths) == 1 and paths[0].is_dir():
        disk = ReadOnlyDisk(paths[0])
        require_readable(disk, paths[0])
        names = disk.names()
        if not file_numbers(names) and len(found := bases(names)) == 1:
            return of_index(paths[0] / f"{found[0]}.index")
    return paths


class _Source(Protocol):
    """Groups in their order.

    Attributes:
        name: for people.
        state: the binlog state in front of the first.
    """

    name: str
    state: BinlogState
    groups: Iterator[OfflineGroup]

    def notes(self) -> Iterable[str]:
        """Remarks for the end of the output."""


class _Server:
    """The groups of a running server, behind the start position."""

    def __init__(
        self, history: ServerHistory, position: SlavePosition | None, *, follows: bool
    ) -> None:
        position = history.begin if position is None else position
        self.name = f"the binlog of {history.name}"
        self.state = BinlogState(position)
        self.groups = history.follow(position, _tell) if follows else history.groups(position)

    def notes(self) -> Iterable[str]:
        return ()


class _Files:
    """The groups of binlog files, from the file on in which the start position lies."""

    def __init__(
        self, paths: list[Path], position: SlavePosition | None, keys: Keys | None
    ) -> None:
        self.name = "these files"
        self._binlog: OfflineBinlog | None = None
        self._notes: list[str] = []
        self.state = BinlogState()
        given, paths = paths, traditional_files(paths)
        if are_traditional(paths):
            self.state = begin = read_head(paths[0], given_to_read(keys, paths[0])).state
            if position is not None and not begin.is_before(position):
                raise _no_reach(position)
            self.groups = classic_groups(paths, self._notes, keys, is_all=paths is not given)
            return
        for path in paths:
            require_ibb(path)
        self._binlog = OfflineBinlog.of_paths(paths)
        try:
            self._begin(self._binlog, position)
        except BaseException:
            self.close()
            raise

    def _begin(self, binlog: OfflineBinlog, position: SlavePosition | None) -> None:
        if position is None and binlog.is_all and binlog.lost_files:
            raise PositionPurged(
                f"{binlog.lost_files}; name the files, or a --start-position, to read what is left"
            )
        first = binlog.first_file(position)
        if first is None and position is not None and binlog.first_file(None) is not None:
            raise _no_reach(position)
        if first is not None:
            self.state = binlog.base_state(first) or BinlogState()
        self.groups = binlog.groups(first)

    def notes(self) -> Iterator[str]:
        """Remarks for the end of the output: torn tails, and halves of groups that were left out."""
        yield from self._notes
        if self._binlog is not None and self._binlog.torn_tail is not None:
            yield f"the last record is not whole and was left out: {self._binlog.torn_tail}"
        if self._binlog is not None and self._binlog.halves:
            yield f"groups that began in files that were purged were left out: {', '.join(self._binlog.halves)}"

    def close(self) -> None:
        if self._binlog is not None:
            self._binlog.close()


def _no_reach(position: SlavePosition) -> PositionPurged:
    return PositionPurged(f"the files do not reach back to {position}")


def _magic(path: Path) -> bytes:
    with open_given(path) as file:
        return file.read(4)


def are_traditional(paths: Sequence[Path]) -> bool:
    """Whether all of them are traditional binlog files. Raises `OSError`."""
    return all(path.is_file() and _magic(path) == CLASSIC_MAGIC for path in paths)


def require_ibb(path: Path) -> None:
    """Raises `NotAStore` for a file that is no `.ibb` file, and for what is not there."""
    if not path.exists():
        raise NotAStore(f"there is no {path}")
    if not path.is_file():
        return
    magic = _magic(path)
    if not magic:
        raise NotAStore(f"{path} is empty")
    if magic == bytes(4):
        raise NotAStore(f"{path} is an empty pre-allocated binlog: it contains no data yet")
    if magic != IBB_MAGIC:
        raise NotAStore(
            f"{path} is no binlog file of either kind, or they are mixed: it begins {magic.hex(' ')}"
        )


class GroupSelection:
    """The groups that the options choose, by GTID and time."""

    def __init__(self, arguments: argparse.Namespace, end: BinlogState | None = None) -> None:
        """Read the options. Raises `ValueError` or `ServerError` for a bad value. `end`: of a server, `latest`."""
        latest = end is not None and arguments.start_position == _LATEST
        self.position = end.position() if end and latest else _position(arguments.start_position)
        self._until = _position(arguments.stop_position)
        self._start_time = arguments.start_datetime
        self._stop_time = arguments.stop_datetime
        self._domains = frozenset(arguments.domain)
        self._servers = frozenset(arguments.server_id)
        self._reached: BinlogState | None = None

    def of(self, source: _Source) -> Iterator[OfflineGroup]:
        """The chosen groups of a source, in their order. Raises `StorageError`, `ProtocolError`."""
        state = self._reached = source.state.copy()
        dump = DumpFilter(self.position or SlavePosition(), state_at_start=state, until=self._until)
        while not dump.until_reached and (group := next(source.groups, None)) is not None:
            if group.gtid is None:
                if (
                    dump.send_marker()
                    and not self._domains
                    and not self._servers
                    and self._start_time is None
                ):
                    yield group
                continue
            state.update(group.gtid)
            if dump.decide(group.gtid) is not Verdict.SEND or not self._has_origin(group.gtid):
                continue
            if self._stop_time is not None and group.timestamp >= self._stop_time:
                return
            if self._start_time is None or group.timestamp >= self._start_time:
                yield group

    def notes(self, where: str) -> Iterator[str]:
        """Remarks for the end of the output: GTIDs of start and stop positions that were not in what was read."""
        state = self._reached or BinlogState()
        for name, wanted in (("--start-position", self.position), ("--stop-position", self._until)):
            for gtid in wanted or ():
                seen = state.get(gtid.domain_id, gtid.server_id)
                if seen is None or seen < gtid.seq_no:
                    yield f"{name} {gtid} is not in {where}"

    def _has_origin(self, gtid: Gtid) -> bool:
        if self._domains and gtid.domain_id not in self._domains:
            return False
        return not self._servers or gtid.server_id in self._servers


def _position(text: str | None) -> SlavePosition | None:
    return None if text is None else gtid_position(text)
