"""What a dump leaves behind: the slot of its replica, if it will come back."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine.references import Reason
from binlog_storage.errors import DiskError

from tests.binlog_server.lab import Lab, Replica, until

STORE = StoreOptions(4 * 16384, 2 * 16384, slave_connections_needed_for_purge=0)


def slots(lab: Lab) -> dict[str, int]:
    return {lease.name: lease.from_file for lease in lab.server.leases.all()}


def dumps(lab: Lab) -> list[str]:
    assert isinstance(lab.engine, IbbEngine)
    return [h.name for h in lab.engine.references.holds() if h.reason is Reason.DUMP]


async def gone(lab: Lab, replica: Replica) -> None:
    await until(lambda: bool(dumps(lab)))
    replica.client.close()
    await until(lambda: not dumps(lab))
    await lab.server.slots.close()


async def streaming(lab: Lab) -> Replica:
    """A replica that has the first group, and stays for more."""
    lab.publish("0-1-1")
    replica = await lab.replica(server_id=77)
    await replica.opening()
    assert await replica.groups(1) == "0-1-1"
    return replica


async def test_a_replica_leaves_a_slot() -> None:
    async with Lab(store=STORE) as lab:
        await gone(lab, await streaming(lab))
        ((name, from_file),) = slots(lab).items()
        assert name.startswith("slot/77/")
        assert from_file == 0
        for n in range(2, 5):
            lab.engine.flush()
            lab.publish(f"0-1-{n}")
        assert lab.engine.purge_to(3).delete == []
        assert [r.reason for r in lab.engine.references.holds()] == [Reason.SLOT]  # type: ignore[attr-defined]
        replica = await lab.replica("0-1-1", server_id=77)
        await replica.opening()
        assert await replica.groups(3) == "0-1-2,0-1-3,0-1-4"


@pytest.mark.parametrize(
    "wanted",
    [{"server_id": 0}, {"registered": False}, {"registered": False, "server_id": 1}, {"flags": 3}],
    ids=["no server_id", "not registered", "mariadb-binlog", "non_block"],
)
async def test_who_does_not_come_back_leaves_none(wanted: dict[str, Any]) -> None:
    async with Lab(store=STORE) as lab:
        lab.publish("0-1-1")
        replica = await lab.replica(**wanted)
        await replica.client.answer()
        replica.client.close()
        await until(lambda: not len(lab.server.connections) and not dumps(lab))
        assert slots(lab) == {}


async def test_until_leaves_the_place_where_it_began() -> None:
    """Behind it groups may have been left out for it."""
    async with Lab(store=STORE) as lab:
        for n in range(1, 4):
            lab.publish(f"0-1-{n}")
            lab.engine.flush()
        replica = await lab.replica("0-1-1", server_id=77, slave_until_gtid="0-1-3")
        await replica.opening()
        assert await replica.groups(2) == "0-1-2,0-1-3"
        await until(lambda: not dumps(lab) and bool(slots(lab)))
        assert list(slots(lab).values()) == [1]


async def test_a_replica_that_comes_too_late_is_told_why() -> None:
    async with Lab(store=STORE) as lab:
        await gone(lab, await streaming(lab))
        (name,) = slots(lab)
        lab.engine.flush()
        lab.publish("0-1-2")
        lab.engine.flush()
        lab.publish("0-1-3")
        assert lab.server.leases.drop(name)
        assert lab.engine.purge_to(2).delete == [0, 1]
        replica = await lab.replica("0-1-1", server_id=77)
        number, text = await replica.refused()
        assert number == 1236
        assert text.startswith("Could not find GTID state requested by slave in any binlog files.")
        assert " The slot of server_id 77 has ended, " in text
        assert text.endswith("UTC: it was dropped")
        stranger = await lab.replica("0-1-1", server_id=78)
        assert "slot" not in (await stranger.refused())[1]


async def test_reset_master_does_not_wait_for_slots() -> None:
    async with Lab(store=STORE) as lab:
        await gone(lab, await streaming(lab))
        assert slots(lab)
        lab.engine.reset()
        lab.server.leases.expire()
        assert slots(lab) == {}


async def test_reset_master_does_not_wait_until_the_slot_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replica has gone, as SHOW SLAVE HOSTS says: its hold is not a reader any more, but keeps the files."""
    async with Lab(store=STORE) as lab:
        replica = await streaming(lab)
        go_on = threading.Event()
        renew = lab.server.leases.renew_slots

        def late(*args: Any) -> None:
            go_on.wait()
            renew(*args)

        monkeypatch.setattr(lab.server.leases, "renew_slots", late)
        try:
            await until(lambda: bool(dumps(lab)))
            replica.client.close()
            await until(lambda: not lab.server.connections.slave_hosts(1))
            await until(lambda: not dumps(lab))
            lab.engine.flush()
            assert lab.engine.purge_to(1).delete == []
            lab.engine.reset()
        finally:
            go_on.set()
        await lab.server.slots.close()
        lab.server.leases.expire()
        assert slots(lab) == {}


async def test_the_end_of_the_server_keeps_the_slots_of_those_connected() -> None:
    async with Lab(store=STORE) as lab:
        await streaming(lab)
        await until(lambda: bool(dumps(lab)))
        state = lab.server.state
    assert [name for name, _ in state.items("slot/")] != []


def _has(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


async def test_slots_that_cannot_be_renewed_are_told_once_per_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that lists nothing said so every ten seconds, as Python's repr of the error."""
    errors: list[Exception] = []

    def fails(*_: object) -> None:
        if errors:
            raise errors[0]

    async with Lab(store=STORE) as lab:
        monkeypatch.setattr(lab.server.leases, "renew_slots", fails)
        caplog.set_level("INFO", logger="binlog_server.app.slots")
        running = asyncio.create_task(lab.server.slots.run(0.001))
        for why in ("cannot list /s: Input/output error", "cannot list /s: Permission denied"):
            errors[:] = [DiskError(why)]
            await until(partial(_has, caplog, why))
            await asyncio.sleep(0.05)
        errors.clear()
        await until(partial(_has, caplog, "renewed again"))
        await asyncio.sleep(0.05)
        running.cancel()
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(". ")[0] for text in told] == [
        "slots of replicas cannot be renewed: cannot list /s: Input/output error",
        "slots of replicas cannot be renewed: cannot list /s: Permission denied",
        "slots of replicas are renewed again",
    ]
