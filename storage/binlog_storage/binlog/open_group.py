"""An open group: its pieces are written out of band as they come, before it is committed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.limits import COMMIT_BYTES, NODE_BYTES
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.page_store import PageKey
from binlog_storage.engine import GroupMark
from binlog_storage.engine.references import Pin, Reason, References
from binlog_storage.ibb import commit, oob
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.xa import XaPrepare, Xid


class GroupSteps(Protocol):
    """The steps of the store that its open groups need: see `Appender`."""

    @property
    def writer(self) -> LogWriter: ...
    @property
    def lock(self) -> threading.Lock: ...
    @property
    def references(self) -> References: ...
    @property
    def piece_bytes(self) -> int: ...

    def admit(self, size: int, given_up: Callable[[], bool]) -> None:
        """Wait for room for a record, under the lock, which may be released meanwhile."""

    def ended(self, *, committed: bool = False) -> Position:
        """Close the mini-transaction, under the lock. Returns its end."""

    def note_break(self, gtid: Gtid) -> None:
        """Note the state breaks that the group will make, under the lock. Raises if it cannot be committed now."""

    def prepare(self, prepare: XaPrepare) -> Position:
        """Write the record of a prepared transaction, under the lock. Raises if its name is taken."""

    def filled(self) -> None:
        """Unlogged pages were added. Without the lock."""

    def settle(self, end: PageKey, given_up: Callable[[], bool]) -> None:
        """Wait, without the lock, until all pages before `end` are durable in their files."""


class OpenGroup:
    """See `binlog_storage.engine.interface.GroupWriter`. Several may be open; one owner each."""

    def __init__(self, steps: GroupSteps, *, bulk: bool = False) -> None:
        self._steps = steps
        self._bulk = bulk
        # The page behind the last of its pages that is not in the redo.
        self._unlogged_end: PageKey | None = None
        self._transactional = oob.Forest()
        self._statement = oob.Forest()
        self._hold: Pin | None = None
        self._closed = False
        self._given_up = False

    @property
    def spilled(self) -> bool:
        """See `GroupWriter`."""
        return bool(self._transactional.count or self._statement.count)

    def spill(self, data: bytes | bytearray | memoryview, *, statement: bool = False) -> None:
        """See `GroupWriter`. The lock is released between pieces, so that small groups are written in between."""
        steps = self._steps
        view = memoryview(data)
        for at in range(0, len(view), steps.piece_bytes):
            piece = view[at : at + steps.piece_bytes]
            with steps.lock:
                steps.admit(len(piece) + NODE_BYTES, self._is_given_up)
                self._require_open()
                if self._hold is None:
                    # Before node 0, because the header of a new file may be written in the middle of it.
                    file_no = steps.writer.end.file_no
                    self._hold = steps.references.hold(Reason.ACTIVE_TRANSACTION, "", file_no)
                forest = self._statement if statement else self._transactional
                links = oob.encode(forest.next_node(b""))  # the data follow as the node's end
                before = steps.writer.unlogged_end
                forest.placed(
                    steps.writer.write(
                        RecordType.OOB_DATA, piece, head=links, logged=not self._bulk
                    )
                )
                if steps.writer.unlogged_end != before:
                    self._unlogged_end = steps.writer.unlogged_end
                steps.ended()
            if self._bulk:
                steps.filled()

    def mark(self) -> GroupMark:
        """See `GroupWriter`."""
        return GroupMark(self._transactional.copy())

    def rewind(self, mark: GroupMark) -> None:
        """See `GroupWriter`."""
        assert isinstance(mark.transactional, oob.Forest)
        self._transactional = mark.transactional.copy()

    def settle(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """See `GroupWriter`."""
        if self._unlogged_end is not None:
            self._steps.settle(self._unlogged_end, lambda: self._given_up or given_up())
            self._unlogged_end = None  # only now: after a failure it may be tried again

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        """See `GroupWriter`."""
        self.settle()
        steps = self._steps
        with steps.lock:
            steps.admit(COMMIT_BYTES, self._is_given_up)
            self._require_open()
            steps.references.require_age(age)
            steps.note_break(gtid)
            # The statement list is replayed first; an empty transaction list behind it is left out.
            lists = [f.reference() for f in (self._statement, self._transactional) if f.count]
            record = commit.encode(gtid_event, *lists)
            steps.writer.write(RecordType.COMMIT, record, gtid)
            self._close()
            return steps.ended(committed=True)

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        """See `GroupWriter`."""
        self.settle()
        steps = self._steps
        with steps.lock:
            steps.admit(COMMIT_BYTES, self._is_given_up)
            self._require_open()
            if self._statement.count:
                raise ValueError(
                    "an XA transaction has no statement list: spill into one list only"
                )
            reference = self._transactional.reference() if self._transactional.count else None
            end = steps.prepare(XaPrepare(engines, xid, reference))
            self._close()
            return end

    def give_up(self) -> None:
        """See `GroupWriter`."""
        self._given_up = True

    def _is_given_up(self) -> bool:
        return self._given_up

    def rollback(self) -> None:
        """See `GroupWriter`. No use after it; a second call does nothing."""
        with self._steps.lock:
            self._close()

    def _close(self) -> None:
        self._closed = True
        if self._hold is not None:
            self._hold.release()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this group was committed, prepared or rolled back")
