"""A group of `MemoryEngine` that is written while it is still open: its pieces in lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from binlog_protocol.gtid import Gtid

from binlog_storage.engine import GroupMark, Position, Xid
from binlog_storage.engine.references import Pin, Reason, References


class GroupTaker(Protocol):
    """The engine, as its open groups see it."""

    references: References

    def refuse_after_failure(self) -> None:
        """Raises `StoreFailed` if a sync has failed."""

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        """See `BinlogEngine`."""

    def note_prepared(self, xid: Xid, data: bytes) -> Position:
        """The group waits as that transaction. Raises `XaStateError` if the name is taken."""


class MemoryGroup:
    """See `GroupWriter`. Its pieces stay in memory; all of them go to the engine at the end."""

    def __init__(self, engine: GroupTaker) -> None:
        self._engine = engine
        self._transactional: list[bytes] = []
        self._statement: list[bytes] = []
        self._hold: Pin | None = None
        self._closed = False

    @property
    def spilled(self) -> bool:
        """See `GroupWriter`."""
        return bool(self._transactional or self._statement)

    def spill(self, data: bytes | bytearray | memoryview, *, statement: bool = False) -> None:
        """See `GroupWriter`."""
        self._require_open()
        self._engine.refuse_after_failure()
        if data:
            self._hold = self._hold or self._engine.references.hold(
                Reason.ACTIVE_TRANSACTION, "", 0
            )
            (self._statement if statement else self._transactional).append(bytes(data))

    def mark(self) -> GroupMark:
        """See `GroupWriter`."""
        return GroupMark(list(self._transactional))

    def rewind(self, mark: GroupMark) -> None:
        """See `GroupWriter`."""
        assert isinstance(mark.transactional, list)
        self._transactional = list(mark.transactional)

    def settle(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """See `GroupWriter`."""

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        """See `GroupWriter`."""
        self._require_open()
        payload = b"".join((gtid_event, *self._statement, *self._transactional))
        end = self._engine.append(payload, gtid, age)
        self.rollback()
        return end

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        """See `GroupWriter`."""
        self._require_open()
        if self._statement:
            raise ValueError("an XA transaction has no statement list: spill into one list only")
        end = self._engine.note_prepared(xid, b"".join(self._transactional))
        self.rollback()
        return end

    def give_up(self) -> None:
        """See `GroupWriter`. Nobody ever waits."""

    def rollback(self) -> None:
        """See `GroupWriter`. A second call does nothing."""
        self._closed = True
        if self._hold is not None:
            self._hold.release()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this group was committed, prepared or rolled back")
