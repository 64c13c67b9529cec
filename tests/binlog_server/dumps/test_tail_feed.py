"""Replicas at the tail: each gets every group once, in order, whoever comes, goes, rests or fails meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock, patch

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.gtid import Gtid
from binlog_storage.engine import Position
from binlog_storage.errors import CorruptBinlog
from binlog_storage.testing.memory_engine import MemoryEngine

from binlog_server.commits.syncer import Syncer
from binlog_server.dumps import tail_feed
from binlog_server.dumps.frame_cache import FrameCache
from binlog_server.dumps.frame_style import EngineStyle, FramedBatch
from binlog_server.dumps.tail import Tail
from binlog_server.dumps.tail_feed import PACE, REST_S_MAX, TailFeed
from tests.binlog_server.lab import Lab, fill, transaction, until, within
from tests.binlog_server.transport import Held

STYLE = EngineStyle(annotate=True, skip_marked=False)
OTHER = EngineStyle(annotate=False, skip_marked=False)


class Clock:
    """Stands still, but for what a test says."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class Site:
    """A store, and the feed of its tail."""

    engine: MemoryEngine
    feed: TailFeed
    clock: Clock
    last: int = 0
    took: list[Taker] = field(default_factory=list)
    """Who has taken a batch, in order."""

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            self.last += 1
            fill(self.engine, [Gtid(0, 1, self.last)])

    async def moved(self) -> None:
        """The feed has heard of what was published."""
        passes = self.feed.passes
        self.publish()
        await until(lambda: self.feed.passes > passes)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    engine, clock = MemoryEngine(), Clock()
    tail, syncer = Tail(engine, asyncio.get_running_loop()), Syncer(engine)
    yield Site(engine, TailFeed(engine, FrameCache(engine, 1 << 20), tail, syncer, clock), clock)
    tail.close()
    await syncer.close()


class Taker:
    """A replica of these tests. `takes`: how many batches it takes before it has to go on by itself."""

    def __init__(
        self, site: Site, *, takes: int = 1 << 30, beats_every: float | None = None
    ) -> None:
        self.site = site
        self.cursor = site.engine.durable_end
        self.got: list[Position] = []
        self.takes = takes
        self.left = 0
        self.beats: list[float] = []
        self._beats_every, self._sent = beats_every, site.clock.now

    def take(self, batch: FramedBatch, now: float) -> bool:
        if not self.takes:
            return False
        self.takes -= 1
        groups = batch.end.offset - self.cursor.offset
        assert batch.frames.packets == 3 * groups > 0, "it begins where the replica is"
        self.cursor, self._sent = batch.end, self.site.clock.now
        self.got.append(batch.end)
        self.site.took.append(self)
        return bool(self.takes)

    def heartbeat_due(self) -> float | None:
        return None if self._beats_every is None else self._sent + self._beats_every

    def beat(self) -> bool:
        due = self.heartbeat_due()
        if due is not None and due <= self.site.clock.now:
            self.beats.append(self.site.clock.now)
            self._sent = self.site.clock.now
        return True

    async def stay(self, style: EngineStyle = STYLE) -> bool:
        stayed = await self.site.feed.stay(self, style)
        self.left += 1
        return stayed


@pytest.fixture
def started() -> Iterator[list[asyncio.Task[bool]]]:
    """Tasks that are cancelled in the end."""
    tasks: list[asyncio.Task[bool]] = []
    yield tasks
    for task in tasks:
        task.cancel()


async def staying(
    started: list[asyncio.Task[bool]], *takers: Taker, style: EngineStyle = STYLE
) -> None:
    before = len(takers[0].site.feed)
    started += [asyncio.ensure_future(taker.stay(style)) for taker in takers]
    await until(lambda: len(takers[0].site.feed) == before + len(takers))


