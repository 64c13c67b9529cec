"""XA transactions: prepared beside the binlog, a group at XA COMMIT, gone at XA ROLLBACK."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager

from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.appender import JoinedTables
from binlog_storage.binlog.decision import Decision, tell
from binlog_storage.classic.large_commits import LargeCommit, LargeCommits
from binlog_storage.classic.patience import Patience
from binlog_storage.classic.rotation import Rotation
from binlog_storage.classic.spool import Spool
from binlog_storage.classic.two_phase import RowTwoPhase
from binlog_storage.classic.written_log import CACHE_BYTES, NO_FILE, WrittenLog
from binlog_storage.classic.xa_files import PreparedFile
from binlog_storage.engine import Position, Xid
from binlog_storage.engine.references import Reason
from binlog_storage.errors import DiskError, XaStateError
from binlog_storage.tables.records import SMALL_BYTES
from binlog_storage.tables.store import TableStep


class XaGroups:
    """Of one store; each method from any thread."""

    def __init__(
        self,
        binlog: WrittenLog,
        patience: Patience,
        rotation: Rotation,
        large: LargeCommits,
        two_phase: RowTwoPhase,
    ) -> None:
        self._log = binlog
        self._patience = patience
        self._rotation = rotation
        self._large = large
        self._two_phase = two_phase
        self._completing: set[Xid] = set()  # prepared transactions that are being committed

    def turn_of(self, xid: Xid) -> AbstractContextManager[None] | None:
        """See `EngineWriter`."""
        with self._log.lock:
            prepared = self._log.xa.by_xid.get(xid)
        return None if prepared is None or prepared.size <= CACHE_BYTES else self._large.turn()

    def keep(self, prepared: PreparedFile) -> None:
        """A prepared transaction refuses RESET MASTER."""
        prepared.hold = self._log.references.hold(Reason.PREPARED_XA, prepared.xid.sql(), NO_FILE)

    def prepared(self) -> list[Xid]:
        """See `EngineAdmin`."""
        with self._log.lock:
            return list(self._log.xa.by_xid)

    def prepare(
        self,
        xid: Xid,
        spool: Spool,
        given_up: Callable[[], bool],
        tables: JoinedTables | None = None,
        engines: int = 1,
    ) -> Position:
        """Prepare the transaction of an open group: durable when it returns, as is all that was appended before.

        Its file is written without locks. Then its rows are prepared: the name of the file decides.
        """
        rows = self._log.rows

        def write() -> PreparedFile:
            self._log.soundness.require_sound()
            return self._log.xa.write(xid, len(spool), spool.plain())

        written = self._patience.until_done(write, given_up)

        def noted() -> Position:
            if rows is not None and tables is not None:
                with self._log.lock:
                    rows.admit(SMALL_BYTES)
            with self._log.syncing, self._log.writing, self._log.lock:
                self._log.soundness.require_sound()
                if xid in self._log.xa.by_xid:
                    raise XaStateError(f"the XID {xid} is prepared already")
                step = None
                if rows is not None and tables is not None:
                    step = tables.preparing(xid, engines)
                    rows.log_tables(step.record)
                self._log.sync_once()
                self._log.xa.add(written)
                self.keep(written)
                if step is not None:
                    step.done()
                return self._log.written_end

        try:
            end = self._patience.until_done(noted, given_up)
        except BaseException:
            with contextlib.suppress(DiskError):
                self._log.xa.drop(written)
            raise
        self._log.soundness.wake()
        return end

    def _prepared(self, xid: Xid) -> PreparedFile:
        """Under the append lock."""
        self._log.soundness.require_sound()
        if xid not in self._log.xa.by_xid or xid in self._completing:
            raise XaStateError(f"the XID {xid} is not prepared")
        return self._log.xa.by_xid[xid]

    def commit(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        """See `EngineWriter.commit_prepared`."""
        decision = self._two_phase.completing(xid)
        if decision is None:
            step = None if self._log.rows is None else self._log.rows.tables.store.completing(xid)
            return self._commit_prepared(xid, gtid_event, gtid, step)
        end = self.decide(decision, xid, gtid_event, gtid)
        self._two_phase.finish(decision)
        return end

    def decide(self, decision: Decision, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        """See `TableEngine`."""
        assert self._log.rows is not None
        ending = self._log.rows.tables.store.completing(xid)
        assert ending is not None
        return self._commit_prepared(
            xid, gtid_event, gtid, self._two_phase.decided(decision, ending)
        )

    def _commit_prepared(
        self, xid: Xid, gtid_event: bytes, gtid: Gtid, step: TableStep | None
    ) -> Position:
        with self._log.lock:
            prepared = self._prepared(xid)
            self._completing.add(xid)
        try:
            ending = None if step is None else lambda: step
            group = LargeCommit(gtid_event, gtid, None, lambda: False, ending, prepared)
            return self._append_prepared(group, prepared)
        finally:
            with self._log.lock:
                self._completing.discard(xid)

    def _append_prepared(self, group: LargeCommit, prepared: PreparedFile) -> Position:
        """A large one becomes a cache file first, which can be renamed as that of any other transaction."""
        xa = self._log.xa
        xa.verify(prepared)
        if self._large.is_large(prepared.size):
            spool = self._large.new_spool()
            try:
                for piece in xa.pieces(prepared):
                    self._large.spill(spool, piece, group.given_up)
                spool.require_whole()
                end = self._large.rename(group, spool) if self._large.may_rename(spool) else None
            finally:
                spool.close()
            if end is not None:
                return end
        self._rotation.rotate_before_append()
        return self._large.copy(
            group, lambda: itertools.chain([group.gtid_event], xa.pieces(prepared))
        )

    def rollback(self, xid: Xid) -> Position:
        """See `EngineWriter.rollback_prepared`."""
        rows = self._log.rows
        trx = None if rows is None else rows.tables.store.prepared.get(xid)
        step = None if rows is None else rows.tables.store.reviving(xid)
        decision = self._two_phase.completing(xid)

        def ended() -> Position:
            self._log.admit_step(with_tables=step is not None)
            with self._log.syncing, self._log.writing, self._log.lock:
                prepared = self._prepared(xid)
                self._log.sync_once()
                with self._log.soundness.failing():
                    self._log.xa.remove(prepared)
                    self._log.files.disk.fsync_dir()
                self._log.xa.forget(prepared)
                if rows is not None and step is not None:
                    rows.log_tables(step.record)
                    step.done()
                return self._log.written_end

        end = self._patience.until_done(ended)
        if decision is not None:
            tell(decision.taking_part, decision.xid, committed=False)
        if rows is not None and trx is not None:
            rows.tables.store.roll_back(trx)
        self._log.soundness.wake()
        return end
