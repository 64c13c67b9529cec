"""A directory of .ibb files as a source of groups: a stopped MariaDB 12.3's, a copy of one, or another store of ours.

What is only in the redo log of its owner is not seen: the files are read as they are. A record that is not whole at
their end is left out. They begin behind the groups of which a purge has left a half, as for a replica of that store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import HEADER_SIZE, EventHeader
from binlog_protocol.groups.group_check import check_groups, checked_pieces
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.errors import CorruptBinlog, NotAStore, TruncatedRecord
from binlog_storage.ibb import xa
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.commit import OobList
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader, parsed
from binlog_storage.ibb.xa import Xid
from binlog_storage.intake.source import FileStart, Item, PreparedTransaction, SourceGroup
from binlog_storage.log.group_reader import list_pieces
from binlog_storage.log.groups import OfflineBinlog, OfflineGroup
from binlog_storage.log.log_file import base_state_from_outside
from binlog_storage.log.pending_redo import PendingRedo, published

PIECE_BYTES: Final = 1 << 20


class IbbFiles:
    """See `binlog_storage.intake.source.StoreSource`. Nothing in the directory is made, locked or written."""

    def __init__(self, directory: Path, *, running: bool = False) -> None:
        """`running`: a server of ours may be writing it: up to what that has told to be durable now.

        Raises `NotAStore`, `CorruptBinlog`, `DiskError`.
        """
        self._directory = directory
        self._limit: Position | None = None
        if running:
            told = published(ReadOnlyDisk(directory))
            if told is None:
                raise NotAStore(
                    f"{directory} does not tell how far it is durable: no server runs there"
                )
            self._limit = told.end
        self._binlog = OfflineBinlog.of_paths([directory])
        pages = self._binlog.pages
        try:
            self._numbers = [number for number in pages.numbers if pages.has_data(number)]
            if not self._numbers:
                raise NotAStore(f"the .ibb files of {directory} hold nothing yet")
            self._sizes = [pages.size(number) for number in self._numbers]
        except BaseException:
            self.close()
            raise
        self._reading = (self._numbers[0], 0)
        self.server_version = ""
        self.notes: list[str] = []
        self.lost_files = self._binlog.lost_files

    @property
    def names(self) -> tuple[str, str]:
        return self.name(0), self.name(-1)

    @cached_property
    def _oldest(self) -> tuple[BinlogState, Position]:
        """Groups in front of it cannot be had, or are followed by a hole."""
        return self._binlog.whole_from()

    def base(self, number: int) -> BinlogState:
        oldest, place = self._oldest
        if self._numbers[number] <= place.file_no:
            return oldest
        return base_state_from_outside(self._binlog.pages, self._numbers[number])

    def file_before(self, position: SlavePosition) -> int | None:
        found = self._binlog.first_file(position)
        return None if found is None else self._numbers.index(found)

    def items(self, number: int) -> Iterator[Item]:
        """See `IntakeSource`. That no file is missing is told by their numbers: behind the first one only those have a
        `FileStart` in which domains are forgotten.
        """
        borders = _Borders(self, number)
        yield FileStart(self.name(number), self.base(number))
        oldest, begin = self._oldest
        for group in self._binlog.groups(self._numbers[number]):
            if self._limit is not None and group.place >= self._limit:
                return
            self._reading = (group.place.file_no, group.place.offset)
            yield from borders.up_to(self._numbers.index(group.place.file_no, borders.number))
            if group.gtid is None:
                marker = b"".join(group.pieces())
                description = parsed(FormatDescription.parse, marker, group.place)
                self.server_version = description.server_version
                if group.place >= begin:
                    yield self._item(group, marker)
            elif group.place >= begin:
                item = self._group(group)
                yield item
                for _ in item.rest or ():
                    pass
                borders.note(group.gtid)
        if self._limit is not None:
            return
        yield from borders.up_to(len(self._numbers) - 1)
        if number == 0 and self._binlog.halves:
            self.notes.append(
                f"groups up to '{oldest}' cannot be had from these files: a purge has left halves of some"
            )
        self._note_end()

    def _group(self, group: OfflineGroup) -> SourceGroup:
        pieces = group.pieces()
        begin = bytearray()
        try:
            for piece in pieces:
                begin += piece
                if len(begin) >= PIECE_BYTES:
                    break
            else:
                check_groups(begin, [len(begin)])
                return self._item(group, bytes(begin))
            checked = checked_pieces(chain([bytes(begin)], pieces))
            first = next(checked)
            size = EventHeader.parse(first[:HEADER_SIZE]).length
        except ProtocolError as error:
            raise CorruptBinlog(*group.place, str(error)) from None
        return self._item(group, first[:size], _rest(group, chain([first[size:]], checked)))

    def _note_end(self) -> None:
        if self._binlog.torn_tail is not None:
            self.notes.append(
                f"the last record is not whole and was left out: {self._binlog.torn_tail}"
            )
        redo = PendingRedo.of(ReadOnlyDisk(self._directory))
        if redo.count:
            self.notes.append(
                f"{self._directory} has a redo log that its files may lack the last {redo.count} steps of: start and "
                "stop the server that it belongs to, and repeat this"
            )

    def _item(
        self, group: OfflineGroup, payload: bytes, rest: Iterator[bytes] | None = None
    ) -> SourceGroup:
        path = self._directory / group.file
        return SourceGroup(group.gtid, payload, path, group.place.offset, rest)

    def prepared(self) -> list[PreparedTransaction]:
        """See `StoreSource`. Their records are read, from the file of the oldest one on."""
        pages, newest = self._binlog.pages, self._numbers[-2:]
        headers = [header for file_no in newest if (header := pages.header(file_no)) is not None]
        begin = max(self._numbers[0], min(header.refers_to for header in headers))
        found: dict[Xid, PreparedTransaction] = {}
        reader = RecordReader(pages, Position(begin, PAGE_SIZE), lenient=True)
        with contextlib.suppress(TruncatedRecord):  # the torn tail, which `items` tells
            for record in reader:
                if record.type == RecordType.XA_PREPARE:
                    prepare = parsed(xa.decode_prepare, record.data, record.start)
                    found.pop(prepare.xid, None)
                    found[prepare.xid] = PreparedTransaction(
                        prepare.xid, partial(self._prepared_pieces, prepare.oob, record.start)
                    )
                elif record.type == RecordType.XA_COMPLETE:
                    found.pop(parsed(xa.decode_complete, record.data, record.start).xid, None)
        return list(found.values())

    def _prepared_pieces(self, oob: OobList | None, place: Position) -> Iterator[bytes]:
        return iter(()) if oob is None else list_pieces(self._binlog.pages, oob, place)

    def name(self, number: int) -> str:
        """The name of a file; files are counted from 0."""
        return str(self._directory / file_name(self._numbers[number]))

    @property
    def size(self) -> int:
        return sum(self._sizes)

    @property
    def bytes_read(self) -> int:
        file_no, offset = self._reading
        return sum(self._sizes[: self._numbers.index(file_no)]) + offset

    def close(self) -> None:
        self._binlog.close()


class _Borders:
    """The state along the files: tells the files in which the server has forgotten domains, by FLUSH BINARY LOGS
    DELETE_DOMAIN_ID. Those are domains of which no file has groups.
    """

    def __init__(self, files: IbbFiles, number: int) -> None:
        self._files = files
        self.number = number
        self._state = files.base(number).copy()
        self._seen: set[int] = set()

    def note(self, gtid: Gtid) -> None:
        """A group that was logged."""
        self._state.update(gtid)
        self._seen.add(gtid.domain_id)

    def up_to(self, number: int) -> Iterator[FileStart]:
        """The files up to this one in which domains were forgotten."""
        while self.number < number:
            self.number += 1
            known = set(self._files.base(self.number).domains())
            forgotten = set(self._state.domains()) - known - self._seen
            if forgotten:
                kept = (g for g in self._state.entries() if g.domain_id not in forgotten)
                self._state = BinlogState(kept)
                yield FileStart(self._files.name(self.number), self._state.copy())


def _rest(group: OfflineGroup, pieces: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from pieces
    except ProtocolError as error:
        raise CorruptBinlog(*group.place, str(error)) from None
