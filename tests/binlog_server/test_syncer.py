"""One sync for all that wait."""

from __future__ import annotations

import asyncio

import pytest

from binlog_server.syncer import Syncer
from protocol.gtid import Gtid
from storage.errors import DiskError

from .engines import SlowEngine
from .lab import transaction, until, within


def append(engine: SlowEngine, seq_no: int) -> None:
    gtid = Gtid(0, 1, seq_no)
    engine.append(transaction(gtid), gtid)


async def test_one_sync_for_many(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    engine.sync_gate.clear()
    append(engine, 1)
    waiting = [asyncio.ensure_future(syncer.synced())]
    await until(lambda: engine.syncs == 1)
    for number in range(2, 100):
        append(engine, number)
        syncer.request()
        waiting.append(asyncio.ensure_future(syncer.synced()))
    await asyncio.sleep(0)
    engine.sync_gate.set()
    await within(asyncio.gather(*waiting))
    assert engine.syncs == 2, "one that ran, and one for all that came meanwhile"
    assert engine.durable_end == engine.written_end


@pytest.fixture
def engine() -> SlowEngine:
    return SlowEngine()


async def test_synced_means_durable(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    for number in range(1, 50):
        append(engine, number)
        end = engine.written_end
        await within(syncer.synced())
        assert engine.durable_end >= end


async def test_request_is_enough(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    append(engine, 1)
    syncer.request()
    await until(lambda: engine.durable_end == engine.written_end)


async def test_failure_reaches_all_and_stays(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    engine.sync_gate.clear()
    engine.sync_error = DiskError("cannot sync: No space left on device")
    append(engine, 1)
    waiting = [asyncio.ensure_future(syncer.synced()) for _ in range(5)]
    await until(lambda: engine.syncs == 1)
    engine.sync_gate.set()
    found = await within(asyncio.gather(*waiting, return_exceptions=True))
    assert found == [engine.sync_error] * 5
    with pytest.raises(DiskError, match="No space left"):
        await within(syncer.synced())
    await within(syncer.close())


async def test_who_waits_may_go(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    engine.sync_gate.clear()
    append(engine, 1)
    first, second = (asyncio.ensure_future(syncer.synced()) for _ in range(2))
    await until(lambda: engine.syncs == 1)
    first.cancel()
    await until(first.done)
    engine.sync_gate.set()
    await within(second)
    assert engine.durable_end == engine.written_end


async def test_close_finishes_what_was_requested(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    append(engine, 1)
    syncer.request()
    await within(syncer.close())
    assert engine.durable_end == engine.written_end
    await within(Syncer(engine).close())
