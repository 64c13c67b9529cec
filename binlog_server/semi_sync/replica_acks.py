"""How far one replica has acknowledged its stream: its acknowledgements, matched with places in the store."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from binlog_protocol.wire.semi_sync import Ack, PositionStep, ReplicaPlace
from binlog_storage.engine import Position

# Of a replica that acknowledges nothing, so many are remembered.
_ASKED_MAX: Final = 1024


class _Asked(NamedTuple):
    """An acknowledgement with which the replica has everything before `end`."""

    ack: Ack
    end: Position


class ReplicaAcks:
    """The acknowledgements of one dump. Each one speaks for everything that was sent before it, too.

    Args:
        start: what lies before it, the replica has had already.
        checksum: events have one.
        moved: told each time that `acknowledged` moves.
    """

    def __init__(self, start: Position, *, checksum: bool, moved: Callable[[], None]) -> None:
        self.acknowledged = start
        """The replica has everything before this place of the store."""
        self._checksum = checksum
        self._moved = moved
        self._place = ReplicaPlace()
        self._asked: deque[_Asked] = deque()
        self._known: Counter[Ack] = Counter()  # of them: what is none of them is not looked for
        self._unasked = False  # groups were sent since the last one that asked
        self._wanted: Ack | None = None  # asked for, and it is not known yet what it speaks for

    # --- what is sent ---

    def sent_event(self, event: bytes) -> None:
        """Note an event that is in no store."""
        self._place.feed(event, self._checksum)

    def sent_frames(self, step: PositionStep, *, ack_wanted: bool) -> None:
        """Note packets of groups, and the replica's position behind them."""
        self._place.move(step)
        self._unasked = not ack_wanted
        self._wanted = self._place.ack if ack_wanted else None

    def sent_all_before(self, end: Position) -> None:
        """Note that all groups before `end` were sent, or left out for this replica."""
        wanted, self._wanted = self._wanted, None
        if self._unasked:
            return
        if wanted is not None:
            if len(self._asked) >= _ASKED_MAX:
                self._forget(self._asked.pop())
            self._asked.append(_Asked(wanted, end))
            self._known[wanted] += 1
        elif self._asked:
            self._asked[-1] = self._asked[-1]._replace(end=end)
        else:
            self._acknowledge(end)

    # --- what comes ---

    def received(self, ack: Ack) -> None:
        """Note an acknowledgement of the replica. One that was not asked for (inside a large group) says nothing.

        Only the very position counts, not a larger one: a position may go back, in front of a ROTATE. Of two that are
        the same the first is meant.
        """
        if ack not in self._known:
            return
        while True:
            asked = self._asked.popleft()
            self._forget(asked)
            if asked.ack == ack:
                self._acknowledge(asked.end)
                return

    def _forget(self, asked: _Asked) -> None:
        self._known[asked.ack] -= 1
        if not self._known[asked.ack]:
            del self._known[asked.ack]

    def _acknowledge(self, end: Position) -> None:
        if end > self.acknowledged:
            self.acknowledged = end
            self._moved()
