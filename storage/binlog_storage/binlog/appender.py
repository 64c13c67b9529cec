"""All writes into the binlog: groups, the steps of XA transactions, new files.

Each step is one record, or a few that belong together, under the append lock: it waits for room, puts the records onto
pages in memory, and makes them one mini-transaction of the redo log. Nothing here waits for a sync: the caller gets a
position, which is durable once the durable mark has reached it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from binlog_protocol.groups.event_group import split_events
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.binlog.durability import Durability
from binlog_storage.binlog.flusher import Flusher
from binlog_storage.binlog.limits import RECORD_OVERHEAD
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.open_group import OpenGroup
from binlog_storage.binlog.page_store import PageKey
from binlog_storage.binlog.prepared import PreparedTransactions
from binlog_storage.binlog.room import Room
from binlog_storage.binlog.state_breaks import StateBreaks
from binlog_storage.engine.references import References
from binlog_storage.errors import DiskFull, NoRoom
from binlog_storage.ibb import commit, xa
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.xa import XaComplete, XaPrepare, Xid

_RUN_PAGES = 16  # that `append_run` writes at most: a millisecond if full of small groups


class Appender:
    """The only writer of groups into the binlog of a store; its methods may be called from any thread.

    Args:
        lock: the append lock.
        piece_bytes: largest payload stored in one record.
        last_marker: the start marker, if the binlog ends with one.
    """

    def __init__(
        self,
        lock: threading.Lock,
        writer: LogWriter,
        room: Room,
        durability: Durability,
        prepared: PreparedTransactions,
        references: References,
        breaks: StateBreaks,
        piece_bytes: int,
        flusher: Flusher,
        last_marker: bytes | None = None,
    ) -> None:
        self.lock = lock
        self.writer = writer
        self._room = room
        self._durability = durability
        self._prepared = prepared
        self.references = references
        self._breaks = breaks
        self.piece_bytes = piece_bytes
        self.last_marker = last_marker
        self._flusher = flusher

    # --- groups ---

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        """See `BinlogEngine`."""
        if len(payload) <= self.piece_bytes:
            with self.lock:
                self.admit(len(payload))
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
        # Only the GTID event goes into the commit record: readers take the list behind the payload.
        gtid_event = next(split_events(payload))
        group = self.begin()
        try:
            group.spill(memoryview(payload)[len(gtid_event) :])
            return group.commit(gtid_event, gtid, age)
        except BaseException:
            group.rollback()  # without it the group would hold its files for ever
            raise

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        """See `BinlogEngine`. The groups that fit on a page are one mini-transaction: they become durable together."""
        with self.lock:
            self._durability.require_sound()
            self.references.require_age(age)
            for _ in range(_RUN_PAGES):
                if index == len(run) or not self._room.take(PAGE_SIZE):
                    break
                done = self.writer.write_run(run, index)
                if done > index:
                    self.last_marker = None
                    index = done
                    continue
                payload = run.payload(index)
                if len(payload) > self.piece_bytes:
                    break
                gtid = run.gtid(index)
                self.note_break(gtid)
                self.writer.write(RecordType.COMMIT, commit.encode(payload), gtid)
                self.ended(committed=True)
                index += 1
        return index

    def begin(self, *, bulk: bool = False) -> OpenGroup:
        """See `BinlogEngine`."""
        return OpenGroup(self, bulk=bulk)

    # --- XA ---

    def commit_prepared(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        """See `BinlogEngine`."""
        with self.lock:
            prepare = self._complete(xid, gtid)
            # One mini-transaction: a crash leaves both records or neither.
            lists = [] if prepare.oob is None else [prepare.oob]
            self.writer.write(RecordType.COMMIT, commit.encode(gtid_event, *lists), gtid)
            self._prepared.discard(xid)
            return self.ended(committed=True)

    def rollback_prepared(self, xid: Xid) -> Position:
        """See `BinlogEngine`."""
        with self.lock:
            self._complete(xid, None)
            self._prepared.discard(xid)
            return self.ended()

    def _complete(self, xid: Xid, gtid: Gtid | None) -> XaPrepare:
        """Write the record that commits a prepared transaction, or without a GTID rolls it back. Under the lock."""
        self.admit(2 * PAGE_SIZE)
        prepare = self._prepared.get(xid)
        self.note_break(gtid, 2 * PAGE_SIZE)
        complete = xa.encode_complete(XaComplete(xid, gtid is None))
        self.writer.write(RecordType.XA_COMPLETE, complete)
        return prepare

    def prepare(self, prepare: XaPrepare) -> Position:
        """See `GroupSteps`."""
        self._prepared.require_free(prepare.xid)
        # Before the record, because a state record in the middle of it must have this transaction already.
        self._prepared.add(prepare, self.writer.file_no)
        self.writer.write(RecordType.XA_PREPARE, xa.encode_prepare(prepare))
        return self.ended()

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
            self._add_breaks({self.writer.file_no + 1})
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
            self.ended()

    # --- one step ---

    def admit(self, size: int, given_up: Callable[[], bool] | None = None) -> None:
        """Wait for room for a record of `size` bytes. Under the lock.

        Raises `StoreFailed`; `WaitGivenUp` if it has to wait and `given_up` returns True.
        """
        self._room.admit(size + RECORD_OVERHEAD, given_up)
        self._durability.require_sound()

    def ended(self, *, committed: bool = False) -> Position:
        """Close the mini-transaction, with which a group is committed or not. Under the lock. Returns its end."""
        writer = self.writer
        if committed:
            self.last_marker = None
        writer.end_mtr()
        return writer.end

    def filled(self) -> None:
        """See `GroupSteps`."""
        self._flusher.filled()

    def settle(self, end: PageKey, given_up: Callable[[], bool]) -> None:
        """See `GroupSteps`."""
        self._flusher.settle(end, given_up)

    def note_break(self, gtid: Gtid | None, before: int = 0) -> None:
        """Note the state breaks that a group will make (see `LogWriter.breaks_by`). Under the lock, before the group.

        Raises `NoRoom`, `DiskError`; nothing is done then, and the group can be written later.
        """
        if gtid is not None and (breaks := self.writer.breaks_by(gtid, before)):
            self._add_breaks(breaks)

    def _add_breaks(self, breaks: set[int]) -> None:
        try:
            self._breaks.add(breaks)
        except DiskFull as error:
            raise NoRoom(str(error)) from error
