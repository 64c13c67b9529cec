"""The hot paths of writing: a plain commit record onto a page, a run of them or a large record onto many pages.

All have twins in C (`_speedups.c`), which are used where they are built; tests hold the twins equal.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from binlog_storage.ibb.chunk import (
    CHUNK_DATA_MAX,
    CHUNK_HEADER,
    CHUNK_MIN,
    CONT,
    FILLER,
    LAST,
    RecordType,
)
from binlog_storage.ibb.page import CRC_SIZE, PAGE_END, PAGE_SIZE, seal
from binlog_storage.redo.format import WRITE_HEAD, build_mtr

Buffer = bytes | bytearray | memoryview
FilledRun = tuple[list[bytes], bytearray, int, int, bytes]

RUN_PAGES: Final = 64  # behind the first one that a run is written to at once, at most
_PLAIN_COMMIT: Final = RecordType.COMMIT | LAST
_HEAD: Final = CHUNK_HEADER + 1  # of a chunk, and that nothing is out of band


def fill_run_plainly(
    page: bytearray,
    at: int,
    payloads: bytearray,
    ends: array[int],
    index: int,
    more: int,
    kind: int,
    page_no: int,
    epoch: int,
    lsn: int,
) -> FilledRun | None:
    """Write groups, and make the mini-transaction that does so again: as many as end on a page or on `more` behind it.

    Args:
        page: the page to begin on. It stays as it is if others follow.
        at: the offset in it to begin at.
        payloads: the groups, one behind the other.
        ends: the end of each group in `payloads`.
        index: the first group to write.
        more: pages that may follow, at most `RUN_PAGES`.
        kind: the type of the redo records that write to the pages.
        page_no: the number of the first page.
        epoch, lsn: of the redo log, where the mini-transaction begins.

    Returns all pages but the last, sealed; the last page; the offset behind the groups in it; the index of the first
    group that was not written; and the mini-transaction. None, and nothing is done, if there is no room for one.
    """
    if not (0 <= at <= PAGE_END and 0 <= index <= len(ends) and 0 <= more <= RUN_PAGES):
        raise IndexError("no place on a page, or no such group")
    begin = at
    laid = bytearray(page[:at])  # all pages, without their checksums
    done = len(laid)
    start = ends[index - 1] if index else 0
    while index < len(ends):
        _lay(laid, b"\0" + payloads[start : ends[index]])
        if len(laid) > (more + 1) * PAGE_END:
            break
        done, start = len(laid), ends[index]
        index += 1
    if done == begin:
        return None
    del laid[done:]
    count = (done - 1) // PAGE_END
    redo = bytearray()
    for number in range(count + 1):
        first, stop = max(begin, number * PAGE_END), min(done, (number + 1) * PAGE_END)
        if first < stop:
            offset = first - number * PAGE_END
            redo += WRITE_HEAD.pack(kind, page_no + number, offset, stop - first)
            redo += laid[first:stop]
    full = [
        seal(laid[number * PAGE_END : (number + 1) * PAGE_END] + bytes(CRC_SIZE))
        for number in range(count)
    ]
    last = laid[count * PAGE_END :]
    at = len(last)
    if count:
        page = last.ljust(PAGE_SIZE, b"\0")
    else:
        page[:at] = last
    return full, page, at, index, build_mtr(epoch, lsn, bytes(redo))


def _lay(laid: bytearray, record: bytes) -> None:
    """Write a commit record behind what is on the pages already."""
    type_, at = int(RecordType.COMMIT), 0
    while at < len(record):
        left = -len(laid) % PAGE_END
        if 0 < left < CHUNK_MIN:
            laid += bytes((FILLER,)) * left
            left = 0
        some = record[at : at + (left or PAGE_END) - CHUNK_HEADER]
        at += len(some)
        laid += _chunk(type_ | LAST if at == len(record) else type_, some)
        type_ = RecordType.COMMIT | CONT


def plain_commit_plainly(
    page: bytearray,
    at: int,
    payload: bytes,
    behind: bytes,
    kind: int,
    page_no: int,
    epoch: int,
    lsn: int,
) -> bytes:
    """Write a group onto a page, and make the mini-transaction that does so again.

    Args:
        at: the offset in the page to begin at. There must be room behind it.
        behind: a redo record that goes with it; empty: none.
        kind: the type of the redo record that writes to the page.
        page_no: the number of the page.
        epoch, lsn: of the redo log, where the mini-transaction begins.
    """
    end = at + _HEAD + len(payload)
    if end > PAGE_END:
        raise IndexError("there is no room on the page")
    size = len(payload) + 1
    chunk = bytes((_PLAIN_COMMIT, size & 0xFF, size >> 8, 0)) + payload
    page[at:end] = chunk
    return build_mtr(epoch, lsn, WRITE_HEAD.pack(kind, page_no, at, len(chunk)) + chunk + behind)


def fill_pages_plainly(
    data: Buffer, at: int, count: int, first: int, then: int, kind: int, page_no: int
) -> tuple[bytes, bytearray, bytes]:
    """Make `count` pages, at least one, each filled by one chunk of a record.

    Args:
        data: the record.
        at: the offset in `data` to begin at.
        first, then: the type bytes of the first chunk and of the others.
        kind: the type of the redo records that write the pages; 0: they are not logged.
        page_no: the number of the first page.

    Returns all pages but the last, one behind the other; the last page; and the redo records. All pages are sealed.
    """
    pages: list[bytes] = []
    redo: list[bytes] = []
    for number in range(count):
        begin = at + number * CHUNK_DATA_MAX
        page = bytearray(PAGE_SIZE)
        page[0] = then if number else first
        page[1:CHUNK_HEADER] = CHUNK_DATA_MAX.to_bytes(CHUNK_HEADER - 1, "little")
        page[CHUNK_HEADER:PAGE_END] = data[begin : begin + CHUNK_DATA_MAX]
        pages.append(seal(page))
        if kind:
            redo += (WRITE_HEAD.pack(kind, page_no + number, 0, PAGE_END), pages[-1][:PAGE_END])
    return b"".join(pages[:-1]), bytearray(pages[-1]), b"".join(redo)


def fill_record_plainly(
    page: bytearray,
    at: int,
    head: bytes,
    data: Buffer,
    first: int,
    then: int,
    kind: int,
    page_no: int,
    begin: int,
    unlogged: bytes,
) -> tuple[bytes, bytearray, int, bytes]:
    """Write a record that fills the rest of a page, whole pages behind it, and a part of one more.

    Args:
        page: the page to begin on. It stays as it is.
        at: the offset in it to begin at.
        head, data: the record.
        first, then: the type bytes of the first chunk and of the others; the last one gets `LAST` besides.
        kind: the type of the redo records that write the first page and the last one.
        page_no: the number of the first page.
        begin: the offset from which on that is logged.
        unlogged: the redo record of the pages between.

    Returns all pages but the last, sealed, one behind the other; the last page; the offset behind the record in it; and
    the redo records.
    """
    room = PAGE_END - CHUNK_HEADER - at
    count = (len(head) + len(data) - room - 1) // CHUNK_DATA_MAX
    if not 0 <= begin <= at or room < max(1, len(head)) or count < 1:
        raise IndexError("the record does not fill a page behind that place")
    record = bytes(head) + bytes(data)
    pages = [seal(page[:at] + _chunk(first, record[:room]) + bytes(CRC_SIZE))]
    for number in range(count):
        start = room + number * CHUNK_DATA_MAX
        chunk = _chunk(then, record[start : start + CHUNK_DATA_MAX])
        pages.append(seal(bytearray(chunk + bytes(CRC_SIZE))))
    last = _chunk(then | LAST, record[room + count * CHUNK_DATA_MAX :])
    redo = (
        WRITE_HEAD.pack(kind, page_no, begin, PAGE_END - begin),
        pages[0][begin:PAGE_END],
        unlogged,
        WRITE_HEAD.pack(kind, page_no + count + 1, 0, len(last)),
        last,
    )
    return b"".join(pages), bytearray(last.ljust(PAGE_SIZE, b"\0")), len(last), b"".join(redo)


def _chunk(type_: int, data: bytes) -> bytes:
    return bytes((type_, len(data) & 0xFF, len(data) >> 8)) + data


FillRun = Callable[
    [bytearray, int, bytearray, "array[int]", int, int, int, int, int, int], FilledRun | None
]
FillPages = Callable[[Buffer, int, int, int, int, int, int], tuple[bytes, bytearray, bytes]]
PlainCommit = Callable[[bytearray, int, bytes, bytes, int, int, int, int], bytes]
FillRecord = Callable[
    [bytearray, int, bytes, Buffer, int, int, int, int, int, bytes],
    tuple[bytes, bytearray, int, bytes],
]
fill_run: FillRun = fill_run_plainly
plain_commit: PlainCommit = plain_commit_plainly
fill_pages: FillPages = fill_pages_plainly
fill_record: FillRecord = fill_record_plainly
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    fill_run = _speedups.fill_run
    plain_commit = _speedups.plain_commit
    fill_pages = _speedups.fill_pages
    fill_record = _speedups.fill_record
