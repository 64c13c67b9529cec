"""An open group: its pieces are written out of band as they come, before it is committed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.limits import COMMIT_BYTES, NODE_BYTES
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.page_store import PageKey
from binlog_storage.engine import GroupMark
from binlog_storage.engine.references import Pin, Reason, References
from binlog_storage.ibb import commit, oob
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.xa import XaPrepare, Xid


class GroupContext:
    """The parts of a store that its open groups share.

    Args:
        piece_bytes: the largest piece in one record.
        admit: called under the lock before a record, with its bytes; it may release the lock to wait, and raises if the
            store accepts nothing more, or the group was given up.
        ended: called under the lock after each record, with the number of groups that it commits; returns its end.
        note_break: called under the lock before a group is committed, with its GTID; raises if it cannot be committed
            now.
        filled: called without the lock when unlogged pages were added.
        settle: waits, without the lock, until all pages in front of the given one are durable in their files; raises if
            the group was given up.
        prepare: writes the record of a prepared transaction, under the lock; raises if its name is taken.
    """

    def __init__(
        self,
        writer: LogWriter,
        lock: threading.Lock,
        references: References,
        piece_bytes: int,
        admit: Callable[[int, Callable[[], bool]], None],
        ended: Callable[..., Position],
        note_break: Callable[[Gtid], None],
        filled: Callable[[], None],
        settle: Callable[[PageKey, Callable[[], bool]], None],
        prepare: Callable[[XaPrepare], Position],
    ) -> None:
        self.writer = writer
        self.lock = lock
        self.references = references
        self.piece_bytes = piece_bytes
        self.admit = admit
        self.ended = ended
        self.note_break = note_break
        self.filled = filled
        self.settle = settle
        self.prepare = prepare


class OpenGroup:
    """See `binlog_storage.engine.interface.GroupWriter`. Several may be open; one owner each."""

    def __init__(self, context: GroupContext, *, bulk: bool = False) -> None:
        self._context = context
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
        context = self._context
        view = memoryview(data)
        for at in range(0, len(view), context.piece_bytes):
            piece = view[at : at + context.piece_bytes]
            with context.lock:
                context.admit(len(piece) + NODE_BYTES, self._is_given_up)
                self._require_open()
                if self._hold is None:
                    # Before node 0, because the header of a new file may be written in the middle of it.
                    file_no = context.writer.end.file_no
                    self._hold = context.references.hold(Reason.ACTIVE_TRANSACTION, "", file_no)
                forest = self._statement if statement else self._transactional
                links = oob.encode(forest.next_node(b""))  # the data follow as the node's end
                before = context.writer.unlogged_end
                forest.placed(
                    context.writer.write(
                        RecordType.OOB_DATA, piece, head=links, logged=not self._bulk
                    )
                )
                if context.writer.unlogged_end != before:
                    self._unlogged_end = context.writer.unlogged_end
                context.ended()
            if self._bulk:
                context.filled()

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
            self._context.settle(self._unlogged_end, lambda: self._given_up or given_up())
            self._unlogged_end = None  # only now: after a failure it may be tried again

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        """See `GroupWriter`."""
        self.settle()
        context = self._context
        with context.lock:
            context.admit(COMMIT_BYTES, self._is_given_up)
            self._require_open()
            context.references.require_age(age)
            context.note_break(gtid)
            # The statement list is replayed first; an empty transaction list behind it is left out.
            lists = [f.reference() for f in (self._statement, self._transactional) if f.count]
            record = commit.encode(gtid_event, *lists)
            context.writer.write(RecordType.COMMIT, record, gtid)
            self._close()
            return context.ended(commits=1)

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        """See `GroupWriter`."""
        self.settle()
        context = self._context
        with context.lock:
            context.admit(COMMIT_BYTES, self._is_given_up)
            self._require_open()
            if self._statement.count:
                raise ValueError(
                    "an XA transaction has no statement list: spill into one list only"
                )
            reference = self._transactional.reference() if self._transactional.count else None
            end = context.prepare(XaPrepare(engines, xid, reference))
            self._close()
            return end

    def give_up(self) -> None:
        """See `GroupWriter`."""
        self._given_up = True

    def _is_given_up(self) -> bool:
        return self._given_up

    def rollback(self) -> None:
        """See `GroupWriter`. No use after it; a second call does nothing."""
        with self._context.lock:
            self._close()

    def _close(self) -> None:
        self._closed = True
        if self._hold is not None:
            self._hold.release()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this group was committed, prepared or rolled back")
