"""The client's side of a commit: the answers to statements that are committed, and their errors."""

from __future__ import annotations

from typing import Final, Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ErrorOnWrite, NoRoomOnDisk, ServerError
from binlog_storage.errors import (
    DiskError,
    DiskFull,
    StorageError,
    StoreFailed,
    TooManyOpenFiles,
    WaitGivenUp,
)

from binlog_server.sql.view import Client, ResultSet
from binlog_server.tables.changes import Outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """What OK says of a statement. `leaves`: the connection closes behind it. `rows`: they are sent in its place."""

    affected_rows: int = 0
    leaves: bool = False
    insert_id: int = 0
    info: bytes = b""
    rows: ResultSet | None = None


INSERTED: Final = Answer(1)
"""The answer to an INSERT of one row."""
ROW_UPDATED: Final = Answer(1, info=Outcome(1, 1).info("UPDATE", 0))
"""The answer to an UPDATE that has changed one row."""


class CommitClient(Client, Protocol):
    """The connection that gets the answers: one answer to each statement."""

    def committed(
        self,
        affected_rows: int,
        *,
        leaves: bool = False,
        insert_id: int = 0,
        info: bytes = b"",
        rows: ResultSet | None = None,
    ) -> None:
        """Answer OK, or with rows. `leaves`: close the connection afterwards (COMMIT RELEASE)."""

    def holds_more(self) -> None:
        """Or less: `SessionTransaction.held` is another one, while nothing came."""

    has_answer: bool
    """Whether `answer_at_once` has answered the statement of the hot path, and `committed_quickly` is to follow."""

    def answer_at_once(self, *, is_update: bool = False) -> None:
        """Answer OK to a statement of the hot path: it is durable, and its client all that there is to serve.
        `is_update`: as of `committed_quickly`.
        """

    def committed_quickly(self, *, is_update: bool = False, now: bool = False) -> None:
        """Answer OK to a statement of the hot path, unless it has its answer: one row, no warnings. `is_update`: it was
        matched and changed. `now`: the client is all that there is to serve, and goes on meanwhile.
        """


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
