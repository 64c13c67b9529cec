"""An archive as a log that is read from any place: batches of groups, of those parts that are here.

A `Position` of it is a part (`file_no`: the number that `ArchiveLog.add` gives) and a place in it (`offset`: row group
and row; `PART_END` behind the last). The part that follows is found by the states between parts, not by a number of
theirs: small parts may become one while they are read.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from bisect import bisect_left
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.groups.group_check import check_groups
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.archive.archive import Archive, PlacedPart
from binlog_storage.archive.coverage import is_within
from binlog_storage.archive.errors import ArchiveDamaged
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.part_rows import PartRows
from binlog_storage.engine import GroupBatch, Position
from binlog_storage.errors import PositionPurged

PART_END: Final = 1 << 62
BATCH_BYTES: Final = 1 << 20
"""A batch ends with the group that reaches this, unless its rows end before."""

_ROW_BITS: Final = 32
_UNPACKED_BYTES_MAX: Final = (
    32 << 20
)  # of row groups that are kept unpacked; the one in use always is


class Following(NamedTuple):
    """A part to go on with: from its beginning, or behind a group, and so many start markers, that it has as well."""

    placed: PlacedPart
    behind: Gtid | None = None
    markers: int = 0


def part_of(archive: Archive, position: SlavePosition) -> PlacedPart:
    """The part in which the groups behind a replica's position begin. Reads one list of parts at most.

    Raises `PositionPurged` if the archive begins behind it, `ArchiveDamaged`, `ArchiveUnreachable`.
    """
    found = None
    for placed in archive.parts(
        lambda chunk, before: not BinlogState.parse(chunk.state).is_before(position)
    ):
        if not placed.before.is_before(position):
            break
        found = placed
    if found is None:
        raise PositionPurged(f"the archive {archive.where} begins at '{archive.begin.position()}'")
    return found


def following(archive: Archive, done: PlacedPart) -> Following | None:
    """What comes behind a part, in the archive as it is now; None at its end. Raises as `part_of`.

    Raises `ArchiveDamaged` also if that part has no place in it any more.
    """
    # It is looked for as itself, and only then a larger part that has all of it: if it has start markers alone, the
    # part in front has the same state behind it.
    is_known, holder, behind_holder = False, None, None
    for placed in archive.parts(
        lambda chunk, before: _reaches(BinlogState.parse(chunk.state), done.before)
    ):
        if is_known:
            return Following(placed)
        if (placed.part.name, placed.part.sha256) == (done.part.name, done.part.sha256):
            is_known = True
        elif holder is None:
            holder = placed if _has_all_of(placed, done) else None
        elif behind_holder is None:
            behind_holder = placed
    if is_known:
        return None
    if holder is None:
        raise ArchiveDamaged(
            f"the archive {archive.where} does not have what was read of it, up to '{done.after.position()}', any more"
        )
    part, read = holder.part, done.part
    if (part.last, part.markers_behind) != (read.last, read.markers_behind):
        return Following(holder, read.last_gtid, read.markers_behind)
    return None if behind_holder is None else Following(behind_holder)


def _has_all_of(placed: PlacedPart, done: PlacedPart) -> bool:
    """Whether one part has the groups of another, and can be gone on with behind the last of them."""
    return (
        done.part.groups > 0
        and is_within(placed.before, done.before)
        and is_within(done.after, placed.after)
    )


def _reaches(end: BinlogState, state: BinlogState) -> bool:
    """Whether a list of parts that ends there has anything behind `state`, or a part that lies right there."""
    return end == state or not is_within(end, state)


class ArchiveLog:
    """Parts that are here, to be read from any thread. One is forgotten when nobody has its `PartReader` any more.

    Nothing is read that was not compared with its manifest first.
    """

    age: Final = 0
    durable_end: Final = Position(PART_END, 0)

    def __init__(self) -> None:
        self._numbers: Final = itertools.count(1)
        self._readers: Final = weakref.WeakValueDictionary[int, PartReader]()
        self._lock: Final = threading.Lock()
        self._unpacked: dict[tuple[int, int], tuple[PartRows, int] | None] = {}

    def add(self, reader: PartReader) -> int:
        """Take a part up, when all of it was compared with the manifest. Returns its number here.

        Raises `ArchiveDamaged`.
        """
        for _ in reader.rows():
            pass
        number = next(self._numbers)
        self._readers[number] = reader
        return number

    def is_recent(self, start: Position) -> bool:
        """See `EngineReader`: all of it lies in files."""
        return False

    def read(self, start: Position) -> GroupBatch:
        """See `EngineReader`. Nothing, at the end of a part, and of one that is not here."""
        reader = self._readers.get(start.file_no)
        if reader is None or start.offset == PART_END:
            return GroupBatch(start, start, [])
        row_group, row = divmod(start.offset, 1 << _ROW_BITS)
        found = self._rows(start.file_no, reader, row_group)
        if found is None:
            return GroupBatch(start, Position(start.file_no, PART_END), [])
        rows, following_group = found
        if rows.large is not None:
            end = self._place(start.file_no, reader, following_group, 0)
            return GroupBatch(start, end, [], rows.large)
        begin = int(rows.ends[row - 1]) if row else 0
        stop = min(bisect_left(rows.ends, begin + BATCH_BYTES, row) + 1, len(rows.ends))
        ends = rows.ends[row:stop].tolist()
        groups = [bytes(rows.data[a:b]) for a, b in zip([begin, *ends[:-1]], ends, strict=True)]
        if stop == len(rows.ends):
            row_group, stop = following_group, 0
        return GroupBatch(start, self._place(start.file_no, reader, row_group, stop), groups)

    def place_behind(self, number: int, gtid: Gtid, markers: int) -> Position:
        """The place in a part behind a group of it, and up to so many start markers. Raises `ArchiveDamaged`."""
        reader = self._readers[number]
        row_group, is_behind = 0, False
        while (found := self._rows(number, reader, row_group)) is not None:
            rows, following_group = found
            row = 0
            if not is_behind:
                is_it = (
                    (rows.domain == gtid.domain_id)
                    & (rows.server == gtid.server_id)
                    & (rows.seq.view("<u8") == gtid.seq_no)
                    & ~rows.is_marker
                )
                if is_it.any():
                    is_behind, row = True, int(is_it.nonzero()[0][-1]) + 1
            while is_behind and row < len(rows.ends) and markers and rows.is_marker[row]:
                row, markers = row + 1, markers - 1
            if is_behind and row < len(rows.ends):
                return Position(number, row_group << _ROW_BITS | row)
            row_group = following_group
        if is_behind:
            return Position(number, PART_END)
        raise ArchiveDamaged(f"{reader.path} does not have group {gtid}, and it ought to")

    def _place(self, number: int, reader: PartReader, row_group: int, row: int) -> Position:
        """A place: the end of the part if nothing comes behind it, so that it is known with the last batch."""
        if not row and self._rows(number, reader, row_group) is None:
            return Position(number, PART_END)
        return Position(number, row_group << _ROW_BITS | row)

    def _rows(self, number: int, reader: PartReader, row_group: int) -> tuple[PartRows, int] | None:
        key = number, row_group
        with self._lock:
            if key in self._unpacked:
                found = self._unpacked[key] = self._unpacked.pop(key)  # to the young end
                return found
        found = reader.rows_from(row_group)
        if found is not None and found[0].large is None:
            rows = found[0]
            try:
                check_groups(rows.data, rows.ends.tolist())
            except ProtocolError as error:
                raise ArchiveDamaged(f"{reader.path}: {error}") from None
        with self._lock:
            self._unpacked[key] = found
            size = sum(map(_size, self._unpacked.values()))
            while size > _UNPACKED_BYTES_MAX and len(self._unpacked) > 1:
                oldest = next(iter(self._unpacked))
                size -= _size(self._unpacked.pop(oldest))
        return found


def _size(found: tuple[PartRows, int] | None) -> int:
    return 0 if found is None else len(found[0].data)
