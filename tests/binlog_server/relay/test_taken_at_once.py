"""Bytes that are taken in the call that brings them: groups that come alone, without a turn of the loop and a task."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from binlog_protocol.connection.client import ClientConnection
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.groups.group_runs import HAS_C, GroupRun
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory

from binlog_server.relay import ingest
from binlog_server.relay.byte_stream import AT_ONCE_BYTES_MAX, ByteStream
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.status import UpstreamStatus
from tests.binlog_server.lab import transaction, until
from tests.binlog_server.relay.test_follower import (
    Delays,
    delays,
    durable,
    following,
    without_room,
)
from tests.binlog_server.relay.test_ingest import large
from tests.binlog_server.upstream import OPENING, FakeUpstream, Visit, description, groups
from tests.storage.groups import read_all
from tests.storage.sizes import small

__all__ = ["delays"]

pytestmark = pytest.mark.skipif(not HAS_C, reason="there are no runs then")


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that a task was woken by bytes."""
    receive, times = ClientLink.receive, []

    async def noted(self: ClientLink) -> None:
        await receive(self)
        times.append(1)

    monkeypatch.setattr(ClientLink, "receive", noted)
    return times


class Wait:
    """Somebody who waits for bytes, and somebody who is asked first."""

    def __init__(self) -> None:
        self.stream = ByteStream()
        self.taken: list[bytes] = []
        self.answers: Iterator[bool] = iter(())
        self.stream.taker = self._take
        self.task: asyncio.Task[None] | None = None

    async def begin(self, *answers: bool) -> None:
        self.answers = iter(answers)
        self.task = asyncio.ensure_future(self.stream.ready(60))
        await until(lambda: self.stream._waiter is not None)

    def _take(self) -> bool:
        self.taken.append(bytes(self.stream.take()))
        return next(self.answers)

    def came(self, data: bytes) -> None:
        self.stream.get_buffer(-1)[: len(data)] = data
        self.stream.buffer_updated(len(data))

    async def is_over(self) -> bool:
        assert self.task is not None
        await asyncio.wait([self.task], timeout=0.01)
        return self.task.done()


async def test_the_wait_goes_on_while_all_is_taken() -> None:
    wait = Wait()
    await wait.begin(True, True, False)
    due = wait.stream._due
    await until(lambda: asyncio.get_running_loop().time() > due - 60)  # a loop counts milliseconds
    wait.came(b"one")
    wait.came(b"two")
    assert not await wait.is_over()
    assert wait.stream._due > due, "bytes have come: the end of the wait is later"
    wait.came(b"three")
    assert await wait.is_over()
    assert wait.taken == [b"one", b"two", b"three"]
    wait.stream.close()


async def test_who_is_not_asked() -> None:
    wait = Wait()
    wait.came(b"nobody waits")
    assert bytes(wait.stream.take()) == b"nobody waits"
    await wait.begin()
    wait.came(bytes(AT_ONCE_BYTES_MAX + 1))
    wait.came(b"the wait is over")
    assert await wait.is_over()
    assert len(wait.stream.take()) == AT_ONCE_BYTES_MAX + 1 + len(b"the wait is over")
    assert wait.taken == []
    wait.stream.close()


async def test_groups_that_come_alone_wake_no_task(delays: Delays, woken: list[int]) -> None:
    history = MemoryHistory()
    status = UpstreamStatus("it")

    def stored(last: str) -> bool:
        return durable(history).endswith(last)

    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-1"))]) as upstream,
        following(upstream, MemoryEngine(history), status=status),
    ):
        await until(partial(stored, "0-1-1"))
        before = len(woken)
        for number in range(2, 20):
            upstream.send(groups(f"0-1-{number}"))
            await until(partial(stored, f",0-1-{number}"))
        assert len(woken) == before
        assert status.bytes_stored == 19 * len(transaction(Gtid(0, 1, 1)))
        assert status.stored.position == status.read.position > 4


MIXED = [
    *OPENING,
    *groups("0-1-1", "0-1-2", "5-1-1"),
    *map(append_checksum, large(Gtid(0, 1, 3), [9000] * 3)),
    *groups("0-1-4"),
    description(1),
    *map(append_checksum, large(Gtid(0, 1, 5), [50_000], standalone=True)),
    *groups("0-2-6", "0-1-7"),
]


