"""Errors of the store, each with its evidence.

One tree, so that a caller can tell three things apart: the data is damaged (`CorruptBinlog`), the request cannot be
met (`PositionPurged`, `NotAStore`, ...), the disk refused (`DiskError`, which carries the `OSError` as its cause).
"""

from __future__ import annotations

from typing import Final

REPAIR: Final = (
    "`binlog-server verify` shows all that is wrong; restore that file, or read the archive"
)
"""What to do about a damaged `.ibb` file."""


class StorageError(Exception):
    """Base of everything that `storage` raises on purpose."""


class DiskError(StorageError):
    """The operating system refused; the `OSError` is the cause."""


class DiskFull(DiskError):
    """There is no room on the disk, or none left for this user."""


class FileMissing(DiskError):
    """There is no file of that name."""


class OtherFileSystem(DiskError):
    """A file cannot have its new name, which lies in another file system."""


class TooManyOpenFiles(DiskError):
    """This process, or the system, has no descriptor left. Nothing was done: it may be tried again."""


class NoRoom(DiskFull):
    """There was no room for what has to be there first. Nothing was written: it can be tried again."""


class WaitGivenUp(StorageError):
    """A wait for room in the store has ended without room.

    The store is being closed, the group was rolled back, or all others would have to wait, too
    (`BinlogEngine.never_wait_in`).
    """


class BinlogInUse(StorageError):
    """RESET MASTER while a reader is at work (4243)."""


class BinlogInUseByTransaction(StorageError):
    """RESET MASTER while a transaction holds data in the binlog (4244)."""


class BinlogBegunAnew(StorageError):
    """RESET MASTER came between two steps that belong together. Nothing was done: both can be tried again."""


class BinlogHasGtids(StorageError):
    """A state is to be given to a binlog that is not empty (1956)."""


class DomainInUse(StorageError):
    """FLUSH BINARY LOGS DELETE_DOMAIN_ID of a domain that existing files still hold groups of."""

    def __init__(self, domain_id: int) -> None:
        self.domain_id = domain_id
        super().__init__(
            f"domain {domain_id} cannot be deleted: existing binlog files hold groups of it; purge them first"
        )


class UnknownBinlog(StorageError):
    """A file name that is no .ibb name, or lies beyond the last file (1373)."""


class XaStateError(StorageError):
    """An XID that is prepared already, or is not prepared."""


class NotAStore(StorageError):
    """The directory holds something else than a binlog store, and is left as it is."""


class BackupRefused(StorageError):
    """A backup cannot be made, or is not what it should be; the text says what to do."""


class StoreInUse(StorageError):
    """Another process has the directory open."""


class StoreFailed(StorageError):
    """An earlier write or sync failed: what is on disk is unknown, so nothing more is accepted."""


class PositionPurged(StorageError):
    """No file reaches back to the position that was asked for."""


class CorruptBinlog(StorageError):
    """Bytes on disk that no writer makes. Never skipped, never guessed at.

    Args:
        file_no: number of the `.ibb` file.
        offset: byte offset in that file at which the reader stood.
        reason: what is wrong, in MariaDB's words where it has some.
        evidence: the first bytes at that place.
    """

    PAGE_SIZE = 16384

    def __init__(self, file_no: int, offset: int, reason: str, evidence: bytes = b"") -> None:
        self.file_no = file_no
        self.offset = offset
        self.page_no = offset // self.PAGE_SIZE
        self.reason = reason
        self.evidence = bytes(evidence[:16])
        shown = f", bytes there: {self.evidence.hex(' ')}" if self.evidence else ""
        super().__init__(
            f"Corrupt binlog found on page {self.page_no} in binlog number {file_no} "
            f"(file binlog-{file_no:06d}.ibb, offset {offset}): {reason}{shown}"
        )


class CorruptRedo(StorageError):
    """The redo log is damaged before its end, or is not that of these files: nothing was changed."""


class CorruptTables(StorageError):
    """The snapshot of the tables, or what the redo log holds of them, is damaged or not of this store."""


class UnknownTable(StorageError):
    """There is no table of that number, or no longer: it was dropped."""


class DuplicateKey(StorageError):
    """A row of that key is there already (1062)."""


class LockWaitTimeout(StorageError):
    """A lock was waited for too long (1205): undo the statement. The transaction goes on."""

    def __init__(self) -> None:
        super().__init__("Lock wait timeout exceeded; try restarting transaction")


class Deadlock(StorageError):
    """Transactions waited in a circle (1213), and this one was rolled back for the others: as a whole, already."""

    def __init__(self) -> None:
        super().__init__("Deadlock found when trying to get lock; try restarting transaction")


class TransactionEnded(StorageError):
    """The transaction has ended already, or is prepared."""


class TruncatedRecord(CorruptBinlog):
    """The data ends inside a record. At the very end of a store this is a torn tail, elsewhere corruption."""


def without_advice(error: Exception) -> str:
    """The reason of a refused start, for one that is not refused, or of whoever only looks."""
    return str(error).partition(". The store was not opened")[0]


class NoBinlogKey(StorageError):
    """The key for encrypted binlog files or parts of an archive cannot be had, or is not theirs."""
