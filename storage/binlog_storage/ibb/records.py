"""Records from pages: the one place that follows chunks.

The reader knows nothing of files or of the server. It asks a `PageSource` for pages and stops at a limit that its
owner sets. The three ends are kept apart: the limit or the end of the data (None), a record that the data ends inside
of (`TruncatedRecord`), and bytes that no writer makes (`CorruptBinlog`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from binlog_protocol.errors import ProtocolError

from binlog_storage.errors import CorruptBinlog, StorageError, TruncatedRecord
from binlog_storage.ibb.chunk import (
    CHUNK_HEADER,
    CONT,
    END_OF_DATA,
    FILLER,
    LAST,
    LAST_CHUNK_START,
    TYPE_MASK,
    Position,
    Record,
    RecordType,
)
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE

BEGINNING = Position(0, PAGE_SIZE)
NESTABLE = (RecordType.GTID_STATE, RecordType.DUMMY)

_T = TypeVar("_T")


def parsed(parse: Callable[[bytes], _T], data: bytes, place: Position) -> _T:
    """The bytes of a record, or of its group, by a parser of theirs. Raises `CorruptBinlog` where that refuses them."""
    try:
        return parse(data)
    except (ValueError, ProtocolError) as error:
        raise CorruptBinlog(*place, str(error), data) from None


class PageSource(Protocol):
    """A source of pages, which it checks before it gives them out."""

    def page(self, file_no: int, page_no: int) -> bytes | None:
        """A page of `PAGE_SIZE` bytes; None behind the physical end of the file, or if there is no such file."""

    def has_data(self, file_no: int) -> bool:
        """Whether file `file_no` exists and its header was written."""

    def run(self, file_no: int, page_no: int, count: int) -> list[bytes]:
        """Pages from this one on, at most `count`: up to the first that is not there, or cannot be had.

        Whoever needs that one asks for it by `page`, and hears what is wrong.
        """
        found: list[bytes] = []
        with contextlib.suppress(StorageError):
            while len(found) < count:
                page = self.page(file_no, page_no + len(found))
                if page is None:
                    break
                found.append(page)
        return found


class RecordReader:
    """Reads record after record from `start`.

    Args:
        pages: where pages come from.
        start: a first chunk; or the start of a page, with `skip_partial`.
        limit: first position not to be read, always the end of a record; None reads to the end of the data.
        skip_partial: chunks that continue a record are passed over until one begins. A state record does not count: it
            may stand between two chunks of another one.
        lenient: they are passed over wherever they are, and are no corruption.
        data_of: only records of this type come with their data, others with none: out-of-band data are most of a store
            with large groups, and whoever looks for commits passes over them.

    One owner; `position` is where the next record is looked for.
    """

    def __init__(
        self,
        pages: PageSource,
        start: Position,
        limit: Position | None = None,
        *,
        skip_partial: bool = False,
        lenient: bool = False,
        data_of: RecordType | None = None,
    ) -> None:
        self._pages = pages
        self._data_of = data_of
        self._limit = limit
        # Nothing comes before page 1 of the first file of all, so nothing can go on there.
        self._skip_partial = (skip_partial or lenient) and start > BEGINNING
        self._lenient = lenient
        self._page: bytes | None = None
        self._file_no, offset = start
        self._page_no, self._at = divmod(offset, PAGE_SIZE)
        if self._page_no == 0:
            self._page_no, self._at = 1, 0

    @property
    def position(self) -> Position:
        """The position of the next record; a page start when the page before is full."""
        if self._at > LAST_CHUNK_START:
            return Position(self._file_no, (self._page_no + 1) * PAGE_SIZE)
        return Position(self._file_no, self._page_no * PAGE_SIZE + self._at)

    def next(self) -> Record | None:
        """The next whole record, or None at the limit or the end of the data."""
        while True:
            if not self._settle():
                return None
            start = Position(self._file_no, self._page_no * PAGE_SIZE + self._at)
            kind, data = self._chunk()
            if kind & CONT:
                if self._skip_partial:
                    continue
                raise self._corrupt(start, "Binlog record starts with continuation chunk")
            type_ = kind & TYPE_MASK
            if not kind & LAST:
                data = self._rest(start, type_, data)
            if self._skip_partial and type_ not in NESTABLE:
                self._skip_partial = self._lenient
            return Record(type_, start, self.position, data if self._is_wanted(type_) else b"")

    def __iter__(self) -> Iterator[Record]:
        """The records from here on."""
        while (record := self.next()) is not None:
            yield record

    def commits(self) -> Iterator[Record]:
        """The commit records from here on: one for each group and start marker. Data of others are passed over."""
        self._data_of = RecordType.COMMIT
        return (record for record in self if record.type == RecordType.COMMIT)

    def _rest(self, start: Position, kind: int, data: bytes) -> bytes:
        """The remaining chunks of the record that began at `start`."""
        parts = [data]
        is_wanted = self._is_wanted(kind)
        while True:
            if not self._settle(inside=True):
                raise TruncatedRecord(*start, "binlog tablespace truncated in the middle of record")
            here = Position(self._file_no, self._page_no * PAGE_SIZE + self._at)
            flags, data = self._chunk(is_wanted=is_wanted)
            if flags & CONT and flags & TYPE_MASK == kind:
                if is_wanted:
                    parts.append(data)
                if flags & LAST:
                    return b"".join(parts) if is_wanted else b""
            elif flags & TYPE_MASK not in NESTABLE:
                raise self._corrupt(here, "Binlog record missing end chunk")

    def _is_wanted(self, kind: int) -> bool:
        return self._data_of is None or kind == self._data_of

    def _chunk(self, *, is_wanted: bool = True) -> tuple[int, bytes]:
        """(type byte, data) of the chunk here, and step over it. Without the data if they are not wanted."""
        page, at = self._page, self._at
        assert page is not None
        begin = at + CHUNK_HEADER
        end = begin + (page[at + 1] | page[at + 2] << 8)
        if end > PAGE_END:
            here = Position(self._file_no, self._page_no * PAGE_SIZE + at)
            raise self._corrupt(here, "Invalid chunk length")
        self._at = end
        return page[at], page[begin:end] if is_wanted else b""

    def _settle(self, *, inside: bool = False) -> bool:
        """Stand on a type byte; False at the limit or the end of the data."""
        while True:
            if self._at > LAST_CHUNK_START:
                self._at = 0
                self._page_no += 1
                self._page = None
            if self._limit is not None and not inside and self._reached_limit():
                return False
            page = self._page
            if page is None:
                page = self._page = self._pages.page(self._file_no, self._page_no)
                if page is None:
                    if not self._pages.has_data(self._file_no + 1):
                        return False
                    self._file_no += 1
                    self._page_no, self._at = 1, 0
                    continue
            flags = page[self._at]
            if flags == FILLER:
                self._at = PAGE_END
            elif flags == END_OF_DATA:
                if self._pages.has_data(self._file_no + 1):
                    here = Position(self._file_no, self._page_no * PAGE_SIZE + self._at)
                    raise self._corrupt(
                        here, "the data of the file ends here, but it has a successor"
                    )
                return False
            else:
                return True

    def _reached_limit(self) -> bool:
        assert self._limit is not None
        return (self._file_no, self._page_no * PAGE_SIZE + self._at) >= self._limit

    def _corrupt(self, here: Position, reason: str) -> CorruptBinlog:
        evidence = self._page[here.in_page : here.in_page + 16] if self._page else b""
        return CorruptBinlog(here.file_no, here.offset, reason, evidence)