@pytest.mark.parametrize("unsynced", [0, 64 << 20], ids=["waits for syncs", ""])
@pytest.mark.parametrize("size", [1, 5, 333, 1 << 20])
async def test_whatever_comes_together(
    size: int, unsynced: int, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is stored, in order and once, wherever the bytes are cut."""
    monkeypatch.setattr(ingest, "PIECE_BYTES", 4000)
    monkeypatch.setattr(ingest, "UNSYNCED_BYTES_MAX", unsynced)
    room: Callable[[ByteStream, int], memoryview] = ByteStream.get_buffer
    rng = random.Random(size)

    def few(self: ByteStream, hint: int) -> memoryview:
        return room(self, hint)[: rng.randint(1, size)]

    engine = IbbEngine(MemoryDisk(), small(6))
    async with FakeUpstream([Visit(OPENING)]) as upstream, following(upstream, engine):
        await until(lambda: upstream.streaming == 1)
        monkeypatch.setattr(ByteStream, "get_buffer", few)
        upstream.send(MIXED)
        await until(lambda: str(engine.binlog_state()) == "0-2-6,0-1-7,5-1-1")
    assert upstream.visits == 1
    engine.sync()
    found = [payload for payload in read_all(engine) if payload[4] != EventType.FORMAT_DESCRIPTION]
    assert [len(payload) for payload in found] == [
        *[len(transaction(Gtid(0, 1, 1)))] * 3,
        sum(map(len, large(Gtid(0, 1, 3), [9000] * 3))),
        len(transaction(Gtid(0, 1, 4))),
        sum(map(len, large(Gtid(0, 1, 5), [50_000], standalone=True))),
        *[len(transaction(Gtid(0, 1, 7)))] * 2,
    ]
    engine.close()


async def test_what_has_no_room_waits(delays: Delays) -> None:
    async with without_room() as (engine, upstream):
        upstream.send(groups("0-1-4"))
        engine.room = True
        await until(lambda: str(engine.binlog_state()) == "0-1-4")
    engine.sync()
    assert len(read_all(engine)) == 4


async def test_what_is_refused_ends_the_connection(
    delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    history = MemoryHistory()
    status = UpstreamStatus("it")
    async with (
        FakeUpstream([Visit(OPENING + groups("0-1-5"))]) as upstream,
        following(upstream, MemoryEngine(history), status=status),
    ):
        await until(lambda: durable(history) == "0-1-5")
        upstream.send(groups("0-1-6") + groups("0-1-3"))
        await until(lambda: status.errno != 0)
        assert "it sends 0-1-3, but 0-1-6 is stored already" in status.error
        await until(lambda: durable(history) == "0-1-5,0-1-6")


async def test_bytes_that_are_no_packet_are_told(
    delays: Delays, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the machine says of them, not that nothing came."""
    history = MemoryHistory()
    lend, fails = ClientConnection.lend_data, [ProtocolError("planted")]

    def broken(self: ClientConnection, data: memoryview) -> None:
        if fails:
            raise fails.pop()
        lend(self, data)

    async with (
        FakeUpstream([Visit(OPENING + groups(text)) for text in ("0-1-1", "0-1-2")]) as upstream,
        following(upstream, MemoryEngine(history)),
    ):
        await until(lambda: durable(history) == "0-1-1")
        monkeypatch.setattr(ClientConnection, "lend_data", broken)
        upstream.send(groups("0-1-2"))
        await until(lambda: durable(history) == "0-1-1,0-1-2")
    assert "lost upstream" in caplog.text
    assert ": planted" in caplog.text


async def test_a_defect_is_told_and_nothing_is_lost(
    delays: Delays, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is made again: the transport, whose call it is, hears nothing of it."""
    history = MemoryHistory()
    engine = MemoryEngine(history)
    append, fails = engine.append_run, [ZeroDivisionError("planted")]

    def broken(run: GroupRun, *given: Any) -> int:
        if fails:
            raise fails.pop()
        return append(run, *given)

    async with (
        FakeUpstream(
            [Visit(OPENING + groups("0-1-1")), Visit(OPENING + groups("0-1-2", "0-1-3"))]
        ) as upstream,
        following(upstream, engine),
    ):
        await until(lambda: durable(history) == "0-1-1")
        monkeypatch.setattr(engine, "append_run", broken)
        upstream.send(groups("0-1-2"))
        await until(lambda: durable(history) == "0-1-1,0-1-2,0-1-3")
    assert caplog.text.count("ZeroDivisionError: planted") == 1
    assert "Fatal error" not in caplog.text