async def test_one_pass_serves_all(site: Site, started: list[asyncio.Task[bool]]) -> None:
    takers = [Taker(site) for _ in range(40)]
    other = Taker(site)
    await staying(started, *takers)
    await staying(started, other, style=OTHER)
    misses = site.feed.frames.misses
    await site.moved()
    assert {taker.cursor for taker in (*takers, other)} == {site.engine.durable_end}
    assert site.feed.frames.misses == misses + 2, "framed once for each style"


async def test_each_is_the_last_in_turn(site: Site, started: list[asyncio.Task[bool]]) -> None:
    takers = [Taker(site) for _ in range(3)]
    await staying(started, *takers)
    last = []
    for _ in range(6):
        await site.moved()
        site.clock.now += REST_S_MAX
        last.append(site.took[-1])
    assert sorted(map(takers.index, last)) == [0, 0, 1, 1, 2, 2]


async def test_who_cannot_take_goes_on_by_itself(
    site: Site, started: list[asyncio.Task[bool]]
) -> None:
    stays, full, refuses = Taker(site), Taker(site, takes=1), Taker(site, takes=0)
    await staying(started, stays, full, refuses)
    await site.moved()
    await until(lambda: full.left == refuses.left == 1)
    assert full.cursor == stays.cursor == site.engine.durable_end
    assert refuses.cursor < stays.cursor, "it was sent nothing, and goes on from where it is"
    assert len(site.feed) == 1


async def test_a_later_one_joins_while_the_others_rest(
    site: Site, started: list[asyncio.Task[bool]]
) -> None:
    """It has what they lack: they get it at once, so that all are at one place."""
    first = Taker(site)
    await staying(started, first)
    site.feed._rest_until = site.clock.now + 1
    site.publish()
    await asyncio.sleep(0)
    later = Taker(site)
    assert later.cursor > first.cursor
    await staying(started, later)
    assert first.cursor == later.cursor
    site.feed._rest_until = 0.0
    await site.moved()
    assert first.cursor == later.cursor == site.engine.durable_end


async def test_a_later_one_comes_as_the_last_of_the_others_leaves(
    site: Site, started: list[asyncio.Task[bool]]
) -> None:
    """It begins a group of its own: nobody looks at the one that has ended."""
    first = Taker(site, takes=1)
    await staying(started, first)
    site.feed._rest_until = site.clock.now + 1
    site.publish()
    await asyncio.sleep(0)
    later = Taker(site)
    started.append(asyncio.ensure_future(later.stay()))
    await until(lambda: first.left == 1)
    site.feed._rest_until = 0.0
    site.publish()
    await until(lambda: later.cursor == site.engine.durable_end)


async def test_who_is_elsewhere_is_not_taken(site: Site, started: list[asyncio.Task[bool]]) -> None:
    await staying(started, Taker(site))
    behind = Taker(site)
    await site.moved()
    assert not await within(behind.stay())
    assert len(site.feed) == 1


async def test_what_became_durable_while_it_came_is_not_missed(
    site: Site, started: list[asyncio.Task[bool]]
) -> None:
    """No move of the mark may come after it."""
    taker = Taker(site)
    site.publish()
    await asyncio.sleep(0)  # the tail has told of it, to nobody
    await staying(started, taker)
    await until(lambda: taker.cursor == site.engine.durable_end)


async def test_what_is_written_is_synced_for_it(
    site: Site, started: list[asyncio.Task[bool]]
) -> None:
    gtid = Gtid(0, 1, 1)
    site.engine.append(transaction(gtid), gtid)
    taker = Taker(site)
    await staying(started, taker)
    await until(lambda: taker.cursor == site.engine.written_end)


