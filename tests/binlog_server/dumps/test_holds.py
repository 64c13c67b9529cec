"""A dump keeps the files that it reads, and counts as a replica, until it ends."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine.references import Pin, Reason, References

from tests.binlog_server.lab import DEADLINE_S, Lab, until, within

STORE = StoreOptions(4 * 16384, 2 * 16384, slave_connections_needed_for_purge=1)


def held(references: References) -> list[tuple[str, int]]:
    return [(h.name, h.file_no) for h in references.holds() if h.reason is Reason.DUMP]


async def test_a_dump_holds_what_it_reads() -> None:
    async with Lab(store=STORE) as lab:
        engine = lab.engine
        assert isinstance(engine, IbbEngine)
        references = engine.references
        for n in range(1, 5):
            lab.publish(f"0-1-{n}")
            engine.flush()
        no_replica = engine.purge_to(4)
        assert (no_replica.delete, no_replica.kept) == ([], 0)
        assert "slave_connections_needed_for_purge" in no_replica.why
        replica = await lab.replica("0-1-2", server_id=77)
        await replica.opening()
        assert await replica.groups(2) == "0-1-3,0-1-4"
        await until(lambda: held(references) == [("server_id 77", 4)])
        assert engine.purge_to(4).delete == [0, 1, 2, 3]
        lab.publish("0-1-5")
        engine.flush()
        lab.publish("0-1-6")
        assert await replica.groups(2) == "0-1-5,0-1-6", "it goes on over the purge"
        await until(lambda: held(references) == [("server_id 77", 5)])
        replica.client.close()
        await until(lambda: held(references) == [])


async def test_a_dump_that_is_refused_holds_nothing() -> None:
    async with Lab(store=STORE) as lab:
        engine = lab.engine
        assert isinstance(engine, IbbEngine)
        lab.publish("0-1-1,0-1-2")
        engine.flush()
        lab.publish("0-1-3")
        hold = engine.hold("test", engine.durable_end, dump=True)
        assert engine.purge_to(1).delete == [0]
        hold.release()
        replica = await lab.replica("0-1-1")
        number, text = await replica.refused()
        assert number == 1236
        assert text.startswith("Could not find GTID state requested by slave in any binlog files.")
        await until(lambda: held(engine.references) == [])


async def test_two_dumps_hold_each_their_own() -> None:
    async with Lab(store=STORE) as lab:
        engine = lab.engine
        assert isinstance(engine, IbbEngine)
        lab.publish("0-1-1")
        engine.flush()
        lab.publish("0-1-2")
        one = await lab.replica(server_id=1)
        two = await lab.replica(server_id=2)
        await one.opening()
        await two.opening()
        assert await one.groups(2) == await two.groups(2) == "0-1-1,0-1-2"
        both = [("server_id 1", 1), ("server_id 2", 1)]
        await until(lambda: sorted(held(engine.references)) == both)
        one.client.close()
        await until(lambda: held(engine.references) == [("server_id 2", 1)])


async def test_a_dump_that_begins_during_a_reset() -> None:
    """The loop goes on meanwhile. What it holds then is the new binlog."""
    async with Lab(store=STORE) as lab:
        engine = lab.engine
        assert isinstance(engine, IbbEngine)
        engine.references.close(is_empty=True)  # as RESET MASTER does first ...
        replica = await lab.replica(server_id=77)
        other = await lab.client()
        assert await other.query("SELECT 1") == [["1"]]
        assert held(engine.references) == []
        engine.references.open()  # ... and last
        await replica.opening()
        assert held(engine.references) == [("server_id 77", 0)]
        lab.publish("0-1-1")
        assert await replica.groups(1) == "0-1-1"


async def test_many_dumps_that_begin_during_a_reset() -> None:
    """More than the loop has threads: what others do in a thread goes on."""
    async with Lab(store=STORE) as lab:
        engine = lab.engine
        assert isinstance(engine, IbbEngine)
        threads = ThreadPoolExecutor(3)
        asyncio.get_running_loop().set_default_executor(threads)
        engine.references.close(is_empty=True)
        replicas = [await lab.replica(server_id=100 + n) for n in range(10)]
        await until(lambda: sum(c.command == "Binlog Dump" for c in lab.server.connections) == 10)
        for _ in range(20):
            await within(asyncio.to_thread(lambda: None))
        assert held(engine.references) == []
        engine.references.open()
        for replica in replicas:
            await replica.opening()
        assert len(held(engine.references)) == 10


async def test_a_replica_that_leaves_during_a_reset_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Lab(store=STORE) as lab:
        engine = lab.engine
        assert isinstance(engine, IbbEngine)
        hold, asked = engine.hold, threading.Event()

        def hold_and_tell(*values: Any, **names: Any) -> Pin:
            try:
                return hold(*values, **names)
            finally:
                asked.set()

        monkeypatch.setattr(engine, "hold", hold_and_tell)
        engine.references.close(is_empty=True)
        replica = await lab.replica(server_id=77)
        await until(lambda: [c.command for c in lab.server.connections] == ["Binlog Dump"])
        replica.client.close()
        await until(lambda: not list(lab.server.connections))
        await until(asked.is_set)  # its thread may be late: it is not to ask behind the reset
        engine.references.open()
        engine.hold("the end of the waiting").release()
        await until(lambda: held(engine.references) == [])
        await asyncio.to_thread(engine.reset)


async def test_a_replica_that_leaves_while_its_hold_is_taken_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that takes it looks at files, and cannot be stopped: what it brings is nobody's."""
    async with Lab(store=STORE) as lab:
        engine = lab.engine
        assert isinstance(engine, IbbEngine)
        real, goes_on, taken = engine.hold, threading.Event(), threading.Event()

        def hold(*told: Any, **more: Any) -> Pin:
            goes_on.wait(DEADLINE_S)
            try:
                return real(*told, **more)
            finally:
                taken.set()

        monkeypatch.setattr(engine, "hold", hold)
        replica = await lab.replica(server_id=77)
        await until(lambda: any(c.dump_server_id for c in lab.server.connections))
        replica.client.close()
        await until(lambda: not any(c.dump_server_id for c in lab.server.connections))
        goes_on.set()
        await until(taken.is_set)
        await until(lambda: held(engine.references) == [])
        await asyncio.to_thread(engine.reset)
