"""A group that goes to the store while it comes: in order, whole or not at all, and never far ahead of the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Any, cast

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.errors import DiskError

from binlog_server.commits.room import AppendRoom
from binlog_server.relay import large_group
from binlog_server.relay.large_group import IncomingGroup
from tests.binlog_server.lab import until, within
from tests.storage import groups

MIB = 1 << 20


class Writer:
    """A `GroupWriter` that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.done: list[str] = []
        self.is_storing = self.is_long = False
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.fails: Callable[[], None] = lambda: None

    def spill(self, data: bytes) -> None:
        self.is_storing = True
        assert self.may_go_on.wait(10)
        self.fails()
        self.told.append(bytes(data))

    def settle(self) -> None:
        self.done.append("settle")

    def turn(self) -> AbstractContextManager[None] | None:
        return self._in_turn() if self.is_long else None

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        self.done.append("turn")
        try:
            yield
        finally:
            self.done.append("turn is over")

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int) -> None:
        self.is_storing = True
        assert self.may_go_on.wait(10)
        self.fails()
        self.done.append(f"commit {gtid}")

    def give_up(self) -> None:
        self.done.append("give up")

    def rollback(self) -> None:
        self.done.append("rollback")


class Engine:
    """Always with room."""

    has_room_to_spill = True

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def begin(self, *, bulk: bool) -> Writer:
        assert bulk
        return self._writer


def begun() -> tuple[IncomingGroup, Writer]:
    writer = Writer()
    return IncomingGroup(AppendRoom(cast(Any, Engine(writer))), bulk=True), writer


async def turns() -> None:
    """So many for all others that whoever could go on has done so."""
    for _ in range(100):
        await asyncio.sleep(0)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "binlog-spill"]


@pytest.fixture(autouse=True)
async def _no_thread_is_left() -> Any:
    yield
    await until(lambda: not threads())


async def test_everything_in_order_and_settled_before_it_is_whole(rng: Random) -> None:
    payload, gtid = groups.group(Gtid(0, 1, 7), 3000)
    assert gtid is not None
    group, writer = begun()
    parts = [rng.randbytes(rng.randrange(1, 300_000)) for _ in range(200)]
    at = 0
    while at < len(parts):
        some = parts[at : at + rng.randrange(1, 12)]
        await group.spill(some)
        at += len(some)
    await group.finish(payload)
    assert writer.done == ["settle"]
    told = b"".join(writer.told)
    assert told.startswith(b"".join(parts))
    assert payload.endswith(told.removeprefix(b"".join(parts)))
    assert group.size == len(told)
    await group.commit(gtid, 0)
    assert writer.done == ["settle", f"commit {gtid}"]


async def test_a_commit_that_takes_long_is_done_in_a_thread_in_its_turn() -> None:
    group, writer = begun()
    gtid = Gtid(0, 1, 7)
    await group.finish(groups.group(gtid, 3000).payload)
    writer.is_long = True
    loop = threading.get_ident()
    threads: list[int] = []
    writer.fails = lambda: threads.append(threading.get_ident())
    await within(group.commit(gtid, 0))
    assert threads != [loop]
    assert writer.done == ["settle", "turn", f"commit {gtid}", "turn is over"]


async def test_cancelled_it_is_waited_for_in_its_turn() -> None:
    group, writer = begun()
    gtid = Gtid(0, 1, 7)
    await group.finish(groups.group(gtid, 3000).payload)
    writer.is_long, writer.is_storing = True, False
    writer.may_go_on.clear()
    committing = asyncio.ensure_future(group.commit(gtid, 0))
    await until(lambda: writer.is_storing)
    committing.cancel()
    await until(lambda: "give up" in writer.done)
    assert not committing.done()
    writer.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await within(committing)
    assert writer.done[1:] == ["turn", "give up", f"commit {gtid}", "turn is over"]


async def test_small_parts_are_joined_and_large_ones_are_not() -> None:
    group, writer = begun()
    await group.spill([b"a"] * (large_group._PARTS_MAX + 1))
    await group.spill([b"b"] * large_group._PARTS_MAX)
    await until(lambda: len(writer.told) == 2 + large_group._PARTS_MAX)
    assert writer.told[:2] == [b"a" * large_group._PARTS_MAX, b"a"]  # the last may be large
    await group.rollback()


async def test_it_waits_for_a_slow_store() -> None:
    group, writer = begun()
    writer.may_go_on.clear()
    spilled = 0

    async def spill() -> None:
        nonlocal spilled
        for _ in range(20):
            await group.spill([bytes(MIB)])
            spilled += 1

    spilling = asyncio.ensure_future(spill())
    await until(lambda: spilled >= large_group._QUEUE_BYTES // MIB)
    await turns()
    assert spilled <= large_group._QUEUE_BYTES // MIB + 1
    await until(lambda: group._room.waiting_s > 0)  # as the metrics tell
    writer.may_go_on.set()
    await within(spilling)
    assert group._room.waiting_s == 0
    await group.rollback()


async def test_what_needs_no_waiting_is_taken_at_once() -> None:
    group, writer = begun()
    writer.may_go_on.clear()
    engine = cast(Engine, group._room.engine)
    engine.has_room_to_spill = False
    assert not group.spill_at_once([b"no room"])
    engine.has_room_to_spill = True
    taken = 0
    while group.spill_at_once([bytes(MIB)]):
        taken += 1
    assert large_group._QUEUE_BYTES // MIB <= taken <= large_group._QUEUE_BYTES // MIB + 2
    assert group.size == taken * MIB
    writer.may_go_on.set()
    await within(group.spill([b"end"]))
    await until(lambda: b"".join(writer.told) == bytes(taken * MIB) + b"end")

    def fail() -> None:
        raise DiskError("cannot write")

    writer.fails = fail
    group.spill_at_once([b"x"])
    await until(lambda: group._failure is not None)
    with pytest.raises(DiskError, match="cannot write"):
        group.spill_at_once([b"y"])
    await group.rollback()


@pytest.mark.parametrize("when", ["spill", "finish"])
async def test_an_error_of_the_store_is_told(when: str) -> None:
    payload, _ = groups.group(Gtid(0, 1, 7), 3000)
    group, writer = begun()

    def fail() -> None:
        raise DiskError("cannot write")

    writer.fails = fail

    async def go_on() -> None:
        while when == "spill":
            await group.spill([b"x" * 100_000])
        await group.finish(payload)

    with pytest.raises(DiskError, match="cannot write"):
        await within(go_on())
    await group.rollback()
    assert writer.done == ["give up", "rollback"]


async def test_rolled_back_in_the_middle() -> None:
    """What waits is left out; nothing is told to the writer any more once it is rolled back."""
    group, writer = begun()
    writer.may_go_on.clear()
    for number in range(4):
        await group.spill([bytes((number,)) * 1000])
    await until(lambda: writer.is_storing)
    rolling = asyncio.ensure_future(group.rollback())
    await turns()
    assert not rolling.done(), "a piece is being stored"
    writer.may_go_on.set()
    await within(rolling)
    assert writer.done == ["give up", "rollback"]
    assert writer.told == [bytes(1000)]


async def test_cancelled_while_it_ends() -> None:
    payload, _ = groups.group(Gtid(0, 1, 7), 3000)
    group, writer = begun()
    writer.may_go_on.clear()
    ending = asyncio.ensure_future(group.finish(payload))
    await until(lambda: writer.is_storing)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    writer.may_go_on.set()
    await group.rollback()
    assert writer.done[-1] == "rollback"