async def test_a_turn_ends_between_replicas(site: Site, started: list[asyncio.Task[bool]]) -> None:
    """Others of the loop come in between; who comes or goes meanwhile has all, too."""
    takers = [Taker(site) for _ in range(100)]
    await staying(started, *takers)

    class Short:
        is_over = True

    with patch.object(tail_feed, "Turn", Short):
        passes = site.feed.passes
        site.publish()
        await until(lambda: any(taker.got for taker in takers))
        assert not all(taker.got for taker in takers)
        gone = next(i for i, taker in enumerate(takers) if not taker.got)
        started[gone].cancel()
        await until(lambda: len(site.feed) == 99)
        late = Taker(site)
        await staying(started, late)
        await until(lambda: site.feed.passes > passes)
    site.feed._rest_until = 0.0
    await site.moved()
    for taker in (*takers[:gone], *takers[gone + 1 :], late):
        assert taker.cursor == site.engine.durable_end
    assert not takers[gone].got


@pytest.mark.parametrize(
    "error", [CorruptBinlog(0, 0, "a page"), None], ids=["broken", "for a thread"]
)
async def test_all_go_where_frames_are_not_made_here(
    site: Site, started: list[asyncio.Task[bool]], error: Exception | None
) -> None:
    takers = [Taker(site) for _ in range(3)]
    await staying(started, *takers)
    with patch.object(site.feed.frames, "at_once", side_effect=error, return_value=None):
        site.publish()
        await until(lambda: all(taker.left for taker in takers))
    assert not len(site.feed)
    assert not any(taker.got for taker in takers)


async def test_all_go_when_the_binlog_is_begun_anew(
    site: Site, started: list[asyncio.Task[bool]]
) -> None:
    taker = Taker(site)
    await staying(started, taker)
    await site.moved()
    site.engine.reset()
    fill(site.engine, [Gtid(0, 1, 1), Gtid(0, 1, 2), Gtid(0, 1, 3)])
    await until(lambda: bool(taker.left))
    assert len(taker.got) == 1


async def test_many_histories(
    site: Site, rng: random.Random, started: list[asyncio.Task[bool]]
) -> None:
    """Replicas that come back as dumps do. Each group reaches each once: `take` looks."""

    async def dump(taker: Taker) -> bool:
        while True:
            if taker.cursor < site.engine.durable_end:  # by itself
                batch = await site.feed.frames.frames(taker.cursor, STYLE)
                taker.cursor = batch.end
                continue
            taker.takes = rng.randrange(6)
            if not await taker.stay():
                await asyncio.sleep(0)

    takers = [Taker(site) for _ in range(7)]
    started += [asyncio.ensure_future(dump(taker)) for taker in takers]
    for _ in range(400):
        site.publish(rng.randrange(1, 3))
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        site.clock.now += rng.choice([0, 0.0001, 1])
        if rng.random() < 0.1:
            site.feed._rest_until = site.clock.now + 0.5
    site.feed._rest_until = 0.0
    for taker in takers:
        await until(lambda taker=taker: taker.cursor >= site.engine.durable_end)  # type: ignore[misc]


async def test_the_feed_rests_in_proportion(site: Site, started: list[asyncio.Task[bool]]) -> None:
    class Slow(Taker):
        def take(self, batch: FramedBatch, now: float) -> bool:
            site.clock.now += 0.0005
            return super().take(batch, now)

    taker = Slow(site)
    await staying(started, taker)
    ended = site.clock.now
    await site.moved()
    assert site.feed._rest_until == pytest.approx(ended + 0.0005 * (1 + PACE))
    assert 0.0005 * PACE < REST_S_MAX
    rests: list[float] = []
    loop = site.feed._loop

    def later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        rests.append(seconds)
        return loop.call_later(3600, call)  # when the test says: its own clock stands still

    site.feed._loop = cast(asyncio.AbstractEventLoop, SimpleNamespace(call_later=later))
    site.publish(3)  # while it rests
    await until(lambda: bool(rests))
    assert rests == [pytest.approx(0.0005 * PACE)]
    assert taker.cursor < site.engine.durable_end
    site.feed._loop = loop
    site.clock.now += 1
    site.feed._pass()
    await until(lambda: taker.cursor == site.engine.durable_end)
    assert len(taker.got) == 2, "the three share a pass"


