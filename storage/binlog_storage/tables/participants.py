"""Engines with a log of their own, which commit with a group of the binlog by two phases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from binlog_storage.ibb.xa import Xid


class Participant(Protocol):
    """One such engine. All methods may raise `StorageError`, and may be called from any thread.

    The order for a commit: `prepare` of all; then the binlog decides, durably; then `commit` of all. What was prepared
    and is not known to the binlog is rolled back by the next start.
    """

    @property
    def name(self) -> str:
        """For the log."""

    def prepare(self, xid: Xid) -> None:
        """Make the open transaction that is to commit under this name durable, so that it can be committed or rolled
        back after any crash."""

    def commit(self, xid: Xid) -> None:
        """Commit what is prepared under this name, durably. No error if it is done already, or unknown."""

    def rollback(self, xid: Xid) -> None:
        """Roll back what is prepared under this name. No error if it is done already, or unknown."""

    def recover(self) -> list[Xid]:
        """The names of all that are prepared."""


Changes = Mapping[tuple[int, bytes], bytes | None]
"""Rows by table and key, as they are behind a transaction; None: deleted."""


class Copied(Protocol):
    """A file that was made to be read once."""

    def pread(self, size: int, offset: int) -> bytes: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class RowKeeper(Participant, Protocol):
    """One that keeps the rows of tables here, in the place of the redo log (`ELSEWHERE`). See `SqliteRows`."""

    @property
    def exists(self) -> bool:
        """Whether it has been made."""

    def create(self, uuid: bytes) -> None:
        """Make it for the store with this uuid, if that is not done."""

    def part(self, changes: Changes) -> Participant:
        """One transaction's part in it."""

    def prepared_rows(self, xid: Xid) -> Changes:
        """What is prepared under this name."""

    def require_fits(self, uuid: bytes, tables: Collection[int]) -> bool:
        """Whether it is that of this store; `tables`: those whose rows are to be in it. Raises `CorruptTables`."""

    def adopt(self, uuid: bytes) -> None:
        """It is that of the store with this uuid from now on."""

    def rows(self) -> Iterator[tuple[int, bytes, bytes]]:
        """All that is committed: table, key, row."""

    def forget(self, tables: Collection[int]) -> None:
        """Delete the rows of tables that are dropped."""

    @property
    def file_name(self) -> str:
        """Of the file in which it has all that."""

    def copy_of(
        self,
        uuid: bytes,
        rows: Iterable[tuple[int, bytes, bytes]],
        prepared: Iterable[tuple[Xid, Changes]],
    ) -> Copied:
        """A file as its own, for the store with this uuid, with these rows instead. It is gone when it is closed."""

    def close(self) -> None:
        """No more use."""
