"""`binlog-server find`: the GTIDs in front of and behind a time, a GTID, or what was done to a table."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.dump.target import seconds_of, utc_text
from binlog_protocol.errors import ProtocolError, ServerError
from binlog_protocol.groups.group_facts import OPERATIONS, GroupFacts, is_about, read_facts
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_protocol.sql.statements import TableName
from binlog_storage.archive.archive import is_archive
from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.group_files import (
    GroupFile,
    RememberedFacts,
    SeenInFile,
    archive_files,
    ibb_files,
    key_of,
)
from binlog_storage.archive.places import Where
from binlog_storage.classic.binlog import read_head
from binlog_storage.classic.encryption import Keys, given_to_read
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.console.arguments import (
    add_json,
    gtid_position,
    number_argument,
    size_of,
    table_name,
)
from binlog_storage.console.output import show_json_line, shown
from binlog_storage.disk.local_path import local_path, path_argument
from binlog_storage.errors import StorageError
from binlog_storage.log.groups import OfflineBinlog, OfflineGroup

from binlog_server.cli.events import are_traditional, require_ibb, traditional_files
from binlog_server.cli.keys import add_key_options, archive_keys, binlog_keys
from binlog_server.cli.servers import (
    add_login_options,
    history_argument,
    server_info,
    sole_server,
)
from binlog_server.relay.server_history import ServerHistory
from binlog_server.settings.config import ConfigError
from binlog_server.upstreams.master_info import MasterInfo

_EPILOG: Final = """
examples:
  binlog-server find /var/lib/binlog --at '2026-11-20T09:00:00Z'
      where that time is: the GTID position in front of it, and the first group of then or later
  binlog-server find /var/lib/binlog --table shop.orders --op drop
      who dropped the table; "before" is the position to recover to
  binlog-server find s3://bucket/main --larger-than 1G --json
  binlog-server find DIR --gtid 0-1-4711

A STORE is a directory of either format, binlog files, or an archive, which a server may be writing; or a server, ours
or a MariaDB: mariadb://USER@HOST:PORT, which is read as a replica does (REPLICATION SLAVE). Times are local, as
those of mariadb-binlog; with Z they are UTC. --index keeps in a folder what was seen in files that are closed: later
calls read only files that may have what is wanted. It may be deleted at any time. docs/point-in-time.md has more.
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "find",
        help="find groups by time, GTID, table, statement or size",
        description="Find groups in binlog files, and the GTID positions in front of and behind each.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("paths", nargs="+", type=history_argument, metavar="STORE", help="where to look: see below")
    add("--at", metavar="TIME", help="the first group of then or later, as the log has them")
    add("--gtid", metavar="GTID", help="the group with this GTID")
    add("--table", metavar="[DB.]TABLE", help="groups about this table")
    add("--op", choices=OPERATIONS, help="groups that do this; with --table to that table")
    add("--larger-than", metavar="SIZE", help="groups of more bytes, such as 100M")
    add("--limit", type=number_argument(1), metavar="N", help="no more than so many")
    add_json(parser, "a line with an object for each group")
    add("--index", type=path_argument, metavar="DIR", help="a folder of this store's own")
    add_key_options(parser)
    add_login_options(parser)
    parser.set_defaults(run=run, makes="index")


class GroupFound(NamedTuple):
    """A group, and the GTID positions in front of it and behind it."""

    group: OfflineGroup
    facts: GroupFacts
    before: str
    behind: str

    def as_json(self) -> dict[str, Any]:
        tables: dict[str, list[str]] = {}
        for name, done in sorted(self.facts.tables):
            tables.setdefault(str(name), []).append(done)
        return {
            "file": self.group.file,
            "offset": self.group.place.offset,
            "gtid": str(self.group.gtid),
            "before": self.before,
            "behind": self.behind,
            "time": utc_text(self.group.timestamp),
            "size": self.facts.size,
            "statement": self.facts.statement,
            "tables": tables,
        }

    def as_text(self) -> str:
        return (
            f"{utc_text(self.group.timestamp)}  {self.group.gtid}  {self.facts.size} bytes, in {self.group.where}\n"
            f"    {shown(self.facts.statement or 'no statement')}\n"
            f"    before: '{self.before}'\n    behind: '{self.behind}'"
        )


