"""Replicas that take little or nothing, stores that cannot be read, histories that are gone."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.gtid import Gtid
from binlog_storage.errors import CorruptBinlog
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory

from binlog_server.connections.channel import WRITE_BUFFER_BYTES
from binlog_server.sessions.conversation import Conversation
from tests.binlog_server.engines import SlowEngine
from tests.binlog_server.lab import DEADLINE_S, Lab, fill, transaction, until, within
from tests.binlog_server.transport import Held

GROUPS, GROUP_BYTES = 200, 100_000


def large_history(lab: Lab) -> None:
    for number in range(1, GROUPS + 1):
        gtid = Gtid(0, 1, number)
        lab.engine.append(transaction(gtid, "x" * GROUP_BYTES), gtid)
        if number % 50 == 0:
            lab.engine.sync()


def dumping(lab: Lab, server_id: int) -> Held:
    held = Held(lab.server)
    held.log_in()
    held.dump(server_id)
    return held


@pytest.mark.long
async def test_memory_is_bounded_and_others_go_on(lab: Lab) -> None:
    large_history(lab)
    slow, quick = dumping(lab, 1), dumping(lab, 2)
    async with asyncio.timeout(DEADLINE_S):
        while len(quick.transport.written) < GROUPS * GROUP_BYTES:
            quick.transport.take()
            await asyncio.sleep(0)
    assert slow.transport.held > WRITE_BUFFER_BYTES, "it was never full: nothing is shown"
    assert slow.transport.held < WRITE_BUFFER_BYTES + (4 << 20)
    before = slow.transport.held
    for _ in range(20):
        await asyncio.sleep(0)
    assert slow.transport.held == before
    async with asyncio.timeout(DEADLINE_S):
        while len(slow.transport.written) < GROUPS * GROUP_BYTES:
            slow.transport.take()
            await asyncio.sleep(0)
    await until(lambda: len(slow.transport.written) == len(quick.transport.written))
    assert [p.payload for p in slow.packets()] == [p.payload for p in quick.packets()]
    for held in (slow, quick):
        held.end()


async def test_net_write_timeout_aborts(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Conversation, "_net_write_timeout", lambda _: 0.02)
    large_history(lab)
    replica = await lab.replica(server_id=9)
    slow = dumping(lab, 1)
    await until(lambda: slow.transport.aborted)
    assert "it took nothing for net_write_timeout" in caplog.text
    slow.end()
    assert lab.server.connections.write_timeouts == 1
    assert all(record.levelno < logging.ERROR for record in caplog.records)
    await replica.opening()
    for number in range(1, GROUPS + 1):
        assert (await replica.group()).seq_no == number


async def test_who_takes_slowly_is_not_aborted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """One event may be larger than what a slow line carries in net_write_timeout."""
    monkeypatch.setattr(Conversation, "_net_write_timeout", lambda _: 0.03)
    large_history(lab)
    slow = dumping(lab, 1)
    await until(lambda: slow.transport.held > WRITE_BUFFER_BYTES)
    loop = asyncio.get_running_loop()
    end = loop.time() + 0.3
    while loop.time() < end:
        slow.transport.take(10)
        await asyncio.sleep(0)
        assert not slow.transport.aborted
    await until(lambda: slow.transport.aborted)
    slow.end()


@pytest.mark.parametrize(("value", "seconds"), [("5", 5), ("0", 1), ("DEFAULT", 60)])
async def test_net_write_timeout_is_the_sessions(lab: Lab, value: str, seconds: int) -> None:
    held = Held(lab.server)
    held.log_in()
    held.ask(Query(f"SET net_write_timeout={value}").build())
    assert held.conversation._net_write_timeout() == seconds
    held.end()


async def test_slow_replica_that_goes_away(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    large_history(lab)
    slow = dumping(lab, 1)
    await until(lambda: slow.transport.held > WRITE_BUFFER_BYTES)
    slow.transport.closing = True
    slow.end()
    dump = slow.conversation._dump
    assert dump is not None
    task = dump._task
    await until(task.done)
    assert all(record.levelno < logging.WARNING for record in caplog.records)


async def test_shutdown_does_not_wait_for_a_slow_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binlog_server.app.app.GOODBYE_S", 0.05)
    lab = Lab()
    await lab.server.start()
    large_history(lab)
    slow = dumping(lab, 1)
    await until(lambda: slow.transport.held > WRITE_BUFFER_BYTES)
    await within(lab.server.stop())
    assert slow.transport.closing
    packets = slow.packets()
    assert packets[-1].payload[:1] == b"\xfe"
    slow.end()


async def test_unreadable_store_is_1236() -> None:
    engine = SlowEngine()
    fill(engine, [Gtid(0, 1, 1)])
    engine.read_error = CorruptBinlog(3, 5 * 16384, "CRC mismatch", b"\1\2")
    async with Lab(engine) as lab:
        replica = await lab.replica()
        await replica.opening()
        errno, text = await replica.refused()
        assert errno == 1236
        assert text == str(engine.read_error)
        engine.read_error = None
        replica = await lab.replica()
        await replica.opening()
        assert await replica.groups(1) == "0-1-1"


@pytest.mark.parametrize("position", ["", "0-1-1", "0-1-3"])
async def test_purged_position(position: str) -> None:
    past = MemoryHistory()
    fill(MemoryEngine(past), [Gtid(0, 1, n) for n in range(1, 30)])
    past.purge(10)
    async with Lab(MemoryEngine(past)) as lab:
        replica = await lab.replica(position)
        assert await replica.refused() == (
            1236,
            "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old "
            "and required binlog files have been purged.",
        )
        replica = await lab.replica("0-1-10")
        await replica.opening()
        lists = await replica.event()
        assert lists[4] in (162, 163)


async def test_groups_that_come_while_a_replica_catches_up(lab: Lab) -> None:
    """From history to the tail, with another thread writing: each group once, in order."""
    count = 3000
    lab.publish([Gtid(0, 1, n) for n in range(1, 1001)])
    replicas = [await lab.replica(server_id=20 + n) for n in range(3)]

    def writer() -> None:
        for number in range(1001, count + 1):
            gtid = Gtid(0, 1, number)
            lab.engine.append(transaction(gtid), gtid)
            if number % 7 == 0 or number == count:
                lab.engine.sync()

    thread = threading.Thread(target=writer)
    thread.start()

    async def read(which: int) -> None:
        replica = replicas[which]
        await replica.opening()
        for number in range(1, count + 1):
            assert (await replica.group()).seq_no == number

    await within(asyncio.gather(*map(read, range(3))), 20)
    thread.join()


async def test_version_of_the_upstream_is_told(lab: Lab) -> None:
    await lab.server._upstream_is("10.11.19-MariaDB-" + "é" * 60)
    replica = await lab.replica()
    _, description = await replica.opening()
    version = FormatDescription.parse(description).server_version
    assert version.startswith("10.11.19-MariaDB-é")
    assert len(version.encode()) <= 50