async def test_heartbeats(site: Site, started: list[asyncio.Task[bool]]) -> None:
    """Each when its own is due, whatever was sent between."""
    often, seldom, never = (
        Taker(site, beats_every=1.0),
        Taker(site, beats_every=2.5),
        Taker(site),
    )
    await staying(started, often, seldom, never)
    began = site.clock.now

    def at(seconds: float) -> None:
        site.clock.now = began + seconds
        site.feed._beat()

    at(0.9)
    assert not often.beats
    at(1.0)
    at(1.5)
    await site.moved()  # at 1.5
    at(2.4)
    assert often.beats == [began + 1.0]
    at(2.5)
    assert often.beats == [began + 1.0, began + 2.5]
    at(3.9)
    assert not seldom.beats
    at(4.0)
    assert seldom.beats == [began + 4.0]
    assert not never.beats


async def test_a_timer_of_heartbeats_is_never_early(
    site: Site, started: list[asyncio.Task[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops round to milliseconds: an early one finds nothing due, and is set again, a few times a beat."""
    loop = Mock(wraps=asyncio.get_running_loop())
    monkeypatch.setattr(site.feed, "_loop", loop)
    await staying(started, Taker(site, beats_every=0.0304))
    waits = [
        call.args[0] for call in loop.call_later.call_args_list if call.args[1] == site.feed._beat
    ]
    assert waits
    assert min(int(wait * 1000) / 1000 for wait in waits) >= 0.0304


async def test_who_comes_and_goes_is_expected_once(
    site: Site, started: list[asyncio.Task[bool]]
) -> None:
    taker = Taker(site, beats_every=1.0)
    for _ in range(50):
        await staying(started, taker)
        started.pop().cancel()
        await until(lambda: not len(site.feed))
    assert len(site.feed._beats) == 1
    site.clock.now += 2
    site.feed._beat()
    assert not taker.beats, "it is not here"
    assert not site.feed._beats


# --- in a server ---


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab() as lab:
        yield lab


async def test_replicas_of_a_server_share_the_tail(lab: Lab) -> None:
    lab.publish("0-1-1")
    replicas = [await lab.replica(server_id=100 + n) for n in range(5)]
    for replica in replicas:
        await replica.opening()
        assert str(await replica.group()) == "0-1-1"
    feed = lab.server._feed
    for number in range(2, 300):  # numbers of packets begin anew
        await until(lambda: len(feed) == 5)
        lab.publish(f"0-1-{number}")
        for replica in replicas:
            assert str(await replica.group()) == f"0-1-{number}"
    replicas[0].client.close()
    await until(lambda: len(feed) == 4)


async def test_who_takes_nothing_leaves_the_others(lab: Lab) -> None:
    replica = await lab.replica()
    await replica.opening()
    held = Held(lab.server)
    held.log_in()
    held.dump(7)
    feed = lab.server._feed
    await until(lambda: len(feed) == 2)
    held.session.pause_writing()
    lab.publish("0-1-1")
    assert str(await replica.group()) == "0-1-1"
    await until(lambda: len(feed) == 1)
    held.session.resume_writing()
    await until(lambda: len(feed) == 2)
    held.end()


async def test_a_heartbeat_is_not_due_for_who_has_gone(lab: Lab) -> None:
    """A dump hears of its connection's end a round later. The others get theirs, then and later."""
    gone = Held(lab.server)
    gone.log_in()
    gone.ask(Query("SET @master_heartbeat_period=1000000").build())
    gone.dump(7)
    feed = lab.server._feed
    await until(lambda: len(feed) == 1)
    replica = await lab.replica(server_id=100, master_heartbeat_period=1_000_000)
    await replica.opening()
    await until(lambda: len(feed) == 2)
    assert feed._beat_timer is not None
    feed._beat_timer.cancel()
    latest = max(due for due, _, _ in feed._beats)
    await until(lambda: time.monotonic() > latest)
    gone.session.connection_lost(None)
    feed._beat()
    for _ in range(3):
        HeartbeatEvent.parse(await replica.event())
    await until(lambda: len(feed) == 1)
