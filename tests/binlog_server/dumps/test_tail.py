"""Waiting for the durable mark: nobody sleeps through a move."""

from __future__ import annotations

import asyncio
import threading

from binlog_protocol.gtid import Gtid
from binlog_storage.testing.memory_engine import MemoryEngine

from binlog_server.dumps.tail import Tail
from tests.binlog_server.lab import fill, until, within

ROUNDS = 2000


async def follow(tail: Tail, engine: MemoryEngine, last: int) -> int:
    """Wait as a dump does, until the mark is at `last`; returns the number of waits."""
    seen = waits = 0
    while seen < last:
        moved = tail.moved
        if engine.durable_end.offset == seen:
            await moved.wait()
            waits += 1
        else:
            seen = engine.durable_end.offset
    return waits


async def test_no_wake_up_is_lost() -> None:
    engine = MemoryEngine()
    tail = Tail(engine, asyncio.get_running_loop())

    def writer() -> None:
        for number in range(1, ROUNDS + 1):
            fill(engine, [Gtid(0, 1, number)])

    followers = [asyncio.ensure_future(follow(tail, engine, ROUNDS)) for _ in range(3)]
    thread = threading.Thread(target=writer)
    thread.start()
    await within(asyncio.gather(*followers))
    thread.join()
    tail.close()


async def test_one_move_at_a_time() -> None:
    """The last move is the one that is lost most easily: nothing comes after it."""
    engine = MemoryEngine()
    tail = Tail(engine, asyncio.get_running_loop())
    for number in range(1, 300):
        waiting = asyncio.ensure_future(follow(tail, engine, number))
        if number % 2:
            await asyncio.sleep(0)
        await asyncio.to_thread(fill, engine, [Gtid(0, 1, number)])
        await within(waiting)
    tail.close()


async def test_moves_in_a_row_wake_once() -> None:
    engine = MemoryEngine()
    tail = Tail(engine, asyncio.get_running_loop())
    moved = tail.moved
    for number in range(1, 10):
        fill(engine, [Gtid(0, 1, number)])
    assert not moved.is_set(), "waking is for the loop, not for the thread that syncs"
    await asyncio.sleep(0)
    await within(moved.wait())
    assert not tail.moved.is_set()
    tail.close()


async def test_where_nobody_wants_to_hear_of_it_nothing_is_scheduled() -> None:
    engine, loop = MemoryEngine(), asyncio.get_running_loop()
    tail, heard = Tail(engine, loop), list[int]()

    def told() -> None:
        heard.append(engine.durable_end.offset)

    fill(engine, [Gtid(0, 1, 1)])
    assert not tail._scheduled
    tail.tell(told)
    tail.tell(told)
    fill(engine, [Gtid(0, 1, 2)])
    await until(lambda: heard == [2])
    tail.tell_no_more(told)
    fill(engine, [Gtid(0, 1, 3)])
    assert not tail._scheduled
    moved = tail.moved
    fill(engine, [Gtid(0, 1, 4)])
    await within(moved.wait())
    assert heard == [2]
    tail.close()


async def test_closed_tail_hears_nothing() -> None:
    engine = MemoryEngine()
    tail = Tail(engine, asyncio.get_running_loop())
    tail.close()
    moved = tail.moved
    fill(engine, [Gtid(0, 1, 1)])
    await asyncio.sleep(0)
    assert not moved.is_set()


def test_a_loop_that_has_ended_is_left_alone() -> None:
    engine = MemoryEngine()
    loop = asyncio.new_event_loop()
    Tail(engine, loop)
    loop.close()
    fill(engine, [Gtid(0, 1, 1)])
    assert engine.durable_end == engine.written_end
