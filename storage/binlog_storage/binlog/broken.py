"""Repairs lose nothing: pages that are cut off are kept beside the file, and the log tells their GTIDs."""

from __future__ import annotations

import contextlib
import logging

from binlog_protocol.errors import ProtocolError
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid

from binlog_storage.disk.disk import Disk
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb import commit
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, is_sound
from binlog_storage.ibb.records import PageSource, RecordReader

log = logging.getLogger(__name__)

_GTIDS_TOLD = 20


def keep_aside(disk: Disk, file_no: int, page_no: int, at: int, pages: bytes) -> None:
    """Keep a durable copy of the pages from `page_no` on, before a repair cuts them off behind offset `at`."""
    tail = pages.rstrip(b"\0")
    kept = _broken_name(disk, file_no)
    with contextlib.closing(disk.open(kept, create=True)) as copy:
        copy.pwrite(tail, 0)
        copy.fdatasync()
    disk.fsync_dir()
    log.warning(
        "cut a torn tail: %d bytes from offset %d of %s, never complete%s; kept in %s",
        max(0, len(tail) - at),
        page_no * PAGE_SIZE + at,
        file_name(file_no),
        _told(gtids_in(pages, at)),
        kept,
    )


def put_aside(disk: Disk, file_no: int) -> None:
    """Rename a whole file that a repair removes. Durable at once: it must not follow a file that is cut later."""
    kept = _broken_name(disk, file_no)
    with contextlib.closing(disk.open(file_name(file_no))) as file:
        found = gtids_in(file.pread(min(file.size(), 1 << 20), 0), PAGE_SIZE)
    disk.rename(file_name(file_no), kept)
    disk.fsync_dir()
    log.warning(
        "kept aside: %s, which holds only what was never complete%s; now %s",
        file_name(file_no),
        _told(found),
        kept,
    )


def gtids_in(pages: bytes, at: int) -> list[Gtid]:
    """The GTIDs of all groups that can be read in these pages, from offset `at` on. Never raises."""
    found: list[Gtid] = []
    # Read as a file that begins one page earlier, because page 0 is never read as data.
    reader = RecordReader(_Pages(pages), Position(0, PAGE_SIZE + at), lenient=True)
    try:
        for record in reader.commits():
            gtid = group_gtid(commit.decode(record.data).payload)
            if gtid is not None:
                found.append(gtid)
    except (CorruptBinlog, ProtocolError, ValueError):
        pass
    return found


def _told(gtids: list[Gtid]) -> str:
    if not gtids:
        return ""
    shown = ",".join(map(str, gtids[:_GTIDS_TOLD]))
    more = f" and {len(gtids) - _GTIDS_TOLD} more" if len(gtids) > _GTIDS_TOLD else ""
    return f" (GTID {shown}{more})"


class _Pages(PageSource):
    """A `PageSource` over bytes, which ends at the first page with a wrong checksum."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def page(self, file_no: int, page_no: int) -> bytes | None:
        page = self._data[(page_no - 1) * PAGE_SIZE : page_no * PAGE_SIZE]
        return page if file_no == 0 and len(page) == PAGE_SIZE and is_sound(page) else None

    def has_data(self, file_no: int) -> bool:
        return file_no == 0


def _broken_name(disk: Disk, file_no: int) -> str:
    """A free name: an earlier repair's copy is never overwritten."""
    names = set(disk.names())
    name = base = f"{file_name(file_no)}.broken"
    count = 1
    while name in names:
        count += 1
        name = f"{base}.{count}"
    return name
