"""Replicas that have all that is durable, fed together.

A replica at the tail has no task, no timer and no batch of its own. When the durable mark moves, what is new is framed
once for each style of stream, and goes to the sockets of all replicas of that style in one pass; who is the first of
them takes turns. Heartbeats come from one heap.

A replica leaves, and its dump goes on by itself, where a pass has nothing for it: its socket is full, its account has a
rate, a file begins of which it must be told, a group is too large for memory, the frames would hold up the loop or
cannot be made, or the binlog was begun anew. When it is at the tail again, it comes back.

Passes keep a pace: behind each the feed rests for `PACE` times what it took. So one transaction alone waits for nobody,
and under load several share a pass, the more the more replicas there are. What an upstream sends meanwhile shares a
sync, too.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Final, Protocol

from binlog_protocol.errors import ProtocolError
from binlog_storage.engine import EngineReader, Position
from binlog_storage.errors import StorageError

from binlog_server.commits.syncer import Syncer
from binlog_server.dumps.frame_cache import FrameCache
from binlog_server.dumps.frame_style import FramedBatch, FrameStyle
from binlog_server.dumps.tail import Tail
from binlog_server.loop.turn import Turn

PACE: Final = 4.0
REST_S_MAX: Final = 0.01
_TIMER_STEP_S: Final = 0.001
_LOOK: Final = 16  # replicas between two looks at the clock


class Fed(Protocol):
    """A replica at the tail."""

    @property
    def cursor(self) -> Position:
        """It has all groups before this place."""

    def take(self, batch: FramedBatch, now: float) -> bool:
        """Send a batch that begins at its cursor, at the time `now` of the monotonic clock.

        False: it has to go on by itself, from its cursor, behind the batch or in front of it.
        """

    def heartbeat_due(self) -> float | None:
        """See `ReplicaStream`."""

    def beat(self) -> bool:
        """Send a heartbeat if one is due. False: as for `take`."""


class _Group:
    """The replicas of one style, all at one place."""

    def __init__(self, feed: TailFeed, style: FrameStyle, at: Position, age: int) -> None:
        self.members: dict[Fed, asyncio.Future[None]] = {}
        self.cursor = at
        self._feed = feed
        self._style = style
        self._age = age
        self._batch: FramedBatch | None = None  # under way
        self._todo: list[Fed] = []  # replicas that have not got it

    @property
    def place_to_join(self) -> Position:
        return self.cursor if self._batch is None else self._batch.end

    def serve(self, turn: Turn, age: int, end: Position) -> bool:
        """Send what is new, up to the durable `end` of now. False: the turn is over, and there is more."""
        while self.members:
            if self._batch is None and not self._next(age, end):
                return True
            if not self._send(turn):
                return False
            if self.cursor >= end:
                return True
        self._batch = None
        return True

    def _next(self, age: int, end: Position) -> bool:
        if age != self._age:
            self.release()
            return False
        if self.cursor >= end:
            return False
        try:
            batch = self._feed.frames.at_once(self.cursor, self._style, age)
        except (StorageError, ProtocolError):
            batch = None  # each meets it by itself, and tells its replica
        if batch is None or batch.large is not None or batch.overtaken:
            self.release()
            return False
        # Each is the last of all as often as the others.
        members, at = list(self.members), self._feed.passes % len(self.members)
        self._batch, self._todo = batch, members[at:] + members[:at]
        return True

    def _send(self, turn: Turn) -> bool:
        batch, todo, members = self._batch, self._todo, self.members
        assert batch is not None
        now = time.monotonic()
        for _ in range(_LOOK):
            if not todo:
                self.cursor, self._batch = batch.end, None
                return True
            member = todo.pop()
            if member in members and not member.take(batch, now):
                self.let_go(member)
        return not turn.is_over

    def release(self) -> None:
        """Let all go on by themselves."""
        for member in list(self.members):
            self.let_go(member)

    def let_go(self, member: Fed) -> None:
        fed = self.members.pop(member, None)
        if fed is not None and not fed.done():
            fed.set_result(None)


class TailFeed:
    """The replicas at the tail of one store. For one event loop.

    Args:
        tail: says when the durable mark has moved.
    """

    def __init__(
        self,
        engine: EngineReader,
        frames: FrameCache,
        tail: Tail,
        syncer: Syncer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.frames = frames
        self._syncer = syncer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._groups: dict[FrameStyle, _Group] = {}
        self.members: dict[Fed, _Group] = {}  # to be looked at from outside, not changed
        # When to look at whom: never behind the time when a heartbeat is due. Who has left is forgotten then.
        self._beats: list[tuple[float, int, Fed]] = []
        self._expected: set[Fed] = set()  # who is in it
        self._number = itertools.count()
        self._beat_timer: asyncio.TimerHandle | None = None
        self._next_pass: asyncio.Handle | None = None
        self._rest_until = 0.0
        self._spent = 0.0  # by the pass under way, in its turns so far
        self.passes = 0
        self._tail = tail
        syncer.readers_rest_s = self._rest_s
        syncer.while_moving = tail.while_moving

    def __len__(self) -> int:
        return len(self.members)

    async def stay(self, member: Fed, style: FrameStyle) -> bool:
        """Feed a replica that has all that is durable, until it has to go on by itself. False: not from here, now."""
        group = self._groups.get(style)
        if group is not None and group.place_to_join != member.cursor:
            self._pass()  # the others rest, and lack what it has
            group = self._groups.get(style)  # which the pass may have ended
        if group is None or not group.members:
            group = self._groups[style] = _Group(self, style, member.cursor, self.engine.age)
        elif group.place_to_join != member.cursor:
            return False
        fed = group.members[member] = self._loop.create_future()
        self.members[member] = group
        self._tail.tell(self._moved)
        self._expect_beat(member)
        self._syncer.readers_waiting += 1
        if self.engine.durable_end > member.cursor:
            self._moved()
        elif self.engine.written_end > member.cursor:
            self._syncer.request()
        try:
            await fed
        finally:
            self._syncer.readers_waiting -= 1
            group.members.pop(member, None)
            del self.members[member]
            if not self.members:
                self._tail.tell_no_more(self._moved)
        return True

    # --- passes ---

    def _rest_s(self) -> float:
        return self._rest_until - self._clock()

    def _moved(self) -> None:
        if self._next_pass is None and self._groups:
            rest_s = self._rest_s()
            if rest_s > 0:
                self._next_pass = self._loop.call_later(rest_s, self._pass)
            else:
                self._pass()

    def _pass(self) -> None:
        if self._next_pass is not None:
            self._next_pass.cancel()
            self._next_pass = None
        began = self._clock()
        turn, age, end = Turn(), self.engine.age, self.engine.durable_end
        whole = True
        is_empty = False
        for group in self._groups.values():
            whole = group.serve(turn, age, end)
            is_empty |= not group.members
            if not whole:
                break
        ended = self._clock()
        self._spent += ended - began
        if not whole:
            self._next_pass = self._loop.call_soon(self._pass)
            return
        self.passes += 1
        self._rest_until = ended + min(PACE * self._spent, REST_S_MAX)
        self._spent = 0.0
        if is_empty:
            self._groups = {style: group for style, group in self._groups.items() if group.members}

    # --- heartbeats ---

    def _expect_beat(self, member: Fed) -> None:
        due = member.heartbeat_due()
        if due is None or member in self._expected:
            return
        self._expected.add(member)
        heapq.heappush(self._beats, (due, next(self._number), member))
        if self._beats[0][2] is member:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        wait_s = max(0.0, self._beats[0][0] - self._clock())
        # uvloop rounds to milliseconds: a timer that fires before it is due would be set again, to none at all.
        self._beat_timer = self._loop.call_later(wait_s + _TIMER_STEP_S, self._beat)

    def _beat(self) -> None:
        self._beat_timer = None
        now = self._clock()
        again = []
        while self._beats and self._beats[0][0] <= now:
            _, _, member = heapq.heappop(self._beats)
            self._expected.remove(member)
            group = self.members.get(member)
            if group is None:
                continue
            if member.beat():
                again.append(member)
            else:
                group.let_go(member)
        for member in again:
            self._expect_beat(member)
        if self._beats:
            self._set_timer()
