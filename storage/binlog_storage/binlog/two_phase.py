"""Commits of the binlog with engines that have logs of their own, and what a start makes of those under way.

prepare in each        a crash behind it: the binlog does not know the name, the next start rolls back in each
decide in the binlog   XA_COMPLETE and COMMIT, one mini-transaction, synced: the next start commits in each
commit in each         the file of the decision is held until all have; then nobody needs it any more

XA PREPARE of a client is the first step by itself, with the binlog's XA_PREPARE behind it, which says how many engines
have it: one that not all of them have behind a crash is rolled back. XA COMMIT and XA ROLLBACK are the other steps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import field

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.appender import Appender, OpenGroup
from binlog_storage.binlog.decision import Deciding, Decision, settle_in, tell, xa_name
from binlog_storage.binlog.prepared import PreparedTransactions
from binlog_storage.engine.references import Pin, Reason, References
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.xa import Xid
from binlog_storage.tables.participants import Participant, RowKeeper
from binlog_storage.tables.store import TableStore

log = logging.getLogger(__name__)


@dataclass(eq=False)
class TwoPhase(Deciding):
    """Of one store."""

    _appender: Appender
    _prepared: PreparedTransactions
    _references: References
    _tables: TableStore
    _participants: Sequence[Participant]
    _row_keeper: RowKeeper | None  # one more, under names of ours (`xa_name`)
    _uuid: bytes  # of the redo log
    _rollback_prepared: Callable[[Xid], object]
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _having: dict[Xid, list[Participant]] = field(default_factory=dict)
    """Who has a part in the prepared transactions of clients."""

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
        with self.prepared_in(taking_part, xid):
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
        self.decided(xid, having, hold)
        return end

    def completing(self, xid: Xid) -> Decision | None:
        """See `TableEngine.completing_two_phase`."""
        trx, keeper = self._tables.prepared.get(xid), self._row_keeper
        if trx is None or not trx.elsewhere or keeper is None:
            return None
        return Decision(xa_name(self._uuid, trx.id), (keeper,))

    def decide_prepared(
        self, decision: Decision, xid: Xid, gtid_event: bytes, gtid: Gtid
    ) -> Position:
        """See `TableEngine.decide_prepared`."""
        step = self._tables.completing(xid)
        return self._appender.commit_prepared(xid, gtid_event, gtid, step, decision)

    def rollback_prepared(self, xid: Xid) -> None:
        """XA ROLLBACK, but for the undo of rows. As `commit_prepared`."""
        decision = self.completing(xid)
        self._rollback_prepared(xid)
        having = self._having.pop(xid, None)
        if having is not None or decision is not None:
            self._appender.sync_log()  # the binlog must not say "prepared" of what is nowhere any more
        if having is not None:
            tell(having, xid, committed=False)
        if decision is not None:
            tell(decision.taking_part, decision.xid, committed=False)

    def _hold(self, xid: Xid, end: Position) -> Pin:
        return self._references.hold(Reason.PREPARED_XA, xid.sql(), end.file_no)

    def sync_log(self) -> None:
        """See `Deciding`."""
        self._appender.sync_log()

    def known(self, xid: Xid) -> None:
        """See `Deciding`. The decision is a record of the binlog: nothing is to be forgotten."""

    def settle(self) -> bool:
        """At a start: settle what engines have prepared by what the binlog says. Returns whether the log got records.

        Transactions that nobody is to keep become active; they are undone later.
        """
        logged = False
        keeper = self._row_keeper
        if keeper is not None:  # nothing is decided without its file
            keeper.require_fits(self._uuid, self._tables.kept_elsewhere)
        everyone = [*self._participants, *([] if keeper is None else [keeper])]
        found = {p.name: set(p.recover()) for p in everyone}
        for xid in self._prepared.xids():
            having = [p for p in self._participants if xid in found[p.name]]
            trx = self._tables.prepared.get(xid)
            having_it = len(having)
            if trx is not None:
                rows = keeper is not None and xa_name(self._uuid, trx.id) in found[keeper.name]
                having_it += 1 + rows
            # Without any of them nothing is known: it waits for XA COMMIT or XA ROLLBACK.
            knows = self._participants or (keeper is not None and trx is not None)
            if knows and self._prepared.get(xid).engines > max(1, having_it):
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
        names = {xa_name(self._uuid, trx.id) for trx in self._tables.prepared.values()}
        for participant in everyone:
            for xid in found[participant.name] - (names if participant is keeper else kept):
                settle_in(participant, xid, committed=xid in self._prepared.committed)
        self._prepared.forget_committed()
        return logged
