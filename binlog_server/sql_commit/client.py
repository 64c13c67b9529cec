"""Who gets the answers to statements that are committed."""

from __future__ import annotations

from typing import Protocol

from binlog_protocol.errors import ServerError
from binlog_protocol.errors.sql_errors import ErrorOnWrite, NoRoomOnDisk
from binlog_storage.errors import (
    DiskError,
    DiskFull,
    StorageError,
    StoreFailed,
    TooManyOpenFiles,
    WaitGivenUp,
)


class CommitClient(Protocol):
    """Who gets the answers. One answer to each statement."""

    def committed(self, affected_rows: int, *, leaves: bool = False) -> None:
        """OK. `leaves`: the connection ends after it."""

    def committed_quickly(self) -> None:
        """OK to a statement of `Committer.quick`."""

    def refused(self, error: ServerError) -> None:
        """Not OK."""

    def hold(self, *, held: bool) -> None:
        """Read nothing more, or go on."""


def not_written(error: StorageError) -> ServerError:
    """What a client hears when the store refuses its statement, or fails under it."""
    match error:
        case DiskFull():
            return NoRoomOnDisk(f"{error}. It can be tried again when there is room")
        case WaitGivenUp() | TooManyOpenFiles():  # these pass by themselves, too
            return ErrorOnWrite(f"{error}. It can be tried again")
        case StoreFailed() | DiskError():
            return ErrorOnWrite(
                f"{error}. Nothing is committed any more; what is durable is still served. Repair the disk and restart"
            )
    return ErrorOnWrite(str(error))
