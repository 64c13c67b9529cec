"""The second pass of `verify`: records, the groups in them, and the states between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.pieces import split_pieces
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import gtid_of
from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.groups.group_check import GroupCheck

from binlog_storage.errors import CorruptBinlog, TruncatedRecord
from binlog_storage.ibb import commit, oob, xa
from binlog_storage.ibb.chunk import END_OF_DATA, Position, Record, RecordType
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE
from binlog_storage.ibb.records import BEGINNING, RecordReader
from binlog_storage.log.group_reader import group_pieces
from binlog_storage.log.pages import OfflinePages
from binlog_storage.verify.verify_states import StateCheck

Tell = Callable[[int, int, str], None]


class RecordPass:
    """Walks all files from the oldest on. One run."""

    def __init__(
        self, pages: OfflinePages, error: Tell, warning: Tell, progress: Callable[[int], None]
    ) -> None:
        """`progress` is told the bytes passed since it was last called."""
        self._pages = pages
        self._error = error
        self._warning = warning
        self._progress = progress
        self._states = StateCheck(pages, error, warning)
        self._reported = 0
        self.groups = 0
        self._end = BEGINNING

    def run(self) -> Position:
        """Returns where the data end."""
        numbers = [n for n in self._pages.numbers if not self._pages.is_empty(n)]
        if not numbers:
            return BEGINNING
        self._end = Position(numbers[0], PAGE_SIZE)
        place: Position | None = self._end
        while place is not None:
            place = self._walk(RecordReader(self._pages, place, skip_partial=True), numbers)
        self._states.finish()
        return self._end

    def _walk(self, reader: RecordReader, numbers: list[int]) -> Position | None:
        """Check records up to the next damage or the end; returns where to continue."""
        try:
            for record in reader:
                self._record(record)
            self._end = reader.position
            return self._behind_end(reader.position, numbers)
        except TruncatedRecord as error:
            self._end = Position(error.file_no, error.offset)
            here = error.file_no, error.offset
            torn = "as a crash leaves it; the server cuts it off when it opens the store"
            self._error(*here, f"the data end inside this record, {torn}")
            damaged = Position(reader.position.file_no, 1 << 62)
        except CorruptBinlog as error:
            self._error(error.file_no, error.offset, error.reason)
            damaged = max(Position(error.file_no, error.offset), reader.position)
        self._states.forget()
        return self._next_data(damaged, numbers)

    def _behind_end(self, end: Position, numbers: list[int]) -> Position | None:
        """The data of the last file end at `end`: nothing may follow."""
        page = self._pages.page(end.file_no, end.page_no)
        if page is not None and any(page[end.in_page : -4]):
            self._error(*end, "bytes that are not zero behind the end of the data")
        following = self._next_data(end, numbers)
        if following is not None and following.file_no == end.file_no:
            self._error(
                *end, f"the data end here, but page {following.page_no} of the file holds some"
            )
            self._states.forget()
        return following

    def _next_data(self, damaged: Position, numbers: list[int]) -> Position | None:
        """The first page behind the one of `damaged` that holds data and is sound."""
        file_no = damaged.file_no
        while file_no <= numbers[-1]:
            if file_no in numbers:
                first = damaged.page_no + 1 if file_no == damaged.file_no else 1
                for page_no in range(max(1, first), self._pages.size(file_no) // PAGE_SIZE):
                    try:
                        page = self._pages.page(file_no, page_no)
                    except CorruptBinlog:
                        continue
                    if page is not None and page != ZERO_PAGE and page[0] != END_OF_DATA:
                        return Position(file_no, page_no * PAGE_SIZE)
            file_no += 1
        return None

    def _record(self, record: Record) -> None:
        self._passed(record.end)
        self._states.check_before(record.start)
        self._cut_file(record)
        if record.type == RecordType.COMMIT:
            self._commit(record)
        elif record.type == RecordType.OOB_DATA:
            self._node(record)
        elif record.type in (RecordType.XA_PREPARE, RecordType.XA_COMPLETE):
            self._xa(record)

    def _passed(self, end: Position) -> None:
        done = sum(self._pages.size(n) for n in self._pages.numbers if n < end.file_no) + end.offset
        if done - self._reported >= 1 << 20:
            self._progress(done - self._reported)
            self._reported = done

    def _cut_file(self, record: Record) -> None:
        """A file that FLUSH made shorter ends in a record of its own: none goes on in the next file."""
        file_no = record.start.file_no
        if record.end.file_no == file_no:
            return
        header = self._header(file_no)
        size = self._pages.size(file_no)
        if header is not None and size < header * PAGE_SIZE:
            self._error(
                *record.start,
                f"this record goes on in {file_name(file_no + 1)}, but {size // PAGE_SIZE} of the {header} pages "
                "of its file are left: a part is missing",
            )

    def _header(self, file_no: int) -> int | None:
        """Number of pages that the header of a file names."""
        try:
            header = self._pages.header(file_no)
        except CorruptBinlog:
            return None
        return None if header is None else header.pages

    def _node(self, record: Record) -> None:
        try:
            node = oob.decode(record.data)
        except ValueError as error:
            self._error(*record.start, str(error))
            return
        for link in (node.left, node.right):
            if link != oob.NULL and link >= record.start:
                self._error(
                    *record.start,
                    f"out-of-band reference to ({link.file_no}, {link.offset}) does not point back",
                )

    def _xa(self, record: Record) -> None:
        try:
            if record.type == RecordType.XA_COMPLETE:
                xa.decode_complete(record.data)
                return
            reference = xa.decode_prepare(record.data).oob
            if reference is not None:
                # Its list is walked as that of the commit record that is to come.
                commit_like = record._replace(data=commit.encode(b"", reference))
                for _ in group_pieces(self._pages, commit_like):
                    pass
        except CorruptBinlog as error:
            # Purged: then it was completed long ago, or its file would have been kept.
            if error.file_no >= self._pages.numbers[0]:
                self._error(error.file_no, error.offset, error.reason)
        except ValueError as error:
            self._error(*record.start, str(error))

    # --- groups ---

    def _commit(self, record: Record) -> None:
        self.groups += 1
        try:
            lists = commit.decode(record.data).lists
            nodes = _Counted(group_pieces(self._pages, record))
            first, reason = _check_group(nodes, two_lists=len(lists) > 1)
        except (CorruptBinlog, ValueError) as error:
            if isinstance(error, CorruptBinlog) and error.file_no < self._pages.numbers[0]:
                self._warning(
                    *record.start,
                    f"the group's data began in {file_name(error.file_no)}, which was purged: no replica can get it",
                )
            elif isinstance(error, CorruptBinlog):
                self._error(error.file_no, error.offset, error.reason)
            else:
                self._error(*record.start, str(error))
            self._states.forget()
            return
        if reason:
            self._error(*record.start, reason)
        if first is not None and first[TYPE_OFFSET] == EventType.GTID:
            self._states.logged(gtid_of(first), record.start)
        told = sum(reference.nodes for reference in lists)
        if not reason and lists and told != nodes.count - 1:
            self._warning(
                *record.start,
                f"the commit record counts {told} out-of-band nodes, there are {nodes.count - 1}",
            )
        self._references(record, lists)

    def _references(self, record: Record, lists: tuple[commit.OobList, ...]) -> None:
        """The header must not promise purge that no group of its file needs an older file."""
        try:
            header = self._pages.header(record.start.file_no)
        except CorruptBinlog:
            return
        if header is None or not lists:
            return
        promised = header.refers_to
        lowest = min(reference.last.file_no for reference in lists)
        if lowest < promised:
            self._error(
                *record.start,
                f"the group refers to {file_name(lowest)}, but the header says to none before {promised}",
            )


class _Counted:
    """Counts what an iterator has given."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.count = 0

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        self.count += 1
        return piece


def _check_group(pieces: Iterator[bytes], *, two_lists: bool) -> tuple[bytes | None, str]:
    """The first event of a group, and what is wrong with the group, "" for nothing."""
    check = GroupCheck(two_ends=two_lists)
    try:
        for event in split_pieces(pieces):
            check.add(event)
        check.finish()
    except ProtocolError as error:
        return check.first, str(error)
    return check.first, ""
