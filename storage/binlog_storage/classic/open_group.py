"""A group of a traditional store while it is open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.appender import JoinedTables
from binlog_storage.binlog.decision import Decision
from binlog_storage.classic.large_commits import Buffer, LargeCommits
from binlog_storage.classic.spool import SpoolMark
from binlog_storage.classic.two_phase import RowTwoPhase
from binlog_storage.classic.written_log import CACHE_BYTES, NO_FILE, WrittenLog
from binlog_storage.classic.xa_groups import XaGroups
from binlog_storage.engine import GroupMark, Position, Xid
from binlog_storage.engine.references import Pin, Reason
from binlog_storage.tables.store import TableStep


class ClassicGroup:
    """See `GroupWriter`. Its events wait in two lists beside the binlog.

    At the commit they are copied into it, or their file becomes the next binlog file.
    """

    def __init__(
        self,
        binlog: WrittenLog,
        large: LargeCommits,
        xa: XaGroups,
        two_phase: RowTwoPhase,
        tables: JoinedTables | None = None,
    ) -> None:
        self._log = binlog
        self._large = large
        self._xa = xa
        self._two_phase = two_phase
        self._tables = tables
        self._transactional = large.new_spool()
        self._statement = large.new_spool()
        self._hold: Pin | None = None
        self._closed = False
        self._given_up = False

    @property
    def spilled(self) -> bool:
        return bool(len(self._transactional) or len(self._statement))

    def spill(self, data: Buffer, *, statement: bool = False) -> None:
        self._require_open()
        self._log.require_sound()
        if data:
            self._hold = self._hold or self._log.references.hold(
                Reason.ACTIVE_TRANSACTION, "", NO_FILE
            )
            spool = self._statement if statement else self._transactional
            self._large.spill(spool, data, lambda: self._given_up)

    def mark(self) -> GroupMark:
        return GroupMark(self._transactional.mark())

    def rewind(self, mark: GroupMark) -> None:
        assert isinstance(mark.transactional, SpoolMark)
        self._transactional.rewind(mark.transactional)

    def settle(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """See `GroupWriter`: the file of a large group is durable then."""
        spool = self._statement if len(self._statement) else self._transactional
        if len(self._statement) and len(self._transactional):
            return
        if self._large.may_rename(spool):
            self._large.settle(spool, lambda: given_up() or self._given_up)

    def turn(self) -> AbstractContextManager[None] | None:
        """See `GroupWriter`: a group that is copied or renamed takes long."""
        is_long = len(self._statement) + len(self._transactional) > CACHE_BYTES
        return self._large.turn() if is_long else None

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        tables = self._tables
        return self._commit(gtid_event, gtid, age, None if tables is None else tables.ending)

    def decide(
        self, decision: Decision, gtid_event: bytes, gtid: Gtid, age: int | None = None
    ) -> Position:
        """As `commit`, of what engines with logs of their own have prepared."""
        tables, two_phase = self._tables, self._two_phase
        assert tables is not None
        return self._commit(
            gtid_event, gtid, age, lambda: two_phase.decided(decision, tables.ending())
        )

    def _commit(
        self, gtid_event: bytes, gtid: Gtid, age: int | None, ending: Callable[[], TableStep] | None
    ) -> Position:
        self._require_open()
        spools = [spool for spool in (self._statement, self._transactional) if len(spool)]
        end = self._large.append_spools(
            gtid_event, gtid, spools, age, lambda: self._given_up, ending
        )
        self.rollback()
        return end

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        self._require_open()
        if len(self._statement):
            raise ValueError("an XA transaction has no statement list: spill into one list only")
        end = self._xa.prepare(
            xid, self._transactional, lambda: self._given_up, self._tables, engines
        )
        self.rollback()
        return end

    def give_up(self) -> None:
        self._given_up = True

    def rollback(self) -> None:
        """See `GroupWriter`. A second call does nothing."""
        self._closed = True
        self._statement.close()
        self._transactional.close()
        if self._hold is not None:
            self._hold.release()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this group was committed, prepared or rolled back")
