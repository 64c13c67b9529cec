"""Groups from commit records: payload first, then the out-of-band lists in their order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.header import HEADER_SIZE, EventHeader, split_events
from binlog_protocol.groups.stored_group import HEAD_BYTES, group_gtid
from binlog_protocol.gtid import Gtid

from binlog_storage.engine import LargeGroup
from binlog_storage.errors import CorruptBinlog, TruncatedRecord
from binlog_storage.ibb import commit, oob
from binlog_storage.ibb.chunk import Position, Record, RecordType
from binlog_storage.ibb.records import PageSource, RecordReader, parsed

NO_LIST: Final = b"\0"
"""The first byte of a commit record whose group is all in it, nothing out of band: nearly all are."""


def group_pieces(pages: PageSource, record: Record) -> Iterator[bytes]:
    """The bytes of the group of a commit record, piece by piece in order. Raises `CorruptBinlog`."""
    group = parsed(commit.decode, record.data, record.start)
    yield group.payload
    for reference in group.lists:
        yield from list_pieces(pages, reference, record.start)


def list_pieces(pages: PageSource, reference: commit.OobList, before: Position) -> Iterator[bytes]:
    """The bytes of an out-of-band list that a record at `before` names, in order. Raises `CorruptBinlog`."""
    return oob.walk(reference.last, before, lambda place: _read_node(pages, place))


def payload_and_nodes(record: Record) -> tuple[bytes, int]:
    """The payload of a commit record, and how many out-of-band nodes hold the rest. Raises `CorruptBinlog`."""
    group = parsed(commit.decode, record.data, record.start)
    return group.payload, sum(reference.nodes for reference in group.lists)


def began_in(record: Record) -> int | None:
    """The file in which the out-of-band data of a commit record begin; None if it has none. Raises `CorruptBinlog`."""
    if record.data[:1] == NO_LIST:
        return None
    # None also where "no list" is written in another form than the shortest: MariaDB's readers take any.
    lists = parsed(commit.decode, record.data, record.start).lists
    return min((reference.first.file_no for reference in lists), default=None)


def has_two_lists(record: Record) -> bool:
    """Whether the group of a commit record is of two out-of-band lists. Raises `CorruptBinlog`."""
    if record.data[:1] == NO_LIST:
        return False
    return len(parsed(commit.decode, record.data, record.start).lists) > 1


def payload_up_to(pages: PageSource, record: Record, bytes_max: int) -> bytes | None:
    """The whole group, or None if it has more than `bytes_max` bytes; then at most one more piece is read."""
    if record.data[:1] == NO_LIST:  # the common case: nothing out of band
        first_file = record.start.file_no
        payload = record.data[1:]
        if len(payload) > bytes_max:
            return None
    else:
        gone = began_in(record)
        first_file = record.start.file_no if gone is None else gone
        pieces: list[bytes] = []
        size = 0
        for piece in group_pieces(pages, record):
            size += len(piece)
            if size > bytes_max:
                return None
            pieces.append(piece)
        payload = b"".join(pieces)
    # If a file was cut short at a page, what goes on in the next file is the rest of something else.
    if first_file != record.end.file_no and not _splits_into_events(payload):
        raise CorruptBinlog(
            *record.start, "the group does not split into events: a part of it is missing", payload
        )
    return payload


def end_in_file(record: Record, file_end: Position) -> Position:
    """The end of a record in the file that it begins in: the end of the file, if it goes on in the next one.

    Args:
        file_end: the physical end of the file.

    Raises `CorruptBinlog` if the record is there, but the file ends before it does: pages may be in memory that the
    file has lost since. No place may be told then: it would lie before that of the group before.
    """
    lies_behind = file_end.file_no == record.end.file_no and file_end < record.end
    if lies_behind or file_end <= record.start:
        raise CorruptBinlog(
            *record.start,
            f"the file has become shorter: it ends at {file_end.offset}, and the record that begins here is behind it",
        )
    return min(record.end, file_end)


def large_group(pages: PageSource, record: Record, file_end: Position | None = None) -> LargeGroup:
    """A group for which `payload_up_to` was None. `file_end`: the physical end of its file."""
    end = record.end if file_end is None else end_in_file(record, file_end)
    return LargeGroup(group_head(pages, record), end, partial(group_pieces, pages, record))


def _splits_into_events(payload: bytes) -> bool:
    try:
        for _ in split_events(payload):
            pass
    except ProtocolError:
        return False
    return True


def group_head(pages: PageSource, record: Record) -> bytes:
    """The first bytes of the group, its GTID event included; a start marker whole."""
    head = b""
    for piece in group_pieces(pages, record):
        head += piece
        if len(head) >= HEAD_BYTES:
            break
    return head


class GroupHead(NamedTuple):
    """The head of a group. `gtid`: None for a start marker.

    timestamp: of its first event, in seconds since 1970.
    data: as of `group_head`.
    """

    gtid: Gtid | None
    timestamp: int
    data: bytes


def read_head(pages: PageSource, record: Record) -> GroupHead:
    """The beginning of the group of a commit record. Raises `CorruptBinlog`."""
    data = group_head(pages, record)
    gtid = parsed(group_gtid, data, record.start)
    header = parsed(EventHeader.parse, data[:HEADER_SIZE], record.start)
    return GroupHead(gtid, header.timestamp, data)


def _read_node(pages: PageSource, place: Position) -> oob.OobNode:
    try:
        record = RecordReader(pages, place).next()
    except TruncatedRecord as error:
        # A commit behind it refers to it: this is no torn tail.
        raise CorruptBinlog(*place, error.reason) from None
    if record is None:
        raise CorruptBinlog(*place, "Unexpected EOF, expected oob chunk")
    if record.type != RecordType.OOB_DATA or record.start != place:
        raise CorruptBinlog(*place, "Wrong chunk type", record.data)
    return parsed(oob.decode, record.data, place)
