"""The client's side of a commit: the answers to statements that are committed, and their errors."""

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
    """The connection that gets the answers: one answer to each statement."""

    def committed(self, affected_rows: int, *, leaves: bool = False) -> None:
        """Answer OK. `leaves`: close the connection afterwards (COMMIT RELEASE)."""

    def committed_quickly(self) -> None:
        """Answer OK to a statement of `SessionTransaction.quick`: one row, no warnings."""

    def refused(self, error: ServerError) -> None:
        """Answer with an error."""

    def hold(self, *, held: bool) -> None:
        """Stop reading from the client's socket, or go on (`held` False)."""


def not_written(error: StorageError) -> ServerError:
    """The client's error when the store refuses its statement, or fails while it is written."""
    match error:
        case DiskFull():
            return NoRoomOnDisk(f"{error}. It can be tried again when there is room")
        case WaitGivenUp() | TooManyOpenFiles():  # temporary, too: the client may try again
            return ErrorOnWrite(f"{error}. It can be tried again")
        case StoreFailed() | DiskError():
            return ErrorOnWrite(
                f"{error}. Nothing is committed any more; what is durable is still served. Repair the disk and restart"
            )
    return ErrorOnWrite(str(error))
