"""The open transaction of a session: its events, its rows, its savepoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NoSuchSavepoint, NotSupportedYet, ServerError, TooLongIdentifier
from binlog_storage.binlog.transaction import Savepoint, Transaction

from binlog_server.sql_commit.held_statements import RowSide

SAVEPOINT_NAME_BYTES_MAX: Final = 256  # 64 characters of up to 4 bytes
SAVEPOINTS_MAX: Final = 10_000  # in one transaction at a time: each takes memory

T = TypeVar("T")


class RowThreads(Protocol):
    """Threads for statements that change rows."""

    def in_row_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a statement, or undo one."""

    def in_commit_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a commit that takes long."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in an open transaction: in its events, how many statements it had, and in its rows."""

    events: Savepoint
    changes: int
    rows: int = 0


class OpenTransaction:
    """An open transaction. `events` will be committed; `changes` is the number of statements: with 0 nothing is.

    `rows`: its part in tables that are here; None while there are none. `has_direct`: its statements have changed
    tables without transactions, too. `has_text`: it has statements, of which it is not known what they change.
    `keeps`: rows of temporary tables are changed, which its commit keeps, though nothing of them is logged.
    `leaves_rows`: its rollback leaves changed rows of tables without transactions, temporary ones too; `leaves_tables`:
    temporary tables that were made or dropped. `has_begun`: not while it has nothing but savepoints, which with
    autocommit=0 no client is told of.
    """

    def __init__(self, events: Transaction, rows: RowSide | None = None) -> None:
        self.events = events
        self.rows = rows
        self.changes = 0
        self.has_direct = False
        self.has_text = False
        self.has_begun = True
        self.keeps = self.leaves_rows = self.leaves_tables = False
        self._savepoints: dict[bytes, Mark] = {}

    @property
    def may_have_locks(self) -> bool:
        """Whether a statement of it has worked on rows."""
        return self.rows is not None and self.rows.is_used

    def mark(self) -> Mark:
        """A place to come back to."""
        in_rows = 0 if self.rows is None or not self.rows.is_used else self.rows.trx.savepoint()
        return Mark(self.events.savepoint(), self.changes, in_rows)

    def undo(self, mark: Mark) -> None:
        """Forget what came behind a mark; in a thread, where rows were changed."""
        self.events.rollback_to(mark.events)
        self.changes = mark.changes
        if self.rows is not None and self.rows.is_used and not self.rows.trx.ended:
            self.rows.trx.rollback_to(mark.rows)

    def roll_back(self, threads: Callable[[], RowThreads]) -> asyncio.Future[None] | None:
        """Forget all of it. Rows are undone in a thread, behind what runs there: the result waits for that."""
        rows = self.rows
        if rows is None or not self.may_have_locks:
            self.events.rollback()
            if rows is not None:
                rows.roll_back()
            return None
        self.events.give_up()  # what runs there does not wait for room any longer

        def undo() -> None:
            self.events.rollback()
            rows.roll_back()

        undone = threads().in_row_thread(rows.alone(undo))
        undone.add_done_callback(lambda done: done.cancelled() or done.exception())
        return undone

    def commit_rows(self) -> None:
        """Keep the changed rows of temporary tables, of a transaction that has nothing to log; in a thread."""
        if self.rows is not None and not self.rows.trx.ended:
            self.rows.trx.commit()

    def savepoint(self, name: bytes) -> None:
        """SAVEPOINT; it replaces an older one of the same name.

        Raises `TooLongIdentifier` (1059), and `NotSupportedYet` (1235) beyond `SAVEPOINTS_MAX`.
        """
        if len(name) > SAVEPOINT_NAME_BYTES_MAX:
            raise TooLongIdentifier(name.decode("utf-8", "replace")[:100])
        if name.lower() in self._savepoints:
            self._forget(name.lower())
        elif len(self._savepoints) >= SAVEPOINTS_MAX:
            raise NotSupportedYet(f"more than {SAVEPOINTS_MAX} savepoints in a transaction")
        self._savepoints[name.lower()] = self.mark()

    def has_savepoint(self, name: bytes) -> bool:
        """Whether there is one of that name."""
        return name.lower() in self._savepoints

    def savepoints(self) -> frozenset[bytes]:
        """The names of all, in lower case."""
        return frozenset(self._savepoints)

    def rollback_to(self, name: bytes) -> Callable[[], None] | None:
        """ROLLBACK TO; what it returns undoes rows, in a thread. Raises `NoSuchSavepoint` (1305)."""
        mark = self._savepoints[self._last(name)]
        if self.rows is not None and self.rows.is_used:
            return lambda: self.undo(mark)
        self.undo(mark)
        return None

    def release(self, name: bytes) -> None:
        """RELEASE SAVEPOINT. Raises `NoSuchSavepoint` (1305)."""
        self._forget(self._last(name))

    def _forget(self, key: bytes) -> None:
        self.events.release(self._savepoints.pop(key).events)

    def _last(self, name: bytes) -> bytes:
        """The key of a savepoint, made the last one: those that were set later are dropped."""
        key = name.lower()
        if key not in self._savepoints:
            raise no_such_savepoint(name)
        while (last := next(reversed(self._savepoints))) != key:
            self._forget(last)
        return key


def no_such_savepoint(name: bytes) -> ServerError:
    """The error of a savepoint that is not there."""
    return NoSuchSavepoint(name.decode("utf-8", "replace"))
