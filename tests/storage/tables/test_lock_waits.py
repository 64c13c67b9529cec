"""Waits for locks that hold no thread: what an event loop does with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import Deadlock, DuplicateKey, LockWaitTimeout, WaitGivenUp
from binlog_storage.tables.store import LockBusy, LockWait, TableTransaction
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.tables.test_transactions import T, engine_with, rows


def begun(engine: IbbEngine) -> TableTransaction:
    t = engine.tables.begin()
    t.blocks = False
    return t


def busy(call: Callable[[], object]) -> LockWait:
    with pytest.raises(LockBusy) as raised:
        call()
    return raised.value.wait


def test_it_goes_on_when_the_lock_is_there() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1", b"b": b"1"})
    one, two = begun(engine), begun(engine)
    one.put(T, b"a", b"2")
    two.put(T, b"b", b"2")
    wait = busy(lambda: two.put(T, b"a", b"3"))
    told: list[str] = []
    wait.when_over(lambda: told.append("over"))
    assert not wait.is_over
    assert two.changes == 1, "nothing of the call is done"
    for call in (lambda: two.put(T, b"c", b"3"), lambda: two.lock(T, b"c"), two.commit):
        busy(call)  # it stands in the queue, and does nothing else
    assert engine.tables.locks.waits == 1
    assert not told
    one.commit()
    assert told == ["over"]
    wait.when_over(lambda: told.append("at once"))
    assert told == ["over", "at once"]
    wait.result()
    assert two.put(T, b"a", b"3") == b"2"
    two.commit()
    assert rows(engine) == {b"a": b"3", b"b": b"2"}
    assert not len(engine.tables.locks)


def test_inserts_that_will_be_refused_wait_side_by_side() -> None:
    """For a committed row that another one changes: as in InnoDB, who is refused has a share of it and no more."""
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    one, two, three = begun(engine), begun(engine), begun(engine)
    one.put(T, b"a", b"2")
    waits = [busy(lambda t=t: t.insert(T, b"a", b"3")) for t in (two, three)]  # type: ignore[misc]
    one.commit()
    for t, wait in zip((two, three), waits, strict=True):
        assert wait.is_over, "for nobody else"
        wait.result()
        with pytest.raises(DuplicateKey):
            t.insert(T, b"a", b"3")
    two.rollback()
    three.rollback()
    assert not len(engine.tables.locks)


def test_an_insert_waits_alone_for_a_row_that_may_be_gone() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    one, two, three = begun(engine), begun(engine), begun(engine)
    one.delete(T, b"a")
    first = busy(lambda: two.insert(T, b"a", b"3"))
    second = busy(lambda: three.insert(T, b"a", b"3"))
    one.commit()
    assert first.is_over
    assert not second.is_over, "or both would insert it, and one be rolled back for the other"
    first.result()
    two.insert(T, b"a", b"3")
    two.commit()
    assert second.is_over


def test_a_lock_that_was_asked_for_stays_where_the_change_is_undone() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1", b"b": b"1"})
    one, two = begun(engine), begun(engine)
    before = one.savepoint()
    one.put(T, b"a", b"2")
    one.put(T, b"b", b"2")
    assert one.lock(T, b"a") == b"2"
    one.rollback_to(before)
    two.put(T, b"b", b"3")
    wait = busy(lambda: two.put(T, b"a", b"3"))
    one.commit()
    assert wait.is_over
    two.rollback()
    assert not len(engine.tables.locks)


def test_a_wait_that_took_too_long() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    one, two = begun(engine), begun(engine)
    one.put(T, b"a", b"2")
    wait = busy(lambda: two.lock(T, b"a"))
    told: list[str] = []
    wait.when_over(lambda: told.append("over"))
    wait.time_out()
    wait.time_out()
    assert told == ["over"]
    assert engine.tables.locks.timeouts == 1
    with pytest.raises(LockWaitTimeout):
        wait.result()
    two.put(T, b"b", b"1")  # the transaction goes on
    two.commit()
    one.commit()
    assert rows(engine) == {b"a": b"2", b"b": b"1"}


def test_the_victim_of_a_circle_is_undone_by_its_own_thread() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1", b"b": b"1"})
    big, little = begun(engine), begun(engine)
    big.put(T, b"c", b"2")
    big.put(T, b"a", b"2")
    little.put(T, b"b", b"2")
    wait = busy(lambda: little.put(T, b"a", b"3"))
    other = busy(lambda: big.put(T, b"b", b"3"))
    assert wait.is_over
    assert not other.is_over, "the victim holds its locks until it is undone"
    with pytest.raises(Deadlock):
        wait.result()
    assert little.ended
    assert other.is_over
    other.result()
    big.put(T, b"b", b"3")
    big.commit()
    assert rows(engine) == {b"a": b"2", b"b": b"3", b"c": b"2"}


def test_who_would_close_the_circle_and_is_the_cheapest() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1", b"b": b"1"})
    big, little = begun(engine), begun(engine)
    big.put(T, b"c", b"2")
    big.put(T, b"a", b"2")
    little.put(T, b"b", b"2")
    wait = busy(lambda: big.put(T, b"b", b"3"))
    with pytest.raises(Deadlock):
        little.put(T, b"a", b"3")  # no wait at all
    wait.result()
    big.rollback()
    assert rows(engine) == {b"a": b"1", b"b": b"1"}


@pytest.mark.parametrize("by", ["give_up", "rollback", "close"])
def test_a_session_that_ends_while_it_waits(by: str) -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    one, two, three = begun(engine), begun(engine), begun(engine)
    one.put(T, b"a", b"2")
    two.put(T, b"b", b"2")
    wait = busy(lambda: two.put(T, b"a", b"3"))
    behind = busy(lambda: three.lock(T, b"b"))
    if by == "give_up":
        two.give_up()
    elif by == "rollback":
        two.rollback()
    else:
        engine.tables.close()
    assert wait.is_over
    with pytest.raises(WaitGivenUp):
        wait.result()
    two.rollback()
    assert behind.is_over
    one.commit()
    if by != "close":
        three.lock(T, b"b")
    three.rollback()
    assert rows(engine) == {b"a": b"2"}
    assert not len(engine.tables.locks)


SESSIONS = 100


def test_who_commits_is_not_hurt_by_who_waits(caplog: pytest.LogCaptureFixture) -> None:
    """A loop may be closed already: its lock is there all the same, and the other ones are free."""
    engine = engine_with(MemoryDisk(), {b"a": b"1", b"b": b"1"})
    one, two, three = begun(engine), begun(engine), begun(engine)
    one.put(T, b"a", b"2")
    one.put(T, b"b", b"2")
    loop = asyncio.new_event_loop()
    loop.close()
    for t, key in ((two, b"a"), (three, b"b")):
        busy(lambda t=t, key=key: t.lock(T, key)).when_over(  # type: ignore[misc]
            lambda: loop.call_soon_threadsafe(lambda: None)
        )
    one.commit()
    assert one.ended
    assert caplog.text.count("could not be told of it") == 2
    two.rollback()
    three.rollback()
    assert not len(engine.tables.locks)
    assert rows(engine) == {b"a": b"2", b"b": b"2"}


async def changed(
    engine: IbbEngine, key: bytes, row: bytes, all_wait: asyncio.Event
) -> bytes | None:
    """As a session does: what works in a thread gives it back while it waits."""
    loop = asyncio.get_running_loop()
    t = begun(engine)
    while True:
        try:
            before = await asyncio.to_thread(t.put, T, key, row)
            break
        except LockBusy as error:
            over = asyncio.Event()
            error.wait.when_over(lambda over=over: loop.call_soon_threadsafe(over.set))  # type: ignore[misc]
            if engine.tables.locks.waits == SESSIONS:
                all_wait.set()
            timer = loop.call_later(30, error.wait.time_out)
            await over.wait()
            timer.cancel()
            await asyncio.to_thread(error.wait.result)
    await asyncio.to_thread(t.commit)
    return before


async def test_a_hundred_sessions_and_no_thread_of_theirs() -> None:
    engine = engine_with(MemoryDisk(), {b"a": b"0"})
    first = begun(engine)
    first.put(T, b"a", b"first")
    waits = asyncio.Event()
    sessions = [
        asyncio.create_task(changed(engine, b"a", b"%d" % n, waits)) for n in range(SESSIONS)
    ]
    await waits.wait()
    # All threads that there are for this are free.
    assert await asyncio.to_thread(engine.tables.get, T, b"a") == b"0"
    first.commit()
    before = await asyncio.gather(*sessions)
    assert sorted([*before, engine.tables.get(T, b"a")]) == sorted(  # type: ignore[type-var]
        [b"first", *(b"%d" % n for n in range(SESSIONS))]
    )
    assert not len(engine.tables.locks)
