"""The options of a store of traditional files, by MariaDB's names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.events.format_description import SERVER_VERSION_SIZE

from binlog_storage.binlog.options import (
    LOG_BUFFER_SIZE_DEFAULT,
    LOG_FILE_SIZE_MIN,
    UNDO_BACKGROUND,
    undo_of,
)

FILE_BYTES_MIN: Final = 4096
FILE_BYTES_MAX: Final = 1 << 30
_BASE: Final = re.compile(r"[^/\0\n\r.][^/\0\n\r]{0,200}")
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class ClassicOptions:
    """The options of a store. Sizes are bytes, times seconds.

    log_bin: the base name of the files.
    max_binlog_size: a file that has reached it is followed by another.
    binlog_checksum: of files made from now on, as `ChecksumAlgorithm`.
    server_id, server_version: in the events of the files themselves; MariaDB reads no file whose version is none.
    binlog_expire_logs_seconds: files last written longer ago are purged; 0 for never.
    max_binlog_total_size: the oldest files are purged beyond it; 0 for no limit.
    slave_connections_needed_for_purge: replicas that must be connected for any purge.
    innodb_log_file_size, innodb_log_buffer_size, undo_at_start: of the redo log of rows, as in `StoreOptions`.
    innodb_force_recovery: 3 to 5 undo no transaction of tables; 6 does not compare rows with the binlog: those
        of groups that are lost stay.
    """

    log_bin: str = "binlog"
    max_binlog_size: int = FILE_BYTES_MAX
    binlog_checksum: int = ChecksumAlgorithm.CRC32
    server_id: int = 1
    server_version: str = "11.8.0-MariaDB-log"
    binlog_expire_logs_seconds: int = 0
    max_binlog_total_size: int = 0
    slave_connections_needed_for_purge: int = 1
    innodb_log_file_size: int = 4 << 20
    innodb_log_buffer_size: int = LOG_BUFFER_SIZE_DEFAULT
    innodb_force_recovery: int = 0
    undo_at_start: int = UNDO_BACKGROUND

    @property
    def undo(self) -> int:
        """`undo_at_start`, or what innodb_force_recovery makes of it."""
        return undo_of(self.undo_at_start, self.innodb_force_recovery)

    def __post_init__(self) -> None:
        if self.innodb_log_file_size < LOG_FILE_SIZE_MIN:
            raise ValueError(
                f"innodb_log_file_size must be at least {LOG_FILE_SIZE_MIN}, not {self.innodb_log_file_size}"
            )
        if not FILE_BYTES_MIN <= self.max_binlog_size <= FILE_BYTES_MAX:
            raise ValueError(
                f"max_binlog_size must be between {FILE_BYTES_MIN} and {FILE_BYTES_MAX}, not {self.max_binlog_size}"
            )
        if not _BASE.fullmatch(self.log_bin):
            raise ValueError(f"log_bin must be a file name without a folder, not {self.log_bin!r}")
        version = self.server_version
        if not _VERSION.match(version) or len(version.encode()) > SERVER_VERSION_SIZE:
            raise ValueError(
                f"server_version must begin with a version, such as 11.8.0, not {version!r}"
            )
