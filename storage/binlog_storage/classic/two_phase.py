"""Commits in which other engines have a part, which have logs of their own (`ENGINE=SQLITE`): the binlog decides.

The steps that all stores share are in `binlog/decision.py`. That the binlog has decided is a row in the redo log, which
commits with the group, until all know it.
"""

from __future__ import annotations

import logging

from binlog_storage.binlog.decision import Deciding, Decision, xa_name
from binlog_storage.binlog.stored_tables import StoredTables
from binlog_storage.classic.row_log import RowLog
from binlog_storage.classic.written_log import NO_FILE, WrittenLog
from binlog_storage.engine import Xid
from binlog_storage.engine.references import Reason
from binlog_storage.tables.participants import RowKeeper
from binlog_storage.tables.store import TableStep, TableTransaction

log = logging.getLogger(__name__)


class RowDeciding(Deciding):
    """Commits with engines that have logs of their own. That the binlog has decided is a row in the redo log, which
    commits with the group, until all know it.
    """

    def __init__(self, row_log: RowLog) -> None:
        self._row_log = row_log

    def sync_log(self) -> None:
        """See `Deciding`."""
        self._row_log.sync_log()

    def known(self, xid: Xid) -> None:
        """See `Deciding`."""
        self._row_log.known(xid)


class RowTwoPhase:
    """Of one store; each method from any thread.

    Args:
        keeper: the other engine, which keeps the rows of tables whose numbers say so.
    """

    def __init__(self, binlog: WrittenLog, keeper: RowKeeper | None) -> None:
        self._log = binlog
        self.row_keeper = keeper

    def make_row_keeper(self) -> bool:
        """See `TableEngine`."""
        if self.row_keeper is None or self._log.rows is None:
            return False
        self.row_keeper.create(self._log.rows.redo.uuid)
        return True

    def begin(self, tables: TableTransaction, *, is_xa: bool = False) -> Decision:
        """See `TableEngine`."""
        assert self.row_keeper is not None
        assert self._log.rows is not None
        part = self.row_keeper.part(tables.changes_elsewhere())
        name = xa_name(self._log.rows.redo.uuid, tables.id) if is_xa else None
        decision = RowDeciding(self._log.rows).begin((part,), name)
        tables.ready(prepared=True)
        return decision

    def finish(self, decision: Decision) -> None:
        """See `TableEngine`."""
        assert self._log.rows is not None
        RowDeciding(self._log.rows).finish(decision)

    def decided(self, decision: Decision, end: TableStep) -> TableStep:
        """The end of a transaction of which other engines have a part. Under the append lock, right before its group
        is appended.
        """
        assert self._log.rows is not None
        ending = self._log.rows.decision(decision.xid, end)

        def done() -> None:
            ending.done()
            name = decision.xid.sql()
            decision.hold = self._log.references.hold(Reason.PREPARED_XA, name, NO_FILE)

        return TableStep(ending.record, done)

    def completing(self, xid: Xid) -> Decision | None:
        """See `TableEngine`."""
        rows, keeper = self._log.rows, self.row_keeper
        trx = None if rows is None else rows.tables.store.prepared.get(xid)
        if rows is None or trx is None or not trx.elsewhere or keeper is None:
            return None
        return Decision(xa_name(rows.redo.uuid, trx.id), (keeper,))

    def settle(self, rows: StoredTables) -> bool:
        """Undo what the binlog does not have prepared, or not everybody. Returns whether the log got records."""
        store, keeper, row_log = rows.store, self.row_keeper, self._log.rows
        assert row_log is not None
        elsewhere: set[Xid] = set()
        if keeper is not None:
            keeper.require_fits(row_log.redo.uuid, store.kept_elsewhere)
            elsewhere = set(keeper.recover())
        ended = False
        for xid, trx in list(store.prepared.items()):
            prepared = self._log.xa.by_xid.get(xid)
            if prepared is None:
                log.warning(
                    "the binlog does not know the prepared XA transaction %s: it is rolled back",
                    xid,
                )
            elif trx.engines > 1 and xa_name(row_log.redo.uuid, trx.id) not in elsewhere:
                log.warning("XA transaction %s is not prepared everywhere: it is rolled back", xid)
                self._log.xa.remove(prepared)
                self._log.files.disk.fsync_dir()
                self._log.xa.forget(prepared)
            else:
                continue
            store.revive(trx)
            ended = True
        return (keeper is not None and row_log.settle(keeper)) or ended
