"""From commit records to groups: payload first, then the out-of-band lists in their order."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.stored_group import HEAD_BYTES
from storage.errors import CorruptBinlog, TruncatedRecord
from storage.ibb import commit, oob
from storage.ibb.chunk import Position, Record, RecordType
from storage.ibb.records import PageSource, RecordReader


def group_pieces(pages: PageSource, record: Record) -> Iterator[bytes]:
    """The bytes of the group of a commit record, piece by piece in order. Raises `CorruptBinlog`."""
    try:
        parsed = commit.decode(record.data)
    except ValueError as error:
        raise CorruptBinlog(*record.start, str(error), record.data) from None
    yield parsed.payload
    for reference in parsed.lists:
        yield from oob.walk(reference.last, record.start, lambda place: _read_node(pages, place))


def group_payload(pages: PageSource, record: Record) -> bytes:
    """The whole group in one piece."""
    if record.data[:1] == b"\0":  # the common case: nothing out of band
        return record.data[1:]
    return b"".join(group_pieces(pages, record))


def group_head(pages: PageSource, record: Record) -> bytes:
    """The first bytes of the group, its GTID event included; a start marker whole."""
    head = b""
    for piece in group_pieces(pages, record):
        head += piece
        if len(head) >= HEAD_BYTES:
            break
    return head


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
    try:
        return oob.decode(record.data)
    except ValueError as error:
        raise CorruptBinlog(*place, str(error), record.data) from None
