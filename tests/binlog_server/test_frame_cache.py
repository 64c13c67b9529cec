"""Frames that are made once for all."""

from __future__ import annotations

import asyncio

import pytest

from binlog_server.frame_cache import FrameCache, FrameStyle
from protocol.gtid import Gtid
from storage.engine import Position
from storage.errors import CorruptBinlog
from storage.memory_engine import BATCH_GROUPS

from .engines import SlowEngine
from .lab import fill, until, within

PLAIN = FrameStyle(annotate=True, skip_marked=False)
START = Position(0, 0)


@pytest.fixture
def engine() -> SlowEngine:
    engine = SlowEngine()
    fill(engine, [Gtid(0, 1, n) for n in range(1, 4 * BATCH_GROUPS + 1)])
    return engine


async def test_one_read_for_all(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    batches = await within(asyncio.gather(*(cache.frames(START, PLAIN) for _ in range(50))))
    assert engine.reads == [START]
    assert all(batch is batches[0] for batch in batches)
    assert (cache.hits, cache.misses) == (49, 1)
    assert await cache.frames(START, PLAIN) is batches[0]
    assert engine.reads == [START]


async def test_recent_frames_are_made_without_a_thread(engine: SlowEngine) -> None:
    engine.recent = True
    cache = FrameCache(engine, 1 << 20)
    making = cache.frames(START, PLAIN)
    with pytest.raises(StopIteration) as done:
        making.send(None)
    assert done.value.value.end == Position(0, BATCH_GROUPS)


async def test_each_style_has_its_own(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    styles = [FrameStyle(annotate, skip) for annotate in (True, False) for skip in (True, False)]
    batches = await within(asyncio.gather(*(cache.frames(START, style) for style in styles)))
    assert len({id(batch) for batch in batches}) == len(styles)
    assert len(engine.reads) == len(styles)
    again = await within(asyncio.gather(*(cache.frames(START, style) for style in styles)))
    assert all(a is b for a, b in zip(batches, again, strict=True))


async def test_bytes_are_bounded_and_the_least_used_goes(engine: SlowEngine) -> None:
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
    assert engine.reads == [START]


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


async def test_groups_come_from_a_thread_only_when_they_must(engine: SlowEngine) -> None:
    cache = FrameCache(engine, 1 << 20)
    assert len((await within(cache.groups(START))).groups) == BATCH_GROUPS
    engine.recent = True
    with pytest.raises(StopIteration):
        cache.groups(START).send(None)