@dataclass(frozen=True, slots=True)
class FindOptions:
    """What is looked for: all that is not None."""

    time: float | None = None
    gtid: Gtid | None = None
    table: TableName | None = None
    operation: str | None = None
    larger_than: int | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> FindOptions:
        """Raises `ConfigError`."""
        others = (arguments.table, arguments.op, arguments.larger_than)
        modes = [arguments.at is not None, arguments.gtid is not None, others != (None,) * 3]
        if sum(modes) != 1:
            raise ConfigError("give --at, or --gtid, or some of --table, --op and --larger-than")
        try:
            return cls(
                None if arguments.at is None else seconds_of(arguments.at.strip(), None),
                None if arguments.gtid is None else _gtid(arguments.gtid),
                None if arguments.table is None else TableName(*table_name(arguments.table)),
                arguments.op,
                None if arguments.larger_than is None else _size(arguments.larger_than),
            )
        except (ValueError, ServerError) as error:
            raise ConfigError(str(error)) from None

    @property
    def is_one(self) -> bool:
        """Whether the first that is found is the only one."""
        return self.time is not None or self.gtid is not None

    def may_be_in(self, facts: SeenInFile) -> bool:
        if self.time is not None:
            return facts.latest >= self.time
        if self.larger_than is not None and facts.largest <= self.larger_than:
            return False
        return self.gtid is not None or facts.may_have(self.table, self.operation)

    def is_candidate(self, group: OfflineGroup) -> bool:
        """Whether more than its head must be read to tell."""
        if self.time is not None:
            return group.timestamp >= self.time
        return self.gtid is None or group.gtid == self.gtid

    def is_it(self, group: OfflineGroup, facts: GroupFacts) -> bool:
        if self.time is not None:
            return group.timestamp >= self.time
        if self.gtid is not None:
            return group.gtid == self.gtid
        if self.larger_than is not None and facts.size <= self.larger_than:
            return False
        if self.table is None and self.operation is None:
            return True
        return facts.is_cut or is_about(facts.tables, self.table, self.operation)


class Search:
    """Looks through files, in their order. `state` is the binlog state at the end of what was looked at."""

    def __init__(self, files: list[GroupFile], remembered: RememberedFacts) -> None:
        self._files = files
        self._remembered = remembered
        self.state = BinlogState()
        self.passed_over = 0
        """Files of which it was known that nothing wanted is in them."""

    @property
    def begins_at(self) -> BinlogState:
        """The binlog state in front of all files: what was purged, or never here."""
        return (self._files[0].base or BinlogState()) if self._files else BinlogState()

    def of(self, wanted: FindOptions) -> Iterator[GroupFound]:
        """Raises `StorageError`, `ProtocolError`."""
        self._remembered.keep_only(self._files)
        for file in self._files if wanted.gtid is None else self._likely_first(wanted.gtid):
            if file.base is not None:
                self.state = file.base.copy()
            known = self._remembered.get(file)
            has_state_behind = file is not self._files[-1]
            if known is not None and not wanted.may_be_in(known) and has_state_behind:
                self.passed_over += 1
                continue
            yield from self._in_file(file, wanted, known)

    def _likely_first(self, gtid: Gtid) -> list[GroupFile]:
        """First the file in which it is by the states between files; it may be in another where numbers went back."""

        def has(base: BinlogState | None) -> bool:
            seq_no = None if base is None else base.get(gtid.domain_id, gtid.server_id)
            return seq_no is not None and seq_no >= gtid.seq_no

        if not self._files:
            return []
        bases = [file.base for file in self._files]
        ends = [has(base) for base in bases[1:]] + [True]
        likely = [not has(base) and end for base, end in zip(bases, ends, strict=True)]
        order = sorted(range(len(bases)), key=lambda i: not likely[i])
        return [self._files[i] for i in order]

    def _in_file(
        self, file: GroupFile, wanted: FindOptions, known: SeenInFile | None
    ) -> Iterator[GroupFound]:
        seen = SeenInFile()
        reads_all = known is None and self._remembered.takes(file)
        for group in file.groups():
            if group.gtid is None:
                continue
            if reads_all or wanted.is_candidate(group):
                facts = read_facts(group.events())
                seen.add(group.timestamp, facts)
                if wanted.is_it(group, facts):
                    before = str(self.state.position())
                    self.state.update(group.gtid)
                    yield GroupFound(group, facts, before, str(self.state.position()))
                    continue
            self.state.update(group.gtid)
        if reads_all:
            self._remembered.put(file, seen)


class FoundFiles(NamedTuple):
    """Files of one store, and the binlog state in front of them."""

    files: list[GroupFile]
    begin: BinlogState


