"""Stores of small files, with the smallest redo log: opening one reads all of it."""

from __future__ import annotations

from binlog_storage.binlog.options import LOG_FILE_SIZE_MIN, StoreOptions
from binlog_storage.ibb.oob import PIECE_BYTES_MAX
from binlog_storage.ibb.page import PAGE_SIZE


def redo_bytes(pages: int) -> int:
    """The smallest redo log that files of that many pages may have."""
    return max(LOG_FILE_SIZE_MIN, 4 * min(PIECE_BYTES_MAX, pages * PAGE_SIZE // 2))


def small(pages: int = 4, interval: int = 2, **more: int) -> StoreOptions:
    """Files of `pages` pages, a state record every `interval` of them."""
    return StoreOptions(
        pages * PAGE_SIZE,
        interval * PAGE_SIZE,
        **{"innodb_log_file_size": redo_bytes(pages), **more},
    )
