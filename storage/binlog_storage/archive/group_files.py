"""Files of groups, whichever store has them, to be looked through one by one; and what was found in each, remembered.

A *group file* is a file of a store or a part of an archive. What is remembered of one that is closed (`SeenInFile`) is
in a file of its own in a folder that the caller names. It can be made again: one that is missing, damaged or of a file
that has changed since costs the time to read that file, no more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.groups.group_facts import FACTS_MAX, GroupFacts, TableFact, is_about
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_protocol.sql.statements import TableName

from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.files import ArchiveFiles
from binlog_storage.archive.places import Where
from binlog_storage.disk.durable_files import replace_file
from binlog_storage.disk.given_files import read_given
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name
from binlog_storage.intake.source import FileStart, SourceGroup
from binlog_storage.log.file_times import group_time
from binlog_storage.log.groups import OfflineBinlog, OfflineGroup

_FORMAT: Final = 2  # 1 did not know views, nor what OR REPLACE takes away
_REMEMBERED_BYTES_MAX: Final = 16 << 20


@dataclass(slots=True)
class SeenInFile:
    """What is known of all groups of a file: how many, the latest time, the largest size; tables, None for any."""

    groups: int = 0
    latest: int = 0
    largest: int = 0
    tables: set[TableFact] | None = field(default_factory=set)

    def add(self, time: int, facts: GroupFacts) -> None:
        """A group."""
        self.groups += 1
        self.latest = max(self.latest, time)
        self.largest = max(self.largest, facts.size)
        if self.tables is not None:
            self.tables |= facts.tables
        if self.tables is not None and (facts.is_cut or len(self.tables) > FACTS_MAX):
            self.tables = None

    def may_have(self, table: TableName | None, operation: str | None) -> bool:
        """Whether a group of it may be about them."""
        return self.tables is None or is_about(self.tables, table, operation)

    def build(self, key: str) -> bytes:
        """As it is kept. `key`: of the file."""
        tables = (
            None if self.tables is None else sorted([*name, done] for name, done in self.tables)
        )
        body = [_FORMAT, key, self.groups, self.latest, self.largest, tables]
        return json.dumps(body).encode()

    @classmethod
    def parse(cls, data: bytes, key: str) -> SeenInFile | None:
        """None: it is damaged, or of another file."""
        try:
            found, of, groups, latest, largest, tables = json.loads(data)
            if found != _FORMAT or of != key:
                return None
            named = None if tables is None else {(TableName(a, b), done) for a, b, done in tables}
            return cls(int(groups), int(latest), int(largest), named)
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class GroupFile:
    """One file: its name, the binlog state in front of it (None: that behind the file before), its groups.

    key: changes with its content; empty for the file that is being written.
    behind: gives the groups behind a position, where that is known without reading those in front of it.
    """

    name: str
    base: BinlogState | None
    key: str
    groups: Callable[[], Iterator[OfflineGroup]]
    behind: Callable[[SlavePosition], Iterator[OfflineGroup]] | None = None


class FileMemory:
    """What is remembered of files that are closed, each in a file of a folder. Without a folder nothing is.

    suffix: of the names of those files: one folder may have several kinds.
    """

    def __init__(self, folder: Path | None, suffix: str) -> None:
        self._folder = folder
        self._suffix = suffix
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> bytes | None:
        """None: the file must be read."""
        if self._folder is None or not key:
            return None
        try:
            return read_given(self._path(self._folder, key), _REMEMBERED_BYTES_MAX)
        except OSError:
            return None

    def takes(self, key: str) -> bool:
        """Whether what is found in the file with that key would be remembered."""
        return self._folder is not None and bool(key)

    def put(self, key: str, data: bytes) -> None:
        """Remember it. A folder that cannot be written costs the next one time."""
        if self._folder is not None and key:
            with contextlib.suppress(OSError):
                replace_file(self._path(self._folder, key), data)

    def keep_only(self, keys: Iterable[str]) -> None:
        """Forget files that are there no more."""
        if self._folder is not None:
            kept = {self._path(self._folder, key).name for key in keys if key}
            for path in self._folder.glob(f"*{self._suffix}"):
                if path.name not in kept:
                    with contextlib.suppress(OSError):
                        path.unlink()

    def _path(self, folder: Path, key: str) -> Path:
        return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{self._suffix}"


class RememberedFacts:
    """Facts of files, in a folder. Without one nothing is remembered."""

    def __init__(self, folder: Path | None) -> None:
        self._memory = FileMemory(folder, ".facts.json")

    def get(self, file: GroupFile) -> SeenInFile | None:
        """None: it must be read."""
        data = self._memory.get(file.key)
        return None if data is None else SeenInFile.parse(data, file.key)

    def takes(self, file: GroupFile) -> bool:
        """Whether what is found in that file would be remembered."""
        return self._memory.takes(file.key)

    def put(self, file: GroupFile, facts: SeenInFile) -> None:
        """Remember it."""
        self._memory.put(file.key, facts.build(file.key))

    def keep_only(self, files: Sequence[GroupFile]) -> None:
        """Forget files that are there no more."""
        self._memory.keep_only(file.key for file in files)


def ibb_files(
    binlog: OfflineBinlog, folder: Path, begin: Position | None = None
) -> list[GroupFile]:
    """Those of an `.ibb` store, which stays open. `begin`: groups in front of it are left out."""

    def groups(number: int) -> Iterator[OfflineGroup]:
        for group in binlog.groups(number):
            if group.place.file_no != number:
                return
            if begin is None or group.place >= begin:
                yield group

    found = []
    for number in binlog.files:
        base = binlog.base_state(number)
        path = folder / file_name(number)
        key = "" if number == binlog.files[-1] else key_of(path, base)
        if key and begin is not None and begin.file_no == number:
            key += f" from {begin.offset}"
        found.append(GroupFile(path.name, base, key, partial(groups, number)))
    return found


def key_of(path: Path, base: BinlogState | None) -> str:
    """The key of a file that is closed."""
    stat = path.stat()
    return f"{os.path.realpath(path)} {stat.st_size} {stat.st_mtime_ns} {base}"


def archive_files(where: Where, keys: ArchiveKeys | None = None) -> list[GroupFile]:
    """The parts of an archive. None of them changes. Raises as `ArchiveFiles`, whose `keys` these are."""
    files = ArchiveFiles(where, keys=keys)
    return [
        GroupFile(
            one.part.name,
            one.before.copy(),
            f"{one.part.sha256} {one.before}",
            partial(_part_groups, files, number, one.part.name),
        )
        for number, one in enumerate(files.placed)
    ]


def _part_groups(files: ArchiveFiles, number: int, name: str) -> Iterator[OfflineGroup]:
    begun = False
    for item in files.items(number):
        if isinstance(item, FileStart):
            if begun:
                return
            begun = True
        elif isinstance(item, GroupRun):
            for i in range(len(item)):
                payload = item.payload(i)
                place = Position(number, 0)
                yield OfflineGroup(name, place, item.gtid(i), group_time(payload), [payload])
        else:
            yield from _single(item, Position(number, item.offset), name)


def _single(item: SourceGroup, place: Position, name: str) -> Iterator[OfflineGroup]:
    rest = item.rest if item.rest is not None else iter(())
    pieces = (piece for part in ((item.payload,), rest) for piece in part)
    yield OfflineGroup(name, place, item.gtid, group_time(item.payload), pieces)
    for _ in pieces:  # what nobody has looked at comes before the next group
        pass
