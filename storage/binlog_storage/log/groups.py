"""Groups of .ibb files without a server: in order, each once, whatever file boundaries they cross.

A group belongs to the file in which its commit record begins. Of files that follow one another a record may cross into
the next; the out-of-band data of a group may lie in any earlier file of the directory, whether that was asked for or
not. Nothing is written or locked, so this works beside a server; it sees what that has written out.

Ends are told apart: a torn tail (a record that is not whole at the end of the newest file, as a crash or a server at
work leaves it) ends the reading quietly and is told in `torn_tail`; everything else is `CorruptBinlog`.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import TYPE_OFFSET, event_time, split_pieces
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.disk.read_only_disk import ReadableDisk, ReadOnlyDisk
from binlog_storage.engine.backup import require_readable
from binlog_storage.errors import CorruptBinlog, NotAStore, TruncatedRecord
from binlog_storage.ibb.chunk import Position, Record, RecordType
from binlog_storage.ibb.file_names import file_name, file_number, no_files
from binlog_storage.ibb.page import PAGE_SIZE, is_zero
from binlog_storage.ibb.records import RecordReader, parsed
from binlog_storage.log.first_file import lost_files_of
from binlog_storage.log.group_reader import NO_LIST, began_in, group_pieces, read_head
from binlog_storage.log.halves import refers_back, whole_from
from binlog_storage.log.log_file import read_state
from binlog_storage.log.pages import OfflinePages
from binlog_storage.log.pending_redo import lost_end, published
from binlog_storage.log.survey import UNSYNCED_PAGES_MAX
from binlog_storage.log.whole_file import require_whole

IBB_MAGIC = bytes.fromhex("fefe0d01")
_INCIDENT = bytes((EventType.INCIDENT,))


@dataclass(frozen=True, slots=True)
class OfflineGroup:
    """One group, or a start marker or incident (`gtid` None), and where it is.

    Its bytes are read as they are asked for. `timestamp`: that of its first event, in seconds since 1970.
    """

    file: str
    place: Position
    gtid: Gtid | None
    timestamp: int
    _pieces: Iterable[bytes]

    @property
    def where(self) -> str:
        return f"{self.file}:{self.place.offset}"

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the group, in order. May be called once. Raises `CorruptBinlog`."""
        return iter(self._pieces)

    def events(self) -> Iterator[bytes]:
        """The events in normal form, one in memory at a time. May be called once. Raises `CorruptBinlog`."""
        try:
            yield from split_pieces(self._pieces)
        except ProtocolError as error:
            raise CorruptBinlog(*self.place, str(error)) from None

    def marker(self) -> FormatDescription | IncidentEvent:
        """The event without a GTID: a start marker's format description, or an incident. Raises `CorruptBinlog`."""
        event = b"".join(self._pieces)
        try:
            if event[TYPE_OFFSET : TYPE_OFFSET + 1] == _INCIDENT:
                return IncidentEvent.parse(event)
            return FormatDescription.parse(event)
        except ProtocolError as error:
            raise CorruptBinlog(*self.place, str(error)) from None


