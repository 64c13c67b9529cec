"""Frames that are made once for all."""

from __future__ import annotations

import asyncio
import gc
from typing import NoReturn

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.engine import GroupBatch, Position
from binlog_storage.errors import CorruptBinlog
from binlog_storage.testing.memory_engine import BATCH_GROUPS

from binlog_server.dumps import frame_cache
from binlog_server.dumps.frame_cache import FrameCache
from binlog_server.dumps.frame_style import EngineStyle
from tests.binlog_server.engines import SlowEngine
from tests.binlog_server.lab import fill, until, within

PLAIN = EngineStyle(annotate=True, skip_marked=False)
START = Position(0, 0)


async def all_made(cache: FrameCache) -> None:
    """Until no thread is at a batch."""
    await until(lambda: not cache._being_made)


@pytest.fixture
def engine() -> SlowEngine:
    engine = SlowEngine()
    fill(engine, [Gtid(0, 1, n) for n in range(1, 4 * BATCH_GROUPS + 1)])
    return engine


async def test_one_read_for_all(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    batches = await within(asyncio.gather(*(cache.frames(START, PLAIN) for _ in range(50))))
    assert engine.reads.count(START) == 1
    assert all(batch is batches[0] for batch in batches)
    assert (cache.hits, cache.misses) == (49, 1)
    assert await cache.frames(START, PLAIN) is batches[0]
    assert engine.reads.count(START) == 1


async def test_recent_frames_are_made_without_a_thread(engine: SlowEngine) -> None:
    engine.recent = True
    cache = FrameCache(engine, 1 << 20)
    making = cache.frames(START, PLAIN)
    with pytest.raises(StopIteration) as done:
        making.send(None)
    assert done.value.value.end == Position(0, BATCH_GROUPS)


async def test_each_style_has_its_own(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    styles = [EngineStyle(annotate, skip) for annotate in (True, False) for skip in (True, False)]
    batches = await within(asyncio.gather(*(cache.frames(START, style) for style in styles)))
    assert len({id(batch) for batch in batches}) == len(styles)
    assert engine.reads.count(START) == len(styles)
    again = await within(asyncio.gather(*(cache.frames(START, style) for style in styles)))
    assert all(a is b for a, b in zip(batches, again, strict=True))


async def test_bytes_are_bounded_and_the_least_used_goes(engine: SlowEngine) -> None:
    engine.recent = True  # nothing is made ahead
    size = (await FrameCache(engine, 1).frames(START, PLAIN)).frames.memory_bytes
    cache = FrameCache(engine, 2 * size + size // 2)
    first, second, third = (Position(0, n * BATCH_GROUPS) for n in range(3))
    engine.reads.clear()
    for start in (first, second, first, third, first, second):
        await cache.frames(start, PLAIN)
    assert engine.reads == [first, second, third, second]
    assert sum(batch.frames.memory_bytes for batch in cache._made.values()) <= 2 * size + size // 2
    assert sum(batch.frames.memory_bytes for batch in cache._made.values()) == cache._bytes


async def test_one_batch_beyond_the_limit_is_kept(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1)
    one = await cache.frames(START, PLAIN)
    assert await cache.frames(START, PLAIN) is one


async def test_the_durable_end_is_not_kept(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    end = engine.durable_end
    assert (await cache.frames(end, PLAIN)).end == end
    fill(engine, [Gtid(0, 1, 1000)])
    assert (await cache.frames(end, PLAIN)).end > end


async def test_who_asked_first_may_go(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    engine.read_gate.clear()
    first = asyncio.ensure_future(cache.frames(START, PLAIN))
    others = [asyncio.ensure_future(cache.frames(START, PLAIN)) for _ in range(3)]
    await until(lambda: len(engine.reads) == 1)
    first.cancel()
    others[1].cancel()
    await until(first.done)
    engine.read_gate.set()
    batches = await within(asyncio.gather(others[0], others[2]))
    assert batches[0] is batches[1]
    assert first.cancelled()
    assert engine.reads.count(START) == 1


async def test_error_reaches_all_and_is_not_kept(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    engine.read_error = CorruptBinlog(0, 16384, "CRC mismatch")
    found = await within(
        asyncio.gather(*(cache.frames(START, PLAIN) for _ in range(5)), return_exceptions=True)
    )
    assert found == [engine.read_error] * 5
    assert len(engine.reads) == 1
    engine.read_error = None
    assert (await cache.frames(START, PLAIN)).end == Position(0, BATCH_GROUPS)


SECOND = Position(0, BATCH_GROUPS)


def start(number: int) -> Position:
    """Where a batch begins."""
    return Position(0, number * BATCH_GROUPS)


@pytest.fixture
def long() -> SlowEngine:
    engine = SlowEngine()
    fill(engine, [Gtid(0, 1, n) for n in range(1, 40 * BATCH_GROUPS + 1)])
    return engine


async def test_batches_are_made_ahead_in_a_row(long: SlowEngine) -> None:
    cache, ahead = FrameCache(long, 1 << 20), frame_cache._AHEAD
    first = await within(cache.frames(START, PLAIN))
    await all_made(cache)
    assert first.end == SECOND
    # That nobody has taken when the thread looks: the first may be one of them.
    assert len(long.reads) in (ahead, ahead + 1)
    assert (cache.hits, cache.misses, cache.made_ahead) == (0, 1, len(long.reads) - 1)
    for number in range(1, 30):  # who need not wait from now on has one made ahead
        before = len(long.reads)
        await within(cache.frames(start(number), PLAIN))
        await all_made(cache)
        assert len(long.reads) == max(before, number + 2)
    assert cache.misses == 1
    long.read_gate.clear()
    await within(cache.frames(start(30), PLAIN))
    waits = asyncio.ensure_future(cache.frames(start(31), PLAIN))
    await until(lambda: long.reads[-1] == start(31))
    long.read_gate.set()
    await within(waits)
    await all_made(cache)
    assert len(long.reads) - 32 in (ahead - 1, ahead), "in a row again"
    await within(cache.frames(START, PLAIN))  # someone behind: nothing is made twice
    await all_made(cache)
    assert long.reads == [start(n) for n in range(len(long.reads))]


async def test_with_many_replicas_one_batch_is_made_ahead(long: SlowEngine) -> None:
    cache = FrameCache(long, 1 << 20)
    for number in range(20):
        batches = await within(
            asyncio.gather(*(cache.frames(start(number), PLAIN) for _ in range(16)))
        )
        assert len({id(batch) for batch in batches}) == 1
        await all_made(cache)
        cache._waited = True  # they had to
    assert len(long.reads) == 21, "of the first row all but one were taken since"


async def test_who_comes_to_a_batch_that_a_row_has_reached_waits_for_that(long: SlowEngine) -> None:
    cache = FrameCache(long, 1 << 20)
    long.read_gate.clear()
    first = asyncio.ensure_future(cache.frames(START, PLAIN))
    await until(lambda: long.reads == [START])
    long.read_gate.set()
    await within(first)
    followers = [asyncio.ensure_future(follow(cache, 20)) for _ in range(5)]
    await within(asyncio.gather(*followers))
    await all_made(cache)
    assert sorted(long.reads) == [start(n) for n in range(len(long.reads))], "nothing is read twice"


async def follow(cache: FrameCache, batches: int) -> None:
    cursor = START
    for _ in range(batches):
        batch = await cache.frames(cursor, PLAIN)
        assert batch.frames.packets
        cursor = batch.end


async def test_replicas_at_many_places(long: SlowEngine) -> None:
    """Each gets all of it, in its order, whoever makes it; and the cache is as large as it says."""
    size = (await within(FrameCache(long, 1).frames(START, PLAIN))).frames.memory_bytes
    for bytes_max in (1, 3 * size, 9 * size, 1 << 20):
        cache = FrameCache(long, bytes_max)

        async def drain(cache: FrameCache, number: int, style: EngineStyle) -> None:
            cursor = start(number)
            while cursor < long.durable_end:
                batch = await cache.frames(cursor, style)
                assert batch.end == Position(0, cursor.offset + BATCH_GROUPS)
                cursor = batch.end
                for _ in range(number % 3):  # some are faster
                    await asyncio.sleep(0)

        styles = PLAIN, EngineStyle(annotate=False, skip_marked=False)
        drains = [drain(cache, n, styles[n % 2]) for n in (0, 0, 1, 2, 5, 6, 7, 20, 30, 39)]
        await within(asyncio.gather(*drains))
        await all_made(cache)
        kept = sum(batch.frames.memory_bytes for batch in cache._made.values())
        assert kept == cache.memory_bytes <= max(bytes_max, size)
        assert cache._ahead.keys() <= cache._made.keys()


async def test_little_memory_is_not_filled_with_what_nobody_asked_for(long: SlowEngine) -> None:
    cache = FrameCache(long, 1)
    size = (await within(cache.frames(START, PLAIN))).frames.memory_bytes
    await all_made(cache)
    long.reads.clear()
    cache = FrameCache(long, 2 * size)
    for number in range(20):
        await within(cache.frames(start(number), PLAIN))
        await all_made(cache)
        assert len(long.reads) == number + 2, "one ahead, as the next would push that out"


async def test_an_error_in_a_row_is_told_to_who_comes_there(
    long: SlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FrameCache(long, 1 << 20)
    original, broken = long.read, start(3)

    def read(position: Position) -> GroupBatch:
        if position == broken:
            raise CorruptBinlog(0, 16384, "CRC mismatch")
        return original(position)

    monkeypatch.setattr(long, "read", read)
    for number in range(3):
        await within(cache.frames(start(number), PLAIN))
        await all_made(cache)
    for _ in range(2):
        with pytest.raises(CorruptBinlog):
            await within(cache.frames(broken, PLAIN))
    monkeypatch.setattr(long, "read", original)
    assert (await within(cache.frames(broken, PLAIN))).end == start(4)
    await within(cache.frames(start(4), PLAIN))


async def test_a_row_ends_where_nothing_follows(
    long: SlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the end of a part of an archive, behind which there are others."""
    cache = FrameCache(long, 1 << 20)
    original, last, asked = long.read, start(2), list[Position]()

    def read(position: Position) -> GroupBatch:
        asked.append(position)
        return GroupBatch(position, position, []) if position == last else original(position)

    monkeypatch.setattr(long, "read", read)
    for number in (0, 1):
        await within(cache.frames(start(number), PLAIN))
        await all_made(cache)
    assert asked[:3] == [START, SECOND, last]
    assert asked.count(last) == len(asked) - 2 <= 2, "for the row, and for who comes next"
    assert (await within(cache.frames(last, PLAIN))).end == last, "nothing is kept of an end"


async def test_where_there_is_no_thread_it_is_told(
    long: SlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FrameCache(long, 1 << 20)

    def no_thread(*_: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "run_in_executor", no_thread)
        with pytest.raises(RuntimeError):
            await within(cache.frames(START, PLAIN))
        assert not cache._being_made
    assert (await within(cache.frames(START, PLAIN))).end == SECOND


async def test_nothing_is_made_ahead_of_the_end(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    last = Position(0, 3 * BATCH_GROUPS)
    assert (await within(cache.frames(last, PLAIN))).end == engine.durable_end
    assert engine.reads == [last]
    assert not cache._being_made


async def test_an_error_ahead_is_told_to_who_comes_there(
    engine: SlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_cache, "_AHEAD", 1)
    cache = FrameCache(engine, 1 << 20)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await within(cache.frames(START, PLAIN))
    await all_made(cache)
    engine.read_error = CorruptBinlog(0, 16384, "CRC mismatch")
    await within(cache.frames(SECOND, PLAIN))
    await all_made(cache)
    gc.collect()
    assert complaints == []
    third = Position(0, 2 * BATCH_GROUPS)
    with pytest.raises(CorruptBinlog):
        await within(cache.frames(third, PLAIN))
    engine.read_error = None
    assert (await within(cache.frames(third, PLAIN))).frames.packets


async def test_nothing_is_made_ahead_while_many_are_made(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    engine.recent = True
    first = await within(cache.frames(START, PLAIN))
    engine.recent = False
    engine.read_gate.clear()
    styles = [EngineStyle(annotate, skip) for annotate in (True, False) for skip in (True, False)]
    third = Position(0, 2 * BATCH_GROUPS)
    making = [asyncio.ensure_future(cache.frames(third, style)) for style in styles]
    await until(lambda: len(cache._being_made) == 4)
    assert await within(cache.frames(START, PLAIN)) is first
    assert cache.made_ahead == 0
    engine.read_gate.set()
    await within(asyncio.gather(*making))


async def test_groups_come_from_a_thread_only_when_they_must(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    assert len((await within(cache.groups(START, PLAIN))).groups) == BATCH_GROUPS
    engine.recent = True
    with pytest.raises(StopIteration):
        cache.groups(START, PLAIN).send(None)


async def test_much_with_checksums_is_made_in_a_thread(
    engine: SlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has other replicas to serve; a little at the tail it makes at once."""
    engine.recent = True
    crc = EngineStyle(annotate=True, skip_marked=False, checksum=True)
    cache = FrameCache(engine, 1 << 20)
    with pytest.raises(StopIteration):
        cache.frames(START, crc).send(None)
    monkeypatch.setattr(frame_cache, "_LITTLE", BATCH_GROUPS)  # an engine in memory counts groups
    second = Position(0, BATCH_GROUPS)
    with pytest.raises(StopIteration):
        cache.frames(second, PLAIN).send(None)
    waiting = asyncio.ensure_future(cache.frames(second, crc))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert (await within(waiting)).end == Position(0, 2 * BATCH_GROUPS)


@pytest.mark.parametrize("recent", [True, False])
async def test_frames_of_a_binlog_that_was_reset(engine: SlowEngine, recent: bool) -> None:
    """A replica that came during RESET MASTER has the same cache as those before it."""
    engine.recent = recent
    cache = FrameCache(engine, 1 << 20)
    old = await within(cache.frames(START, PLAIN))
    engine.reset()
    fill(engine, [Gtid(9, 1, 1)])
    new = await within(cache.frames(START, PLAIN))
    assert new.end == Position(0, 1)
    assert old.end == Position(0, BATCH_GROUPS)
    assert cache.memory_bytes == new.frames.memory_bytes
    assert await within(cache.frames(START, PLAIN)) is new


async def test_frames_that_were_being_made_when_the_binlog_was_reset(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    engine.read_gate.clear()
    ahead = asyncio.ensure_future(cache.frames(START, PLAIN))
    await until(lambda: engine.reads == [START])
    engine.reset()
    fill(engine, [Gtid(9, 1, 1)])
    new = asyncio.ensure_future(cache.frames(START, PLAIN))
    await until(lambda: engine.reads == [START, START])
    engine.read_gate.set()
    await within(asyncio.gather(ahead, new))
    assert (await within(cache.frames(START, PLAIN))) is new.result()
    assert cache.memory_bytes == new.result().frames.memory_bytes
