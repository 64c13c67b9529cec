"""The options of a store of traditional files, by MariaDB's names."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.events.format_description import SERVER_VERSION_SIZE

from binlog_storage.binlog.options import (
    LOG_BUFFER_SIZE_DEFAULT,
    LOG_FILE_SIZE_MIN,
    UNDO_BACKGROUND,
    undo_of,
)
from binlog_storage.classic.encryption import ALGORITHMS, Keys
from binlog_storage.classic.gtid_index import PAGE_BYTES_MAX, PAGE_BYTES_MIN
from binlog_storage.disk.key_file import read_keys

FILE_BYTES_MIN: Final = 4096
FILE_BYTES_MAX: Final = 1 << 30
LARGE_COMMIT_BYTES: Final = 128 << 20
_BASE: Final = compiled_later(r"[^/\0\n\r.][^/\0\n\r]{0,200}")
_VERSION: Final = compiled_later(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class ClassicOptions:
    """The options of a store. Sizes are bytes, times seconds.

    log_bin: the base name of the files.
    max_binlog_size: a file that has reached it is followed by another.
    binlog_large_commit_threshold: the file of an open group of so many bytes becomes a binlog file at its commit.
    binlog_checksum: of files made from now on, as `ChecksumAlgorithm`.
    server_id, server_version: in the events of the files themselves; MariaDB reads no file whose version is none.
    binlog_expire_logs_seconds: files last written longer ago are purged; 0 for never.
    max_binlog_total_size: the oldest files are purged beyond it; 0 for no limit.
    slave_connections_needed_for_purge: replicas that must be connected for a purge by age or size.
    innodb_log_file_size, innodb_log_buffer_size, undo_at_start: of the redo log of rows, as in `StoreOptions`.
    innodb_force_recovery: 3 to 5 undo no transaction of tables; 6 does not compare rows with the binlog: those
        of groups that are lost stay.
    binlog_gtid_index: whether files have a GTID index beside them.
    binlog_gtid_index_page_size, binlog_gtid_index_span_min: of indexes made from now on: size of their pages, and bytes
        from one record to the next, at least.
    encrypt_binlog: new files are encrypted, and what lies beside them.
    file_key_management_filename, file_key_management_filekey: the file with the keys, and its password if it is
        encrypted, or FILE: and the path of a file with that. Encrypted files are read whenever there is one.
    file_key_management_encryption_algorithm: `aes_cbc` or `aes_ctr`, of new files.
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
    binlog_large_commit_threshold: int = LARGE_COMMIT_BYTES
    binlog_gtid_index: bool = True
    binlog_gtid_index_page_size: int = 4096
    binlog_gtid_index_span_min: int = 65536
    encrypt_binlog: bool = False
    file_key_management_filename: str = ""
    file_key_management_filekey: str = field(default="", repr=False)
    file_key_management_encryption_algorithm: str = ALGORITHMS[0]

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
        if self.file_key_management_encryption_algorithm not in ALGORITHMS:
            raise ValueError(
                f"file_key_management_encryption_algorithm must be {' or '.join(ALGORITHMS)}, not "
                f"{self.file_key_management_encryption_algorithm!r}"
            )
        pages, span = self.binlog_gtid_index_page_size, self.binlog_gtid_index_span_min
        if not PAGE_BYTES_MIN <= pages <= PAGE_BYTES_MAX:
            raise ValueError(
                f"binlog_gtid_index_page_size must be between {PAGE_BYTES_MIN} and {PAGE_BYTES_MAX}, not {pages}"
            )
        if not 1 <= span <= FILE_BYTES_MAX:
            raise ValueError(
                f"binlog_gtid_index_span_min must be between 1 and {FILE_BYTES_MAX}, not {span}"
            )
        if not _BASE.fullmatch(self.log_bin):
            raise ValueError(f"log_bin must be a file name without a folder, not {self.log_bin!r}")
        version = self.server_version
        if not _VERSION.match(version) or len(version.encode()) > SERVER_VERSION_SIZE:
            raise ValueError(
                f"server_version must begin with a version, such as 11.8.0, not {version!r}"
            )

    def keys(self) -> Keys | None:
        """The keys for encrypted files; None without any. Reads the key file. Raises `NoBinlogKey`."""
        if not self.encrypt_binlog and not self.file_key_management_filename:
            return None
        found = read_keys(self.file_key_management_filename, self.file_key_management_filekey)
        return Keys(found, self.file_key_management_encryption_algorithm)