class OfflineBinlog:
    """Some .ibb files of one directory. One owner; `close` it."""

    def __init__(self, disk: ReadableDisk, numbers: Sequence[int] | None = None) -> None:
        """`numbers`: the files to read groups from; all by default."""
        self._disk = disk
        self._published = published(disk)
        self.pages = OfflinePages(disk)
        self.lost_files = lost_files_of(disk, self.pages.numbers)
        """The files missing in front of the first one that were not purged, in words."""
        self.torn_tail: CorruptBinlog | None = None
        self.halves: list[str] = []
        """The commits of groups that began in a file that has gone, as purge leaves them: places. They are left out."""
        self.is_all = numbers is None
        self._numbers = sorted(set(self.pages.numbers if numbers is None else numbers))

    @classmethod
    def of_directory(cls, directory: Path) -> OfflineBinlog:
        """All files of a store. Raises `NotAStore`, `BackupRefused`, `DiskError`."""
        disk = ReadOnlyDisk(directory)
        require_readable(disk, directory)
        binlog = cls(disk)
        if not binlog.pages.numbers:
            raise NotAStore(f"{directory} {no_files(disk.names())}")
        return binlog

    @classmethod
    def of_paths(cls, paths: Sequence[Path]) -> OfflineBinlog:
        """The binlog of a directory, or of files in one directory. Raises `NotAStore`, `DiskError`."""
        if len(paths) == 1 and not paths[0].is_file() and file_number(paths[0].name) is None:
            return cls.of_directory(paths[0])
        directories = {Path(os.path.realpath(path)).parent for path in paths}
        if len(directories) != 1:
            raise NotAStore(
                "give files of one directory: groups may refer to other files beside them"
            )
        numbers = []
        for path in paths:
            number = file_number(path.name)
            if number is None:
                raise NotAStore(
                    f"{path} is not named binlog-NNNNNN.ibb, so its number is not known"
                )
            numbers.append(number)
        return cls(ReadOnlyDisk(directories.pop()), numbers)

    def close(self) -> None:
        self.pages.close()

    def base_state(self, file_no: int) -> BinlogState | None:
        """The binlog state at the beginning of a file; None if the file has none. Raises `CorruptBinlog`."""
        entries = read_state(self.pages, file_no, 1)
        return None if entries is None else BinlogState(entries)

    def whole_from(self) -> tuple[BinlogState, Position]:
        """See `halves.whole_from`; of all files that have data, of which there must be some."""
        files = [number for number in self.pages.numbers if self.pages.has_data(number)]
        return whole_from(self.pages, files, Position(files[-1] + 1, PAGE_SIZE))

    def first_file(self, position: SlavePosition | None) -> int | None:
        """The newest of the files whose beginning lies before the position, the oldest for None; None if none does.

        None also if a half of a group lies behind the position: there would be a hole in what follows it.
        """
        if position is None:
            return next(filter(self.pages.has_data, self._numbers), None)
        for number in reversed(self._numbers):
            if not self.pages.has_data(number):
                continue
            state = self.base_state(number)
            if state is None and number == 0:
                state = BinlogState()
            if state is not None and state.is_before(position):
                if refers_back(self.pages, number, self.pages.numbers[0]):
                    whole, place = self.whole_from()
                    if number <= place.file_no and not whole.is_before(position):
                        return None
                return number
        return None

    @property
    def files(self) -> list[int]:
        """The files that have data, in their order."""
        return [number for number in self._numbers if self.pages.has_data(number)]

    def groups(self, first_file: int | None = None) -> Iterator[OfflineGroup]:
        """Groups and markers whose commit record begins in the files. Raises `CorruptBinlog`."""
        behind = None
        for first, last in self._runs(first_file):
            if self.is_all and behind is not None and self.pages.has_data(first):
                raise CorruptBinlog(
                    behind, 0, f"the file is missing, but there is {file_name(first)}"
                )
            end = yield from self._run(first, last)
            behind = last + 1
        if self.is_all and behind is not None and end is not None:
            self._require_end(end)

    def _require_end(self, end: Position) -> None:
        """Check the end of the data: no data may follow, and the published end must not lie behind it."""
        lost = lost_end(self._disk, self._published, end)
        if lost:
            raise CorruptBinlog(*end, lost)
        for page_no in range(end.page_no + 1, end.page_no + 1 + UNSYNCED_PAGES_MAX):
            page = self.pages.raw_page(end.file_no, page_no)
            if not page:
                break
            # A server at work may have written both pages since.
            if not is_zero(page) and is_zero(
                self.pages.raw_page(end.file_no, end.page_no)[end.in_page :]
            ):
                raise CorruptBinlog(
                    *end, f"the data end here, but page {page_no} of the file holds some"
                )

    def _runs(self, first_file: int | None) -> Iterator[tuple[int, int]]:
        """Files that follow one another, as (first, last)."""
        numbers = [n for n in self._numbers if first_file is None or n >= first_file]
        while numbers:
            count = 1
            while count < len(numbers) and numbers[count] == numbers[0] + count:
                count += 1
            yield numbers[0], numbers[count - 1]
            del numbers[:count]

    def _run(self, first: int, last: int) -> Generator[OfflineGroup, None, Position | None]:
        """Read consecutive files. Returns the end of the data; None if the files are empty."""
        if first not in self.pages.numbers:
            raise NotAStore(f"there is no {file_name(first)}")
        if not self.pages.has_data(first):
            return None
        begin, limit = Position(first, PAGE_SIZE), Position(last + 1, PAGE_SIZE)
        reader = RecordReader(self.pages, begin, limit, skip_partial=True)
        file_no = first
        while (record := self._next(reader)) is not None:
            for left in range(file_no, record.end.file_no):
                require_whole(self.pages, left)
            file_no = record.end.file_no
            if record.type == RecordType.COMMIT:
                if (gone := began_in(record)) is not None and gone < self.pages.numbers[0]:
                    self.halves.append(f"{file_name(record.start.file_no)}:{record.start.offset}")
                    continue
                yield self._group(record)
        return reader.position

    def _next(self, reader: RecordReader) -> Record | None:
        try:
            return reader.next()
        except TruncatedRecord as error:
            # At the end of a file in the middle, or of one that was cut, something is missing.
            newest = self.pages.newest
            header = self.pages.header(newest)
            whole = header is not None and self.pages.size(newest) >= header.pages * PAGE_SIZE
            if not whole or self.pages.numbers[-1] > newest + 1:
                raise
            self.torn_tail = error
            return None

    def _group(self, record: Record) -> OfflineGroup:
        if record.data[:1] == NO_LIST:  # the common case
            payload = record.data[1:]
            gtid = parsed(group_gtid, payload, record.start)
            name = file_name(record.start.file_no)
            return OfflineGroup(name, record.start, gtid, event_time(payload), (payload,))
        head = read_head(self.pages, record)
        return OfflineGroup(
            file_name(record.start.file_no),
            record.start,
            head.gtid,
            head.timestamp,
            group_pieces(self.pages, record),
        )
