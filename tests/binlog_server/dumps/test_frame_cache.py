"""Frames that are made once for all."""

from __future__ import annotations

import asyncio
import gc

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.engine import Position
from binlog_storage.errors import CorruptBinlog
from binlog_storage.testing.memory_engine import BATCH_GROUPS

from binlog_server.dumps import frame_cache
from binlog_server.dumps.frame_cache import FrameCache
from binlog_server.dumps.frame_style import EngineStyle
from tests.binlog_server.engines import SlowEngine
from tests.binlog_server.lab import fill, until, within

PLAIN = EngineStyle(annotate=True, skip_marked=False)
START = Position(0, 0)


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


async def test_the_next_batch_is_made_ahead(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    first = await within(cache.frames(START, PLAIN))
    await until(lambda: not cache._being_made)
    assert engine.reads == [START, SECOND]
    assert first.end == SECOND
    await within(cache.frames(SECOND, PLAIN))
    assert engine.reads.count(SECOND) == 1
    assert (cache.hits, cache.misses, cache.made_ahead) == (1, 1, 2)
    await within(cache.frames(START, PLAIN))  # someone behind: nothing is made twice
    await until(lambda: not cache._being_made)
    assert engine.reads == [START, SECOND, Position(0, 2 * BATCH_GROUPS)]


async def test_nothing_is_made_ahead_of_the_end(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    last = Position(0, 3 * BATCH_GROUPS)
    assert (await within(cache.frames(last, PLAIN))).end == engine.durable_end
    assert engine.reads == [last]
    assert not cache._being_made


async def test_an_error_ahead_is_told_to_who_comes_there(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await within(cache.frames(START, PLAIN))
    await until(lambda: not cache._being_made)
    engine.read_error = CorruptBinlog(0, 16384, "CRC mismatch")
    await within(cache.frames(SECOND, PLAIN))
    await until(lambda: not cache._being_made)
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