def group_files(
    paths: list[Where],
    stack: contextlib.ExitStack,
    keys: Keys | None = None,
    for_archive: ArchiveKeys | None = None,
    *,
    server: Callable[[str], MasterInfo],
    only_whole: bool = False,
) -> FoundFiles:
    """The files that paths name. What they need stays open as long as the stack. Raises `StorageError`, `OSError`.

    Args:
        keys: of encrypted traditional files.
        for_archive: as for `Archive.open`.
        server: of a URL.
        only_whole: begin behind groups of which a purge has left a half.
    """
    if (url := sole_server(paths)) is not None:
        history = ServerHistory(server(url))
        stack.callback(history.close)
        return _from_first([history.file()])
    if len(paths) == 1 and is_archive(paths[0]):
        return _from_first(archive_files(paths[0], for_archive))
    given = [local_path(path) for path in paths]
    local = traditional_files(given)
    if are_traditional(local):
        if local is not given:
            _require_no_gap(local, keys)
        last = local[-1]
        return _from_first([_traditional(path, keys, closed=path != last) for path in local])
    for path in local:
        require_ibb(path)
    binlog = OfflineBinlog.of_paths(local)
    stack.callback(binlog.close)
    folder = local[0] if local[0].is_dir() else local[0].parent
    if only_whole and binlog.files:
        state, place = binlog.whole_from()
        if binlog.files[0] <= place.file_no:
            return FoundFiles(ibb_files(binlog, folder, place), state)
    return _from_first(ibb_files(binlog, folder))


def _from_first(files: list[GroupFile]) -> FoundFiles:
    return FoundFiles(files, (files[0].base if files else None) or BinlogState())


def _require_no_gap(paths: list[Path], keys: Keys | None) -> None:
    """Where numbers are left out, the file in front is read: what follows must begin where it ends.

    Raises `DamagedBinlog` where a file is missing.
    """
    for path, following in pairwise(paths):
        numbers = path.suffix[1:], following.suffix[1:]
        if all(map(str.isdecimal, numbers)) and int(numbers[0]) + 1 == int(numbers[1]):
            continue
        for group in classic_groups([path, following], keys=keys, is_all=True):
            if group.file == following.name:
                break  # it was looked at by now


def _traditional(path: Path, keys: Keys | None, *, closed: bool) -> GroupFile:
    base = read_head(path, given_to_read(keys, path)).state
    key = key_of(path, base) if closed else ""
    return GroupFile(path.name, base, key, lambda: classic_groups([path], keys=keys))


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code: 1 if nothing was found. Raises `ConfigError`, `StorageError`."""
    wanted = FindOptions.of(arguments)
    with contextlib.ExitStack() as stack:
        keys = binlog_keys(arguments.config, ".")
        for_archive = archive_keys(arguments.config, ".", arguments.index)
        found_files = group_files(
            arguments.paths,
            stack,
            keys,
            for_archive,
            server=partial(server_info, arguments=arguments),
        )
        search = Search(found_files.files, RememberedFacts(arguments.index))
        count = 0
        try:
            for found in search.of(wanted):
                _require_certain(wanted, found, search)
                if arguments.json:
                    show_json_line(found.as_json())
                else:
                    print(found.as_text())
                count += 1
                if wanted.is_one or count == arguments.limit:
                    break
        except ProtocolError as error:
            raise StorageError(str(error)) from None
        if not count:
            print(f"binlog-server: {_nothing(wanted, search)}", file=sys.stderr)
        return 0 if count else 1


def _require_certain(wanted: FindOptions, found: GroupFound, search: Search) -> None:
    """The first group that is left need not have been the first of that time."""
    base = search.begins_at
    if wanted.time is not None and len(base) and found.before == str(base.position()):
        raise StorageError(
            f"the files begin behind '{base.position()}', with {found.group.gtid} of "
            f"{utc_text(found.group.timestamp)}: nobody knows what was purged of {utc_text(wanted.time)}"
        )


def _nothing(wanted: FindOptions, search: Search) -> str:
    end = f"the files end at '{search.state.position()}'"
    if wanted.time is not None:
        return f"there is no group of {utc_text(wanted.time)} or later: {end}"
    return "there is no such group" if wanted.gtid is not None else f"there is no such group; {end}"


def _size(text: str) -> int:
    """Raises `ValueError`."""
    try:
        return size_of(text)
    except ValueError as error:
        raise ValueError(f"--larger-than: {error}") from None


def _gtid(text: str) -> Gtid:
    """Raises `ValueError`."""
    position = gtid_position(text)
    if len(position) != 1:
        raise ValueError(f"--gtid {text}: one GTID, please")
    return next(iter(position))
