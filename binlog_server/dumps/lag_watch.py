"""Whether a replica is too far behind, and for how long it has not come nearer. Pure; time comes from outside.

Behind is what is durable and the replica has not taken.

In bytes: of binlog between the place where it is and the durable end.
In seconds: since the next byte that it has not been sent became durable here. That is the time of this server, which
    counts from the beginning of the dump: neither the clock of an upstream nor an old position puts anybody behind.

A replica is dropped when for a whole grace period it has been beyond a limit, and is no nearer at its end, in bytes,
than it was at its beginning. So whoever catches up may do so for as long as it takes. Nor is it judged while nothing
that it was given waits for it, nor for time in which nobody looked: what holds it up is this server then.
"""

from __future__ import annotations

from collections import deque

from binlog_protocol.dataclass import dataclass
from binlog_storage.engine import Position

from binlog_server.accounts.replica_policy import ReplicaPolicy

_MARKS_MAX = 512
_PAUSE_S = 5.0
"""Between two looks; behind longer ones this process, or its machine, has stood still."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The result of one look. `beyond`: the limit that is exceeded, as SQL names it; empty within the limits.

    `drops_in_s`: seconds until the grace period ends; 0: it has ended, and the replica came no nearer.
    """

    behind_bytes: int
    behind_s: float
    beyond: str = ""
    drops_in_s: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the replica is to be dropped."""
        return bool(self.beyond) and self.drops_in_s <= 0


class LagWatch:
    """For one dump. `policy` may be changed while it runs."""

    def __init__(self, policy: ReplicaPolicy) -> None:
        self.policy = policy
        # When the durable end was first seen where; only what lies before the replica's place is kept.
        self._marks: deque[tuple[float, Position]] = deque()
        self._grace_from: tuple[float, int] | None = (
            None  # since when it is beyond, and the bytes then
        )
        self._looked_at: float | None = None

    def look(
        self,
        now: float,
        sent: Position,
        end: Position,
        behind_bytes: int,
        grace_s: float,
        *,
        excused: bool = False,
    ) -> Lag:
        """Look, about once a second; `sent` is where the replica is, `end` the durable end.

        `excused`: it takes what it gets, wherever it is. The grace period begins anew.
        """
        behind_s = self._behind_s(now, sent, end)
        beyond = self._limit_exceeded(behind_bytes, behind_s)
        paused_s = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at - _PAUSE_S)
        self._looked_at = now
        if not beyond:
            self._grace_from = None
            return Lag(behind_bytes, behind_s)
        if self._grace_from is None or excused:
            self._grace_from = now, behind_bytes
        elif paused_s:
            since, bytes_then = self._grace_from
            self._grace_from = since + paused_s, bytes_then
        since, bytes_then = self._grace_from
        if now - since >= grace_s and behind_bytes < bytes_then:
            self._grace_from = now, behind_bytes  # nearer: another period
            since = now
        return Lag(behind_bytes, behind_s, beyond, max(0.0, since + grace_s - now))

    def _behind_s(self, now: float, sent: Position, end: Position) -> float:
        marks = self._marks
        while marks and marks[0][1] <= sent:
            marks.popleft()
        if sent < end and (not marks or marks[-1][1] < end):
            marks.append((now, end))
        if len(marks) > _MARKS_MAX:
            # For days behind: every second one will do, and the first one, which tells the lag.
            self._marks = marks = deque(mark for n, mark in enumerate(marks) if n % 2 == 0)
        return now - marks[0][0] if marks else 0.0

    def _limit_exceeded(self, behind_bytes: int, behind_s: float) -> str:
        policy = self.policy
        if policy.max_lag_bytes and behind_bytes > policy.max_lag_bytes:
            return f"MAX_LAG_BYTES {policy.max_lag_bytes}"
        if policy.max_lag_seconds and behind_s > policy.max_lag_seconds:
            return f"MAX_LAG_SECONDS {policy.max_lag_seconds}"
        return ""
