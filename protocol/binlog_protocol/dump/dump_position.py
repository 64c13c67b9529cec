"""The start, the filter and the end of a dump, by MariaDB's rules.

Pure decisions on GTIDs; who reads the store and who writes the socket asks here, group by group.
As MariaDB 10.11 and 11.8 behave (sql_repl.cc: check_slave_start_position, send_event_to_slave).

A requested position D-S-N means for domain D: skip until S-N has gone by, send what follows. The
skip set holds the domains where that has not happened yet. Domains that are not requested are sent
from their beginning. An UNTIL list means: send domain D up to its GTID; a domain that is not in the
list is not sent at all.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from binlog_protocol.errors import GtidDiverged, GtidMissing, GtidNotInBinlog, TargetNotInBinlog
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

_NONE: Final[frozenset[int]] = frozenset()


def check_position(
    state: BinlogState,
    position: SlavePosition,
    *,
    ignore_duplicates: bool = False,
    until: SlavePosition | None = None,
) -> None:
    """Whether a replica at `position` may connect to a binlog that is at `state`.

    Raises `GtidNotInBinlog` or `GtidDiverged` (1236) with MariaDB's text for a GTID that is not there. A domain that
    the binlog does not know is let through: see `DumpFilter`. Whether the position was purged is
    not decided here.
    """
    for gtid in position:
        if state.last(gtid.domain_id) is None:
            continue
        if _is_until_done(state, until, gtid.domain_id):
            continue
        _check_known_domain(state, gtid, ignore_duplicates=ignore_duplicates)


def _check_known_domain(state: BinlogState, gtid: Gtid, *, ignore_duplicates: bool) -> None:
    """Raises unless `gtid` or a later one of its server is there."""
    if _has(state, gtid):
        return
    last = state.last(gtid.domain_id)
    if last is not None and last.seq_no >= gtid.seq_no:
        raise GtidDiverged(gtid)
    if not ignore_duplicates:
        raise GtidNotInBinlog(gtid)


def check_target(state: BinlogState, target: SlavePosition) -> None:
    """Whether a binlog that is at `state` may reach a target. Raises `TargetNotInBinlog` (1236)."""
    for gtid in target:
        last = state.last(gtid.domain_id)
        if last is not None and last.seq_no >= gtid.seq_no and not _has(state, gtid):
            raise TargetNotInBinlog(gtid)


def _is_until_done(state: BinlogState, until: SlavePosition | None, domain_id: int) -> bool:
    """Whether the domain has nothing to send: its UNTIL is missing or already in the binlog."""
    if until is None:
        return False
    gtid = until.get(domain_id)
    return gtid is None or _has(state, gtid)


def _has(state: BinlogState, gtid: Gtid) -> bool:
    """Whether `gtid` or a later one of its server is there."""
    seq_no = state.get(gtid.domain_id, gtid.server_id)
    return seq_no is not None and seq_no >= gtid.seq_no


class Verdict(Enum):
    """The decision on one group."""

    SEND = "send"
    SKIP = "skip"


_SEND: Final = Verdict.SEND
_SKIP: Final = Verdict.SKIP


class DumpFilter:
    """Decides for one dump, group by group in binlog order. One thread.

    After each group (sent or skipped) the sender asks `take_gtid_list()` and `until_reached`; once
    `transparent` it may stop asking at all.
    """

    def __init__(
        self,
        position: SlavePosition,
        *,
        state_at_start: BinlogState,
        strict_mode: bool = False,
        ignore_duplicates: bool = False,
        until: SlavePosition | None = None,
        until_before_gtids: bool = False,
        binlog_state: BinlogState | None = None,
        target: SlavePosition | None = None,
        target_time: float | None = None,
    ) -> None:
        """`state_at_start`: the state just before the first group that will be decided.

        `binlog_state`: the live state of the whole binlog, only read. With it, a requested domain
        that the binlog does not know now is checked when its first group shows up; and an UNTIL
        that lies before the requested position counts as reached.

        `target`, `target_time`: the point up to which there is a history for this replica, whatever it asks for: GTIDs
        as of UNTIL, or in front of the first group of that time (seconds since 1970) or a later one.
        """
        self._strict_mode = strict_mode
        self._ignore_duplicates = ignore_duplicates
        self._until_before_gtids = until_before_gtids
        self._binlog_state = binlog_state
        self._state = state_at_start.copy()
        self._gtid_list_due = False
        # Domains that equal the request exactly have nothing left to skip.
        self._skip = {
            gtid.domain_id: gtid for gtid in position if state_at_start.last(gtid.domain_id) != gtid
        }
        # Requested domains of which nothing was ever logged: unknown, so not refuted.
        self._unseen: frozenset[int] = _NONE
        if binlog_state is not None:
            unseen = (domain for domain in self._skip if binlog_state.last(domain) is None)
            self._unseen = frozenset(unseen) or _NONE  # one for all: each takes 216 bytes
        self._until = None if until is None else self._open_until(until)
        self._target = None if target is None else self._open_until(target)
        self._target_time = target_time

    def _open_until(self, until: SlavePosition) -> dict[int, Gtid]:
        """The UNTIL domains that are not reached at the start."""
        return {
            gtid.domain_id: gtid
            for gtid in until
            if not _has(self._state, gtid) and not self._is_before_request(gtid)
        }

    def _is_before_request(self, until: Gtid) -> bool:
        """UNTIL is in the binlog, but the requested position is not: it lies beyond."""
        requested = self._skip.get(until.domain_id)
        live = self._binlog_state
        if requested is None or live is None or until.domain_id in self._unseen:
            return False
        return _has(live, until) and not _has(live, requested)

    def decide(self, gtid: Gtid, timestamp: int = 0) -> Verdict:
        """The next group of the binlog; `timestamp`: its time, in seconds since 1970.

        Raises `GtidMissing` (1236) for a hole in strict mode, as `check_position` for a domain that turns out
        to have another history than the replica's; `TargetNotInBinlog` if the target cannot come any more.
        """
        if self.transparent:
            return _SEND
        if self._target_time is not None and timestamp >= self._target_time:
            self._target = {}
            return _SKIP
        self._check_target(gtid)
        self._state.update(gtid)
        start = self._start_verdict(gtid)
        until = _end_verdict(self._until, gtid, before=self._until_before_gtids)
        target = _end_verdict(self._target, gtid)
        return _SEND if start is until is target is _SEND else _SKIP

    def _check_target(self, gtid: Gtid) -> None:
        """A later number of another server came: unless the target was in between, it will not come any more."""
        target = (self._target or {}).get(gtid.domain_id)
        if (
            target is not None
            and gtid.server_id != target.server_id
            and gtid.seq_no >= target.seq_no
            and not self._will_come(target)
        ):
            raise TargetNotInBinlog(target)

    def _will_come(self, target: Gtid) -> bool:
        """Whether it is in the binlog, so that it stands further behind: numbers may go back."""
        return self._binlog_state is not None and _has(self._binlog_state, target)

    def _start_verdict(self, gtid: Gtid) -> Verdict:
        """The verdict by the requested position; takes the domain off the skip set when it is reached."""
        requested = self._skip.get(gtid.domain_id)
        if requested is None:
            return _SEND
        if gtid.domain_id in self._unseen:
            self._unseen -= {gtid.domain_id}
            self._check_first_of_domain(requested)
        if gtid.server_id != requested.server_id or gtid.seq_no < requested.seq_no:
            return _SKIP
        if gtid.seq_no > requested.seq_no and self._strict_mode:
            raise GtidMissing(requested)
        del self._skip[gtid.domain_id]
        self._gtid_list_due = True
        return _SKIP if gtid.seq_no == requested.seq_no else _SEND

    def _check_first_of_domain(self, requested: Gtid) -> None:
        """The domain was empty when the replica connected; what has come must fit its position."""
        state = self._state.of_domain(requested.domain_id)
        if self._binlog_state is not None:
            state.overlay(self._binlog_state.of_domain(requested.domain_id).entries())
        _check_known_domain(state, requested, ignore_duplicates=self._ignore_duplicates)

    def send_marker(self) -> bool:
        """Whether a stored start marker at this place is sent.

        It makes a replica drop its temporary tables, so it must not come before the position. A
        domain without any history cannot hold the position back.
        """
        return self._skip.keys() <= self._unseen and not self.is_over

    def take_gtid_list(self) -> BinlogState | None:
        """The state for a fake GTID_LIST that is due now, after a requested position was reached.

        Once per requested domain; None when none is due.
        """
        if not self._gtid_list_due:
            return None
        self._gtid_list_due = False
        return self._state.copy()

    @property
    def state(self) -> BinlogState:
        """The state after the groups decided so far; not kept up once `transparent`."""
        return self._state

    @property
    def until_reached(self) -> bool:
        """Whether, with the group decided last, the stream ends.

        Then a GTID_LIST flagged UNTIL_REACHED is sent, and EOF. May be true from the start.
        """
        return self._until is not None and not self._until

    @property
    def target_reached(self) -> bool:
        """Whether, in front of the group decided last or behind it, the history of this replica ends."""
        return self._target is not None and not self._target

    @property
    def is_over(self) -> bool:
        """Whether nothing more is sent."""
        return self.until_reached or self.target_reached

    @property
    def transparent(self) -> bool:
        """Whether every later group and marker will be sent."""
        is_open = self._until is None and self._target is None and self._target_time is None
        return is_open and not self._skip and not self._gtid_list_due


def _end_verdict(ends: dict[int, Gtid] | None, gtid: Gtid, *, before: bool = False) -> Verdict:
    """The verdict by an UNTIL list or a target; takes the domain off it when its end is reached.

    `before`: the end itself is left out.
    """
    if ends is None:
        return _SEND
    end = ends.get(gtid.domain_id)
    if end is None:
        return _SKIP
    if gtid.server_id != end.server_id or gtid.seq_no < end.seq_no:
        return _SEND
    del ends[gtid.domain_id]
    # A group beyond the end (whose own is missing) is not what the replica asked for.
    return _SKIP if gtid.seq_no > end.seq_no or before else _SEND
