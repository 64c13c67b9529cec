"""An archive as a source of groups for a store: its parts are the files."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import HEADER_SIZE, EventHeader
from binlog_protocol.groups.group_check import check_groups, checked_pieces
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState, SlavePosition

from binlog_storage.archive.archive import Archive, PlacedPart
from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.errors import ArchiveDamaged, NotAnArchive
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.part_rows import PartRows
from binlog_storage.archive.places import Where
from binlog_storage.engine import LargeGroup
from binlog_storage.intake.source import FileStart, Item, SourceGroup

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ArchiveFiles:
    """See `binlog_storage.intake.source.IntakeSource`.

    Args:
        start: begin with the part in which this position is; without it with the first.
        keys: as for `Archive.open`.
    """

    def __init__(
        self, where: Where, start: SlavePosition | None = None, keys: ArchiveKeys | None = None
    ) -> None:
        """Raises as `Archive.open`."""
        self._archive: Final = Archive.open(where, keys)
        where = self._archive.where
        placed = list(self._archive.parts())
        if not placed:
            raise NotAnArchive(f"the archive {where} holds nothing yet")
        first = 0 if start is None else self._before(placed, start)
        if first is None:
            raise NotAnArchive(
                f"the archive {where} begins at '{self._archive.begin}', behind the position '{start}'"
            )
        self.placed: Final = placed[first:]
        """Its parts, as one manifest has them: a number in `items` is a place in this list."""
        self.server_version = ""
        self.notes: list[str] = []
        self.lost_files = ""
        self.bytes_read = 0

    @staticmethod
    def _before(placed: list[PlacedPart], position: SlavePosition) -> int | None:
        found = (i for i, one in enumerate(placed) if one.before.is_before(position))
        return max(found, default=None)

    @property
    def names(self) -> tuple[str, str]:
        return self._name(self.placed[0]), self._name(self.placed[-1])

    @property
    def size(self) -> int:
        return sum(one.part.size for one in self.placed)

    def base(self, number: int) -> BinlogState:
        return self.placed[number].before.copy()

    def file_before(self, position: SlavePosition) -> int | None:
        return self._before(self.placed, position)

    def items(self, number: int) -> Iterator[Item]:
        self.bytes_read = sum(one.part.size for one in self.placed[:number])
        for one in self.placed[number:]:
            yield FileStart(self._name(one), one.before.copy())
            for rows in PartReader(self._archive.place, one.part).rows():
                yield from self._items_of(rows, Path(self._name(one)))
            self.bytes_read += one.part.size

    def _items_of(self, rows: PartRows, path: Path) -> Iterator[Item]:
        if rows.large is not None:
            yield _large(rows.large, path)
            return
        with _said_of(path):
            check_groups(rows.data, rows.ends.tolist())
        for begin, end in pairwise(_borders(rows)):
            if rows.is_marker[begin]:
                marker = _bytes(rows, begin, end)
                self.server_version = _server_version(marker) or self.server_version
                yield SourceGroup(None, marker, path, 0)
            else:
                yield _run(rows, begin, end)

    def _name(self, one: PlacedPart) -> str:
        return f"{self._archive.where}/{one.part.name}"

    def close(self) -> None:
        """See `IntakeSource`."""


def _large(large: LargeGroup, path: Path) -> SourceGroup:
    """A large group: its GTID event, and the rest in pieces."""
    pieces = checked_pieces(large.pieces())
    with _said_of(path):
        first = next(pieces)
    size = EventHeader.parse(first[:HEADER_SIZE]).length

    def rest() -> Iterator[bytes]:
        with _said_of(path):
            yield first[size:]
            yield from pieces

    return SourceGroup(group_gtid(first), first[:size], path, large.end.offset, rest())


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    """Bytes that are no group are damage of the archive."""
    try:
        yield
    except ProtocolError as error:
        raise ArchiveDamaged(f"{path}: {error}") from None


def _borders(rows: PartRows) -> list[int]:
    """The borders of runs, and the end. A run has groups of one domain and server, numbers ascending; or one marker."""
    import numpy as np

    count = len(rows.ends)
    same = (
        (rows.domain[1:] == rows.domain[:-1])
        & (rows.server[1:] == rows.server[:-1])
        & (_unsigned(rows.seq)[1:] > _unsigned(rows.seq)[:-1])
        & ~rows.is_marker[1:]
        & ~rows.is_marker[:-1]
    )
    return [0, *(np.flatnonzero(~same) + 1).tolist(), count]


def _run(rows: PartRows, begin: int, end: int) -> GroupRun:
    start = int(rows.ends[begin - 1]) if begin else 0
    ends = array("Q", (rows.ends[begin:end] - start).astype("<u8").tobytes())
    seq_nos = array("Q", _unsigned(rows.seq)[begin:end].tobytes())
    return GroupRun(
        int(rows.domain[begin]),
        int(rows.server[begin]),
        bytearray(rows.data[start : int(rows.ends[end - 1])]),
        ends,
        seq_nos,
        0,
    )


def _unsigned(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    return numbers.view("<u8")


def _bytes(rows: PartRows, begin: int, end: int) -> bytes:
    start = int(rows.ends[begin - 1]) if begin else 0
    return bytes(rows.data[start : int(rows.ends[end - 1])])


def _server_version(marker: bytes) -> str:
    try:
        return FormatDescription.parse(marker).server_version
    except ProtocolError:
        return ""
