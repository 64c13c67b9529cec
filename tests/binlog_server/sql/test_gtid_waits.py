"""MASTER_GTID_WAIT of many: who waits costs a commit nothing until its GTID comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from unittest.mock import Mock

import pytest
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_server.sql.gtid_waits import GtidWaits
from tests.binlog_server.lab import Lab, until, within


class Store:
    """As much of an engine as is asked for: its state, and who is told."""

    def __init__(self) -> None:
        self.gtids: dict[int, Gtid] = {}
        self.told: list[Callable[[], None]] = []
        self.binlog_state = Mock(side_effect=self._state)

    def _state(self, domain_id: int | None = None) -> BinlogState:
        found = [g for g in self.gtids.values() if domain_id in (None, g.domain_id)]
        return BinlogState(found)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        self.told.append(wake)
        return lambda: self.told.remove(wake)

    def commit(self, gtid: str) -> None:
        made = Gtid.parse(gtid)
        self.gtids[made.domain_id] = made
        for wake in self.told:
            wake()


async def begun(waits: GtidWaits, wanted: list[str]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(waits.come(Gtid.parse(gtid))) for gtid in wanted]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("domains", [1, 5, 300])
async def test_a_commit_wakes_only_whose_gtid_has_come(domains: int) -> None:
    store = Store()
    waits = GtidWaits(store)  # type: ignore[arg-type]
    ever = await begun(waits, [f"{n % domains}-1-9999" for n in range(1000)])
    soon, later = await begun(waits, ["0-1-3", "0-1-5"])
    assert len(store.told) == 1
    store.binlog_state.reset_mock()
    for number in (1, 2, 3):
        store.commit(f"0-1-{number}")
        store.commit(f"0-1-{number}")  # two before the loop looks are one
        await asyncio.sleep(0)
    await within(soon)
    assert store.binlog_state.call_count <= 3 * 8
    assert not later.done()
    assert not any(task.done() for task in ever)
    store.commit("0-1-7")
    await within(later)
    for task in ever:
        task.cancel()
    await asyncio.gather(*ever, return_exceptions=True)
    assert store.told == [], "nobody waits, nobody is told"
    assert waits._waiting == {}


async def test_what_has_come_is_not_waited_for() -> None:
    store = Store()
    store.commit("4-1-7")
    await within(GtidWaits(store).come(Gtid.parse("4-1-7")))  # type: ignore[arg-type]
    assert store.told == []


async def test_many_sessions_are_one_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Lab() as lab:
        lab.publish("0-1-1")
        subscribed = Mock(side_effect=lab.engine.subscribe)
        monkeypatch.setattr(lab.engine, "subscribe", subscribed)
        clients = [await lab.client() for _ in range(10)]
        for client in clients:
            client.command(b"\3SELECT MASTER_GTID_WAIT('0-1-2')")
        await until(lambda: len(lab.server.runner._gtid_waits._waiting.get(0, ())) == 10)
        lab.publish("0-1-2")
        for client in clients:
            assert (await client.answer())[:1] == b"\1"
        assert subscribed.call_count == 1
