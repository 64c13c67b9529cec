"""Waiting for the durable mark: nobody sleeps through a move."""

from __future__ import annotations

import asyncio
import threading

import pytest
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


async def test_what_moves_in_a_call_is_told_in_it() -> None:
    engine, loop = MemoryEngine(), asyncio.get_running_loop()
    tail, heard = Tail(engine, loop), list[int]()
    tail.tell(lambda: heard.append(engine.durable_end.offset))
    moved = tail.moved

    def work() -> bool:
        fill(engine, [Gtid(0, 1, 1)])
        fill(engine, [Gtid(0, 1, 2)])
        assert not heard, "not in the midst of what moves it"
        return True

    assert tail.while_moving(work)
    assert heard == [2]
    assert moved.is_set()
    assert not tail._scheduled
    assert not tail.while_moving(lambda: False)
    await asyncio.sleep(0)
    assert heard == [2]
    fill(engine, [Gtid(0, 1, 3)])  # outside of it: in a turn of its own
    assert heard == [2]
    await until(lambda: heard == [2, 3])
    tail.close()


async def test_moves_by_threads_meanwhile_are_told_too() -> None:
    engine, loop = MemoryEngine(), asyncio.get_running_loop()
    tail, heard = Tail(engine, loop), list[int]()
    tail.tell(lambda: heard.append(engine.durable_end.offset))

    def work() -> bool:
        thread = threading.Thread(target=fill, args=(engine, [Gtid(0, 1, 1)]))
        thread.start()
        thread.join()
        return True

    assert tail.while_moving(work)
    await until(lambda: heard == [1])
    tail.close()


async def test_who_fails_when_told_does_not_fail_what_moved() -> None:
    engine, loop = MemoryEngine(), asyncio.get_running_loop()
    tail, said = Tail(engine, loop), list[object]()
    loop.set_exception_handler(lambda _, context: said.append(context.get("exception")))
    failure = RuntimeError("a defect")

    def told() -> None:
        raise failure

    def work() -> bool:
        fill(engine, [Gtid(0, 1, 1)])
        return True

    tail.tell(told)
    assert tail.while_moving(work)
    assert said == [failure]
    tail.tell_no_more(told)
    with pytest.raises(ZeroDivisionError):  # and what moves fails as it does
        tail.while_moving(lambda: bool(1 // 0))
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
