"""All writes into the binlog: groups, the steps of XA transactions, new files.

Each step is one record, or a few that belong together, under the append lock: it waits for room, puts the records onto
pages in memory, and makes them one mini-transaction of the redo log. Nothing here waits for a sync: the caller gets a
position, which is durable once the durable mark has reached it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.header import split_events
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.binlog.decision import Decision
from binlog_storage.binlog.durability import Durability
from binlog_storage.binlog.flusher import Flusher
from binlog_storage.binlog.limits import COMMIT_BYTES, NODE_BYTES, RECORD_OVERHEAD
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.page_store import PageKey
from binlog_storage.binlog.prepared import PreparedTransactions
from binlog_storage.binlog.room import Room
from binlog_storage.binlog.state_breaks import StateBreaks
from binlog_storage.engine import GroupMark
from binlog_storage.engine.references import Pin, Reason, References
from binlog_storage.ibb import commit, oob, xa
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.xa import XaComplete, XaPrepare, Xid
from binlog_storage.redo.format import tables_record
from binlog_storage.tables.records import CHANGE_BYTES
from binlog_storage.tables.store import TableStep, TableStore

STEP_BYTES = (
    64  # of what tables take along in a mini-transaction, at most; prepared ones have room anyway
)
_RUN_PAGES = 16  # that `append_run` writes at most: a millisecond if full of small groups


class JoinedTables(Protocol):
    """A transaction of tables that ends, or is prepared, in one mini-transaction with its group."""

    def ending(self) -> TableStep:
        """The step that commits it."""

    def preparing(self, xid: Xid, engines: int = 1) -> TableStep:
        """The step that prepares it."""


@dataclass(eq=False)
class Appender:
    """The only writer of groups into the binlog of a store; its methods may be called from any thread.

    Args:
        lock: the append lock.
        piece_bytes: largest payload stored in one record.
        last_marker: the start marker, if the binlog ends with one.
    """

    lock: threading.Lock
    writer: LogWriter
    _room: Room
    _durability: Durability
    _prepared: PreparedTransactions
    references: References
    _breaks: StateBreaks
    piece_bytes: int
    flusher: Flusher
    last_marker: bytes | None = None
    tables_logged: Callable[[], None] = lambda: None
    begins: Callable[[], TableStep | None] = lambda: None
    """What tables do in the mini-transaction with which a new binlog begins."""

    # --- groups ---

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        """See `BinlogEngine`."""
        if len(payload) <= self.piece_bytes:
            with self.lock:
                self._room.admit(len(payload) + RECORD_OVERHEAD)  # as `admit`, which costs a call
                if self._durability.failure is not None:
                    self._durability.require_sound()
                if age is not None and age != self.references.age:
                    self.references.require_age(age)
                if gtid is not None and self.writer.write_plain(payload, gtid) is not None:
                    self.last_marker = None
                    return self.writer.end
                self.note_break(gtid)
                self.writer.write(RecordType.COMMIT, commit.encode(payload), gtid)
                end = self.ended(committed=True)
                if gtid is None:
                    self.last_marker = payload
                return end
        assert gtid is not None
        return self._append_large(payload, gtid, age, None)

    def append_with(
        self, payload: bytes, gtid: Gtid, tables: JoinedTables, age: int | None = None
    ) -> Position:
        """As `append`, and the transaction of tables commits with the group: both in one mini-transaction."""
        if len(payload) > self.piece_bytes:
            return self._append_large(payload, gtid, age, tables)
        step = tables.ending()
        with self.lock:
            self.admit(len(payload) + STEP_BYTES)
            self.references.require_age(age)
            self._append_step(payload, gtid, step)
            step.done()
            return self.writer.end

    def append_change(
        self,
        store: TableStore,
        table: int,
        key: bytes,
        before: bytes | None,
        after: bytes | None,
        payload: bytes,
        gtid: Gtid,
        age: int | None = None,
    ) -> Position | None:
        """A transaction that changes one row, whole: the change, its group and its commit are one mini-transaction.

        A row of None is none. None, and nothing is done, where `TableStore.at_once` cannot, or the group is larger than
        a piece. Raises as `append`.
        """
        if len(payload) > self.piece_bytes:
            return None
        size = CHANGE_BYTES + len(key) + len(before or b"") + len(after or b"")
        with self.lock:
            self.admit(len(payload) + STEP_BYTES + size)
            self.references.require_age(age)
            with store.latch:
                step = store.at_once(table, key, before, after)
                if step is None:
                    return None
                self._append_step(payload, gtid, step)
                step.done()
            self.tables_logged()
            return self.writer.end

    def append_together(
        self, commits: Sequence[tuple[bytes, Gtid, JoinedTables]]
    ) -> list[Position]:
        """As `append_with` for each, none of them larger than a piece: all hold their locks until the last is there.

        So they cannot conflict, and may share a commit id. Raises `ValueError` for too large a group.
        """
        if any(len(payload) > self.piece_bytes for payload, _, _ in commits):
            raise ValueError(
                f"a group of more than {self.piece_bytes} bytes is to be committed alone"
            )
        steps = [(payload, gtid, tables.ending()) for payload, gtid, tables in commits]
        ends = []
        with self.lock:
            self.admit(sum(len(payload) + STEP_BYTES for payload, _, _ in commits))
            for _, gtid, _ in steps:
                self.note_break(gtid)
            for payload, gtid, step in steps:
                self._append_step(payload, gtid, step)
                ends.append(self.writer.end)
            for _, _, step in steps:
                step.done()
        return ends

    def _append_step(self, payload: bytes, gtid: Gtid, step: TableStep) -> None:
        if step.record:
            self._durability.redo.note_tables()
        if self.writer.write_plain(payload, gtid, step.record) is None:
            self.note_break(gtid)
            self.writer.write(RecordType.COMMIT, commit.encode(payload), gtid)
            if step.record:
                self.writer.take_along(step.record)
            self.writer.end_mtr()
        self.last_marker = None

    def _append_large(
        self, payload: bytes, gtid: Gtid, age: int | None, tables: JoinedTables | None
    ) -> Position:
        # Only the GTID event goes into the commit record: readers take the list behind the payload.
        gtid_event = next(split_events(payload))
        group = self.begin(tables=tables)
        try:
            group.spill(memoryview(payload)[len(gtid_event) :])
            return group.commit(gtid_event, gtid, age)
        except BaseException:
            group.rollback()  # without it the group would hold its files for ever
            raise

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        """See `BinlogEngine`. What is written at once is one mini-transaction: it becomes durable together."""
        with self.lock:
            if self._durability.failure is not None:
                self._durability.require_sound()
            if age is not None and age != self.references.age:
                self.references.require_age(age)
            writer, count, left = self.writer, len(run.ends), _RUN_PAGES
            while index < count and left > 0:
                size = len(run.payloads) - (run.ends[index - 1] if index else 0)
                pages = self._room.take_pages(min(left, 1 + size // PAGE_SIZE))
                if not pages:
                    break
                page_no = writer.page_no
                done = writer.write_run(run, index, pages)
                if done > index:
                    self.last_marker = None
                    left -= 1 + writer.page_no - page_no
                    index = done
                    continue
                payload = run.payload(index)
                if len(payload) > self.piece_bytes:
                    break
                gtid = run.gtid(index)
                self.note_break(gtid)
                writer.write(RecordType.COMMIT, commit.encode(payload), gtid)
                self.ended(committed=True)
                left -= 1
                index += 1
        return index

    def begin(self, *, bulk: bool = False, tables: JoinedTables | None = None) -> OpenGroup:
        """See `BinlogEngine`. `tables`: a transaction that commits with the group, or is prepared with it."""
        return OpenGroup(self, bulk=bulk, tables=tables)

    # --- XA ---

    def commit_prepared(
        self,
        xid: Xid,
        gtid_event: bytes,
        gtid: Gtid,
        step: TableStep | None = None,
        decision: Decision | None = None,
    ) -> Position:
        """See `BinlogEngine`. `decision`: an engine with a log of its own has a part of it, see `decide`."""
        with self.lock:
            prepare = self._complete(xid, gtid)
            # One mini-transaction: a crash leaves all records or none.
            with contextlib.nullcontext() if decision is None else self._deciding(decision):
                lists = [] if prepare.oob is None else [prepare.oob]
                self.writer.write(RecordType.COMMIT, commit.encode(gtid_event, *lists), gtid)
                self._prepared.discard(xid)
                return self.ended(step, committed=True)

    def rollback_prepared(self, xid: Xid, step: TableStep | None = None) -> Position:
        """See `BinlogEngine`."""
        with self.lock:
            self._complete(xid, None)
            self._prepared.discard(xid)
            return self.ended(step)

    def decide(
        self,
        decision: Decision,
        gtid_event: bytes,
        gtid: Gtid,
        group: OpenGroup,
        age: int | None = None,
    ) -> Position:
        """Commit a group of which engines with logs of their own have a part, prepared under this name.

        XA_COMPLETE and the commit record are one mini-transaction, with the end of the transaction of tables. The
        decision gets what holds its file, to be released when all engines have committed.
        """
        with self.lock:
            self.admit(2 * PAGE_SIZE + COMMIT_BYTES)
            self.references.require_age(age)
            step = group.ending()
            self.note_break(gtid, 2 * PAGE_SIZE)
            with self._deciding(decision):
                return group.write_commit(gtid_event, gtid, step)

    @contextlib.contextmanager
    def _deciding(self, decision: Decision) -> Iterator[None]:
        """Around the commit record, in one mini-transaction with it; under the lock."""
        xid = decision.xid
        # Before the record: a state record in the middle of it must tell where to look for it.
        hold = self.references.hold(Reason.PREPARED_XA, xid.sql(), self.writer.file_no)
        try:
            complete = xa.encode_complete(XaComplete(xid, rolled_back=False))
            self.writer.write(RecordType.XA_COMPLETE, complete)
            yield
        except BaseException:
            hold.release()
            raise
        decision.hold = hold

    def _complete(self, xid: Xid, gtid: Gtid | None) -> XaPrepare:
        """Write the record that commits a prepared transaction, or without a GTID rolls it back. Under the lock."""
        self.admit(2 * PAGE_SIZE)
        prepare = self._prepared.get(xid)
        self.note_break(gtid, 2 * PAGE_SIZE)
        complete = xa.encode_complete(XaComplete(xid, gtid is None))
        self.writer.write(RecordType.XA_COMPLETE, complete)
        return prepare

    def prepare(self, prepare: XaPrepare, step: TableStep | None = None) -> Position:
        """Write the record of a prepared transaction. Under the lock. Raises `XaStateError` if its name is taken."""
        self._prepared.require_free(prepare.xid)
        # Before the record, because a state record in the middle of it must have this transaction already.
        self._prepared.add(prepare, self.writer.file_no)
        self.writer.write(RecordType.XA_PREPARE, xa.encode_prepare(prepare))
        return self.ended(step)

    # --- tables ---

    @property
    def end(self) -> Position:
        """Where the binlog ends."""
        with self.lock:
            return self.writer.end

    def log_tables(self, record: bytes) -> None:
        """See `TableLog`."""
        redo = self._durability.redo
        redo.note_tables()
        redo.append(tables_record(record))
        self.tables_logged()

    def sync_log(self) -> None:
        """See `TableLog`."""
        self._durability.sync_log()

    # --- files ---

    def next_file(self, delete_domains: Iterable[int]) -> bool:
        """End this file and go on in the next, with these domains deleted from the state. Under the lock.

        False, and nothing is done, while this file has no checkpoint.
        """
        self._durability.require_sound()
        if not self._room.bounds.admits(2 * PAGE_SIZE):
            return False
        domains = set(delete_domains)
        entries = self.writer.state.entries()
        kept = [gtid for gtid in entries if gtid.domain_id not in domains]
        if len(kept) < len(entries):
            self._breaks.add({self.writer.file_no + 1})
            self.writer.forget_state(BinlogState(kept))
        self.writer.flush()
        self.ended()
        return True

    def start_anew(self, state: BinlogState) -> None:
        """Begin file 0 of a new binlog with this state. All old files are deleted already. Raises `DiskError`."""
        with self.lock:
            self.last_marker = None
            self._breaks.restart()
            self.writer.forget_state(state)
            self.writer.start_new(0)
            self._durability.restart(Position(0, PAGE_SIZE))
            self.ended(self.begins())

    # --- one step ---

    def admit(self, size: int, given_up: Callable[[], bool] | None = None) -> None:
        """Wait for room for a record of `size` bytes. Under the lock.

        Raises `StoreFailed`; `WaitGivenUp` if it has to wait and `given_up` returns True.
        """
        self._room.admit(size + RECORD_OVERHEAD, given_up)
        if self._durability.failure is not None:
            self._durability.require_sound()

    def ended(self, step: TableStep | None = None, *, committed: bool = False) -> Position:
        """Close the mini-transaction, with which a group is committed or not. Under the lock. Returns its end.

        `step`: what tables do in it.
        """
        writer = self.writer
        if committed:
            self.last_marker = None
        if step is not None and step.record:
            self._durability.redo.note_tables()
            writer.take_along(step.record)
        writer.end_mtr()
        if step is not None:
            step.done()
        return writer.end

    def note_break(self, gtid: Gtid | None, before: int = 0) -> None:
        """Log the state breaks that a group will make (see `LogWriter.breaks_by`). Under the lock, before the group."""
        if gtid is not None and (breaks := self.writer.breaks_by(gtid, before)):
            self._breaks.add(breaks)


class OpenGroup:
    """See `binlog_storage.engine.GroupWriter`. Several may be open; one owner each."""

    def __init__(
        self, appender: Appender, *, bulk: bool = False, tables: JoinedTables | None = None
    ) -> None:
        self._appender = appender
        self._tables = tables
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
        return bool(self._transactional.count or self._statement.count)

    def spill(self, data: bytes | bytearray | memoryview, *, statement: bool = False) -> None:
        """See `GroupWriter`. The lock is released between pieces, so that small groups are written in between."""
        appender = self._appender
        view = memoryview(data)
        for at in range(0, len(view), appender.piece_bytes):
            piece = view[at : at + appender.piece_bytes]
            with appender.lock:
                appender.admit(len(piece) + NODE_BYTES, self._is_given_up)
                self._require_open()
                if self._hold is None:
                    # Before node 0, because the header of a new file may be written in the middle of it.
                    file_no = appender.writer.end.file_no
                    self._hold = appender.references.hold(Reason.ACTIVE_TRANSACTION, "", file_no)
                forest = self._statement if statement else self._transactional
                links = oob.encode(forest.next_node(b""))  # the data follow as the node's end
                before = appender.writer.unlogged_end
                forest.placed(
                    appender.writer.write(
                        RecordType.OOB_DATA, piece, head=links, logged=not self._bulk
                    )
                )
                if appender.writer.unlogged_end != before:
                    self._unlogged_end = appender.writer.unlogged_end
                appender.ended()
            if self._bulk:
                appender.flusher.filled()

    def mark(self) -> GroupMark:
        return GroupMark(self._transactional.copy())

    def rewind(self, mark: GroupMark) -> None:
        assert isinstance(mark.transactional, oob.Forest)
        self._transactional = mark.transactional.copy()

    def settle(self, given_up: Callable[[], bool] = lambda: False) -> None:
        if self._unlogged_end is not None:
            self._appender.flusher.settle(self._unlogged_end, lambda: self._given_up or given_up())
            self._unlogged_end = None  # only now: after a failure it may be tried again

    def turn(self) -> None:
        """See `GroupWriter`: the commit is one record."""

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        self.settle()
        appender = self._appender
        with appender.lock:
            appender.admit(COMMIT_BYTES, self._is_given_up)
            self._require_open()
            appender.references.require_age(age)
            appender.note_break(gtid)
            return self.write_commit(gtid_event, gtid, self.ending())

    def decide(
        self, decision: Decision, gtid_event: bytes, gtid: Gtid, age: int | None = None
    ) -> Position:
        """As `commit`, of what engines with logs of their own have prepared."""
        self.settle()
        return self._appender.decide(decision, gtid_event, gtid, self, age)

    @property
    def has_tables(self) -> bool:
        """Whether a transaction of tables goes with it."""
        return self._tables is not None

    def ending(self) -> TableStep | None:
        """What tables do with its commit."""
        self._require_open()
        return None if self._tables is None else self._tables.ending()

    def write_commit(self, gtid_event: bytes, gtid: Gtid, step: TableStep | None) -> Position:
        """Write the commit record, and end the mini-transaction. Under the lock."""
        appender = self._appender
        # The statement list is replayed first; an empty transaction list behind it is left out.
        lists = [f.reference() for f in (self._statement, self._transactional) if f.count]
        appender.writer.write(RecordType.COMMIT, commit.encode(gtid_event, *lists), gtid)
        self._close()
        return appender.ended(step, committed=True)

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        self.settle()
        appender = self._appender
        with appender.lock:
            appender.admit(COMMIT_BYTES, self._is_given_up)
            self._require_open()
            if self._statement.count:
                raise ValueError(
                    "an XA transaction has no statement list: spill into one list only"
                )
            reference = self._transactional.reference() if self._transactional.count else None
            step = None if self._tables is None else self._tables.preparing(xid, engines)
            end = appender.prepare(XaPrepare(engines, xid, reference), step)
            self._close()
            return end

    def give_up(self) -> None:
        self._given_up = True

    def _is_given_up(self) -> bool:
        return self._given_up

    def rollback(self) -> None:
        """See `GroupWriter`. No use after it; a second call does nothing."""
        with self._appender.lock:
            self._close()

    def _close(self) -> None:
        self._closed = True
        if self._hold is not None:
            self._hold.release()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this group was committed, prepared or rolled back")
