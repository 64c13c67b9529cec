"""Commits of the binlog with engines that have logs of their own, and what a start makes of those under way.

prepare in each        a crash behind it: the binlog does not know the name, the next start rolls back in each
decide in the binlog   XA_COMPLETE and COMMIT, one mini-transaction, synced: the next start commits in each
commit in each         the file of the decision is held until all have; then nobody needs it any more

XA PREPARE of a client is the first step by itself, with the binlog's XA_PREPARE behind it, which says how many engines
have it: one that not all of them have behind a crash is rolled back. XA COMMIT and XA ROLLBACK are the other steps.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.appender import Appender, OpenGroup
from binlog_storage.binlog.decision import Decision
from binlog_storage.binlog.prepared import PreparedTransactions
from binlog_storage.engine.references import Pin, Reason, References
from binlog_storage.errors import StorageError
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.xa import Xid
from binlog_storage.tables.participants import Participant, RowKeeper
from binlog_storage.tables.store import TableStore

log = logging.getLogger(__name__)

_PREFIX = b"binlog-server"


@dataclass(eq=False)
class TwoPhase:
    """Of one store."""

    _appender: Appender
    _prepared: PreparedTransactions
    _references: References
    _tables: TableStore
    _participants: Sequence[Participant]
    _row_keeper: RowKeeper | None  # one more, but for transactions of clients
    _rollback_prepared: Callable[[Xid], object]
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _having: dict[Xid, list[Participant]] = field(default_factory=dict)
    """Who has a part in the prepared transactions of clients."""

    def begin(self, taking_part: Sequence[Participant]) -> Decision:
        """Prepare in these engines what is to commit in the binlog next: `OpenGroup.decide`, then `finish`.

        One at a time: engines commit in the order of the binlog. Raises `StorageError`: it is prepared nowhere then.
        """
        xid = Xid(1, _PREFIX + uuid.uuid4().bytes)
        with self._prepared_in(taking_part, xid):
            return Decision(xid, taking_part)

    def finish(self, decision: Decision) -> None:
        """Commit in the engines what the binlog has, durably; or roll back what it has not got."""
        if decision.hold is None:
            self._tell(decision.taking_part, decision.xid, committed=False)
        else:
            self._decided(decision.xid, decision.taking_part, decision.hold)

    def commit(
        self, group: OpenGroup, gtid_event: bytes, gtid: Gtid, taking_part: Sequence[Participant]
    ) -> None:
        """Commit a group in the binlog and in these engines. Durable when it returns.

        Raises `StorageError`: nothing is committed then, unless the store has failed; the next start knows.
        """
        with self._one_at_a_time:
            decision = self.begin(taking_part)
            try:
                group.decide(decision, gtid_event, gtid)
            finally:
                self.finish(decision)

    def prepare(self, group: OpenGroup, xid: Xid, taking_part: Sequence[Participant]) -> Position:
        """XA PREPARE of a group and of what these engines have of it. Durable with the next sync of the log.

        Raises `StorageError`: it is prepared nowhere then, and the group is still open.
        """
        with self._prepared_in(taking_part, xid):
            end = group.prepare(xid, max(1, len(taking_part) + group.has_tables))
        if taking_part:
            self._having[xid] = list(taking_part)
        return end

    def commit_prepared(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        """XA COMMIT. Durable with the next sync of the log; if other engines have a part, when it returns."""
        step = self._tables.completing(xid)
        having = self._having.get(xid)
        if having is None:
            return self._appender.commit_prepared(xid, gtid_event, gtid, step)
        hold = self._hold(xid, self._appender.end)
        try:
            end = self._appender.commit_prepared(xid, gtid_event, gtid, step)
        except BaseException:
            hold.release()
            raise
        del self._having[xid]
        self._decided(xid, having, hold)
        return end

    def rollback_prepared(self, xid: Xid) -> None:
        """XA ROLLBACK, but for the undo of rows. As `commit_prepared`."""
        self._rollback_prepared(xid)
        having = self._having.pop(xid, None)
        if having is not None:
            self._appender.sync_log()  # the binlog must not say "prepared" of what is nowhere any more
            self._tell(having, xid, committed=False)

    @contextlib.contextmanager
    def _prepared_in(self, taking_part: Sequence[Participant], xid: Xid) -> Iterator[None]:
        begun: list[Participant] = []
        try:
            for participant in taking_part:
                begun.append(participant)
                participant.prepare(xid)
            yield
        except BaseException:
            for participant in begun:
                participant.rollback(xid)
            raise

    def _hold(self, xid: Xid, end: Position) -> Pin:
        return self._references.hold(Reason.PREPARED_XA, xid.sql(), end.file_no)

    def _decided(self, xid: Xid, having: Sequence[Participant], hold: Pin) -> None:
        self._appender.sync_log()
        if self._tell(having, xid, committed=True):
            hold.release()

    @staticmethod
    def _tell(having: Sequence[Participant], xid: Xid, *, committed: bool) -> bool:
        """Commit or roll back in engines. Returns whether all have done it."""
        done = True
        for participant in having:
            try:
                (participant.commit if committed else participant.rollback)(xid)
            except StorageError as error:
                done = False
                log.error("%s: %s; the next start does it there", participant.name, error)
        return done

    def settle(self) -> bool:
        """At a start: settle what engines have prepared by what the binlog says. Returns whether the log got records.

        Transactions that nobody is to keep become active; they are undone later.
        """
        logged = False
        keeper = self._row_keeper
        everyone = [*self._participants, *([] if keeper is None else [keeper])]
        found = {p.name: set(p.recover()) for p in everyone}
        for xid in self._prepared.xids():
            having = [p for p in self._participants if xid in found[p.name]]
            trx = self._tables.prepared.get(xid)
            having_it = len(having) + (trx is not None)
            # Without any of them nothing is known: it waits for XA COMMIT or XA ROLLBACK.
            if self._participants and self._prepared.get(xid).engines > max(1, having_it):
                log.warning("XA transaction %s is not prepared everywhere: it is rolled back", xid)
                self._rollback_prepared(xid)
                logged = True
            elif having:
                self._having[xid] = having
        kept = set(self._prepared.xids())
        for xid, trx in list(self._tables.prepared.items()):
            if xid not in kept:
                log.warning(
                    "the binlog does not know the prepared XA transaction %s: it is rolled back",
                    xid,
                )
                self._tables.revive(trx)
                logged = True
        for participant in everyone:
            for xid in found[participant.name] - kept:
                if xid in self._prepared.committed:
                    log.info("%s: Committed transaction with xid %s", participant.name, xid)
                    participant.commit(xid)
                else:
                    log.warning("%s: Rolled back transaction with xid %s", participant.name, xid)
                    participant.rollback(xid)
        self._prepared.forget_committed()
        return logged
