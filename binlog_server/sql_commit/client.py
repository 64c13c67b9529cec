"""Who gets the answers to statements that are committed."""

from __future__ import annotations

from typing import Protocol

from binlog_protocol.errors import ServerError
from binlog_protocol.errors.sql_errors import ErrorOnWrite
from binlog_storage.errors import StorageError


class Client(Protocol):
    """Who gets the answers. One answer to each statement."""

    def committed(self, affected_rows: int, *, leaves: bool = False) -> None:
        """OK. `leaves`: the connection ends after it."""

    def committed_quickly(self) -> None:
        """OK to a statement of `Committer.quick`."""

    def refused(self, error: ServerError) -> None:
        """Not OK."""

    def hold(self, *, held: bool) -> None:
        """Read nothing more, or go on."""


def not_written(error: StorageError) -> ErrorOnWrite:
    """What a client hears when the store fails under its statement."""
    return ErrorOnWrite(
        f"{error}. Nothing is committed any more; what is durable is still served. Repair the disk and restart"
    )
