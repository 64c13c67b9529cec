"""The options of a store, by MariaDB's names."""

from __future__ import annotations

from typing import Final

from binlog_protocol.dataclass import dataclass

from binlog_storage.ibb.oob import PIECE_BYTES_MAX
from binlog_storage.ibb.page import PAGE_SIZE, PAGE_SIZE_LOG2

PAGES_MIN = 4
FILE_BYTES_MAX = 1 << 30  # the server's limit; readers compute offsets in 32 bits
STATE_INTERVAL_MIN = 2 * PAGE_SIZE
STATE_INTERVAL_DEFAULT = 2 << 20
PAGE_CACHE_BYTES_DEFAULT = 32 << 20
LOG_BUFFER_SIZE_DEFAULT = 16 << 20
LOG_FILE_SIZE_MIN = 256 << 10
UNDO_BACKGROUND: Final = 0
UNDO_SYNCHRONOUS: Final = 1
UNDO_NEVER: Final = 2
NO_TRX_UNDO = 3  # innodb_force_recovery: transactions without an end stay as they are
NO_LOG_REDO = 6  # innodb_force_recovery: open what the files hold, as if there were no redo log


def undo_of(undo_at_start: int, innodb_force_recovery: int) -> int:
    """When transactions without an end are undone: as the first says, unless the second forbids it."""
    return UNDO_NEVER if NO_TRX_UNDO <= innodb_force_recovery < NO_LOG_REDO else undo_at_start


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options of a store. Sizes are bytes, times seconds.

    max_binlog_size: size of files made from now on, rounded down to whole pages, 64 KiB to 1 GiB.
    innodb_binlog_state_interval: distance of GTID state records; the page size times a power of two, 32 KiB or more.
    page_cache_bytes: memory for pages of history.
    binlog_expire_logs_seconds: files last written longer ago are purged; 0 for never.
    max_binlog_total_size: the oldest files are purged beyond it; 0 for no limit.
    slave_connections_needed_for_purge: replicas that must be connected for any purge.
    innodb_log_file_size: size of the redo log; also the most that recovery has to read.
    innodb_log_buffer_size: the part of the redo log that is not written yet, in memory, at most.
    innodb_force_recovery: 3 to 5 undo no transaction of tables; 6 opens a store without its redo log: groups that were
        only there are lost.
    undo_at_start: when transactions of tables without an end are undone: `UNDO_BACKGROUND`; `UNDO_SYNCHRONOUS`, before
        opening returns; `UNDO_NEVER`: they stay open, with their locks.
    """

    max_binlog_size: int = FILE_BYTES_MAX
    innodb_binlog_state_interval: int = STATE_INTERVAL_DEFAULT
    page_cache_bytes: int = PAGE_CACHE_BYTES_DEFAULT
    binlog_expire_logs_seconds: int = 0
    max_binlog_total_size: int = 0
    slave_connections_needed_for_purge: int = 1
    innodb_log_file_size: int = 4 << 20  # for a store without a server, which has its own default
    innodb_log_buffer_size: int = LOG_BUFFER_SIZE_DEFAULT
    innodb_force_recovery: int = 0
    undo_at_start: int = UNDO_BACKGROUND

    @property
    def undo(self) -> int:
        """`undo_at_start`, or what innodb_force_recovery makes of it."""
        return undo_of(self.undo_at_start, self.innodb_force_recovery)

    def __post_init__(self) -> None:
        if not PAGES_MIN * PAGE_SIZE <= self.max_binlog_size <= FILE_BYTES_MAX:
            raise ValueError(
                f"max_binlog_size must be between {PAGES_MIN * PAGE_SIZE} and {FILE_BYTES_MAX}, "
                f"not {self.max_binlog_size}"
            )
        interval = self.innodb_binlog_state_interval
        if interval < STATE_INTERVAL_MIN or interval & (interval - 1):
            raise ValueError(
                "innodb_binlog_state_interval must be the page size, 16384, times a power of two, and at least "
                f"{STATE_INTERVAL_MIN}, not {interval}"
            )

        least = max(LOG_FILE_SIZE_MIN, 4 * self.piece_bytes)
        if self.innodb_log_file_size < least:
            raise ValueError(
                f"innodb_log_file_size must be at least {least} with files of {self.max_binlog_size} bytes, "
                f"not {self.innodb_log_file_size}"
            )

    @property
    def file_pages(self) -> int:
        """Pages in a new file."""
        return self.max_binlog_size >> PAGE_SIZE_LOG2

    @property
    def state_interval_pages(self) -> int:
        """Pages between state records in a new file."""
        return self.innodb_binlog_state_interval >> PAGE_SIZE_LOG2

    @property
    def piece_bytes(self) -> int:
        """Largest payload stored in one record. Half a file, so that no record ever needs a third file."""
        return min(PIECE_BYTES_MAX, self.max_binlog_size // 2)
