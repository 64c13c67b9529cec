"""The end of the data in a file, by its pages alone: for a start that has no redo log to say so."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from binlog_storage.disk.disk import Disk, is_unwritten
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.chunk import end_inside
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE, is_sound, is_zero
from binlog_storage.log.log_file import first_empty

UNSYNCED_PAGES_MAX = 768  # that the flusher has between two syncs

ADVICE = (
    ". The store was not opened and nothing was changed: restore this file from a copy, or move it and all later "
    "files away, and start once with innodb_force_recovery=6, to go on from the last group before it"
)


class Survey(NamedTuple):
    """The pages of a file: `sound` good ones, then perhaps one torn, then nothing."""

    sound: int
    torn: bool


def survey(disk: Disk, file_no: int, unsynced: int) -> Survey:
    """Find the end of a file, and check the pages around it. Raises `CorruptBinlog` for bad ones before others.

    `unsynced`: pages around the end that can be missing or torn, as so many are synced at a time.
    """
    with contextlib.closing(disk.open(file_name(file_no))) as file:
        pages = -(-file.size() // PAGE_SIZE)
        end = first_empty(
            pages,
            lambda page_no: (
                is_unwritten(file, page_no * PAGE_SIZE, PAGE_SIZE)
                or is_zero(file.pread(PAGE_SIZE, page_no * PAGE_SIZE))
            ),
        )
        first = max(0, end - unsynced)
        sound = first
        torn: int | None = None
        empty: int | None = None
        older: int | None = None  # a page as it was when less was on it: sound, but not full
        for page_no in range(first, min(pages, end + unsynced)):
            if is_unwritten(file, page_no * PAGE_SIZE, PAGE_SIZE):
                page = ZERO_PAGE
            else:
                page = file.pread(PAGE_SIZE, page_no * PAGE_SIZE)
            if is_zero(page):
                empty = page_no if empty is None else empty
                continue
            for bad, reason in (
                (torn, "Page corruption (invalid crc32 checksum)"),
                (empty, "an empty page"),
            ):
                if bad is not None:
                    raise CorruptBinlog(
                        file_no, bad * PAGE_SIZE, f"{reason}, but later pages hold data{ADVICE}"
                    )
            if len(page) < PAGE_SIZE or not is_sound(page):
                torn = page_no
                continue
            if older is not None:
                raise CorruptBinlog(
                    file_no,
                    older * PAGE_SIZE,
                    f"the data end inside of this page, but later pages hold data{ADVICE}",
                )
            sound += 1
            if page_no and end_inside(page) is not None:
                older = page_no
    return Survey(sound, torn is not None)
