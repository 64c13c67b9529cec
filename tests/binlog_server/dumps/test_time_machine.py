"""Logins whose history ends at a point: `name+until=...`, and BINLOG_GTID_AT."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine

from binlog_server.accounts.users import Account
from tests.binlog_server.lab import PASSWORD, REPLICA_AND_WATCHER, ROOT, Lab, Replica, gtids, until
from tests.protocol.statement_groups import transaction_group

T0 = 1_795_172_400  # 2026-11-20 11:00:00 UTC


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    account = Account(PASSWORD, REPLICA_AND_WATCHER)
    plain = Account(PASSWORD, frozenset({"REPLICATION SLAVE"}))
    users = {**ROOT, "repl": account, "a+until=0-1-1": account, "a": account, "plain": plain}
    store = StoreOptions(1 << 20, slave_connections_needed_for_purge=0)
    async with Lab(store=store, users=users) as running:
        sql = await running.root()
        await sql.query("SET GLOBAL time_zone = '+01:00'")
        yield running


def log(lab: Lab, history: str, *times: int) -> None:
    """Groups, and their times in seconds behind T0."""
    for gtid, time in zip(gtids(history), times, strict=True):
        group = transaction_group(gtid, ["INSERT INTO t VALUES (1)"], xid=1, timestamp=T0 + time)
        lab.engine.append(group, gtid)
    lab.engine.sync()


async def stream(lab: Lab, name: str, position: str = "", **wanted: Any) -> Replica:
    """In its dump."""
    replica = Replica(await lab.client(name))
    server_id = 100 + len(list(lab.server.connections))
    await replica.start(position, server_id=server_id, **wanted)
    return replica


async def got(replica: Replica, count: int) -> str:
    """Groups, and events between them that tell of GTIDs left out."""
    found: list[Gtid] = []
    while len(found) < count:
        event = await replica.event()
        if event[4] == EventType.GTID:
            seq_no = int.from_bytes(event[19:27], "little")
            found.append(Gtid(int.from_bytes(event[27:31], "little"), event[5], seq_no))
    while (await replica.event())[4] != EventType.XID:
        pass
    return ",".join(map(str, found))


HISTORY = "0-1-1,0-1-2,1-2-1,0-1-3,1-2-2,0-1-4"
ENDS = {
    "0-1-2": ("", "0-1-1,0-1-2"),
    "0-1-3,1-2-1": ("", "0-1-1,0-1-2,1-2-1,0-1-3"),
    "0-1-3,1-2-2": ("0-1-1,1-2-1", "0-1-2,0-1-3,1-2-2"),
    "2026-11-20T12:00:30": ("", "0-1-1,0-1-2,1-2-1"),
    "2026-11-20T11:00:30Z": ("0-1-1", "0-1-2,1-2-1"),
    "2026-11-20 12:00:50": ("0-1-2,1-2-1", "0-1-3,1-2-2"),
}


@pytest.mark.parametrize("target", ENDS)
async def test_ends(lab: Lab, target: str) -> None:
    """It stops with an error that names the target; without +stop it gets heartbeats, whatever is committed."""
    log(lab, HISTORY, 0, 10, 20, 30, 40, 50)
    position, expected = ENDS[target]
    count = len(gtids(expected))
    replica = await stream(lab, f"repl+until={target}+stop", position)
    assert await got(replica, count) == expected
    errno, text = await replica.refused()
    assert errno == 1236
    assert target.replace("T", " ") in text.replace("T", " ")
    waiting = await stream(
        lab, f"repl+until={target}", position, mariadb_slave_capability=4, master_heartbeat_period=1
    )
    assert await got(waiting, count) == expected
    log(lab, "0-1-5", 5)
    while (await waiting.event())[4] != EventType.HEARTBEAT:
        pass
    (connection,) = (c for c in lab.server.connections if c.dump_server_id)
    assert connection.account == "repl@%"
    assert connection.user == "repl"
    assert "target of its login" in connection.state


async def test_ahead(lab: Lab) -> None:
    """What is not there yet comes, and the end with it: by GTID, and by time."""
    log(lab, "0-1-1", 0)
    by_gtid = await stream(lab, "repl+until=0-1-3+stop")
    by_time = await stream(lab, "repl+until=2026-11-20T11:01:00Z+stop")
    assert await got(by_gtid, 1) == await got(by_time, 1) == "0-1-1"
    log(lab, "0-1-2,0-1-3,0-1-4", 59, 60, 10)
    assert await got(by_gtid, 2) == "0-1-2,0-1-3"
    assert await got(by_time, 1) == "0-1-2"
    assert "at GTID position '0-1-3'" in (await by_gtid.refused())[1]
    assert "at GTID position '0-1-2'" in (await by_time.refused())[1]


async def test_behind_its_end(lab: Lab) -> None:
    log(lab, "0-1-1,0-1-2,0-1-3", 0, 10, 20)
    for target in ("0-1-1", "2026-11-20T11:00:10Z"):
        replica = await stream(lab, f"repl+until={target}+stop", "0-1-2")
        await replica.opening()
        assert (await replica.refused())[0] == 1236


REFUSED = {
    "0-9-2": "0-9-2, which is not in this binlog",
    "2026-11-20T10:00:00Z": "has been purged",
    "soon": "'soon' is neither a time",
    "0-1-5,0-1-6": "domain",
}


@pytest.mark.parametrize("target", REFUSED)
async def test_refused(lab: Lab, target: str) -> None:
    log(lab, "0-1-1,0-1-2,0-1-3", 0, 10, 20)
    lab.engine.flush()
    log(lab, "0-1-4", 30)
    lab.engine.purge_to(lab.engine.durable_end.file_no)
    replica = await stream(lab, f"repl+until={target}", "0-1-3")
    errno, text = await replica.refused()
    assert (errno, REFUSED[target] in text) == (1236, True), text


async def test_another_history_comes(lab: Lab) -> None:
    """The target was not there at the start, and cannot come behind this: nothing beyond it is sent."""
    log(lab, "0-1-1", 0)
    replica = await stream(lab, "repl+until=0-9-3")
    assert await got(replica, 1) == "0-1-1"
    log(lab, "0-1-2,0-1-3", 1, 2)
    assert await got(replica, 1) == "0-1-2"
    assert "0-9-3, which is not in this binlog" in (await replica.refused())[1]


async def test_with_until_of_the_replica(lab: Lab) -> None:
    """Whichever comes first."""
    log(lab, "0-1-1,0-1-2,0-1-3", 0, 10, 20)
    first = await stream(lab, "repl+until=0-1-3", slave_until_gtid="0-1-2")
    assert await got(first, 2) == "0-1-1,0-1-2"
    assert (await first.event())[4] == EventType.GTID_LIST
    assert await first.ended()
    last = await stream(lab, "repl+until=0-1-1+stop", slave_until_gtid="0-1-2")
    assert await got(last, 1) == "0-1-1"
    assert (await last.refused())[0] == 1236


async def test_names_with_a_plus(lab: Lab) -> None:
    """An account of that name comes first; others need the password of their own."""
    log(lab, "0-1-1,0-1-2", 0, 10)
    replica = await stream(lab, "a+until=0-1-1")
    assert await got(replica, 2) == "0-1-1,0-1-2"
    for name in ("nobody+until=0-1-1", "repl+untill=0-1-1", "repl+stop"):
        with pytest.raises(RemoteError, match="1045"):
            await lab.client(name)
    with pytest.raises(RemoteError, match="1045"):
        await lab.client("repl+until=0-1-1", "wrong")


async def test_reset_master(lab: Lab) -> None:
    """As with any replica that is here."""
    log(lab, "0-1-1,0-1-2", 0, 10)
    replica = await stream(lab, "repl+until=0-1-1")
    assert await got(replica, 1) == "0-1-1"
    await until(lambda: any("target" in c.state for c in lab.server.connections))
    replica.client.close()
    await until(lambda: not any(c.dump_server_id for c in lab.server.connections))
    engine = lab.engine
    assert isinstance(engine, IbbEngine)
    await until(lambda: not list(engine.references.holds()))
    engine.reset()
    log(lab, "0-1-1", 5)
    again = await stream(lab, "repl+until=2026-11-20T11:00:06Z")
    assert await got(again, 1) == "0-1-1"


AT = {
    "2026-11-20 12:00:10": "0-1-1",
    "2026-11-20T11:00:10Z": "0-1-1",
    "2026-11-20 12:00:11": "0-1-2",
    "2030-01-01": "0-1-3",
    "2020-01-01": "",
}


async def test_gtid_at(lab: Lab) -> None:
    log(lab, "0-1-1,0-1-2,0-1-3", 0, 10, 20)
    sql = await lab.client()
    for text, expected in AT.items():
        assert await sql.query(f"SELECT BINLOG_GTID_AT('{text}')") == [[expected]]
    assert await sql.query("SELECT binlog_gtid_at(NULL) AS p") == [[None]]
    lab.engine.flush()
    log(lab, "0-1-4", 30)
    lab.engine.purge_to(lab.engine.durable_end.file_no)
    assert await sql.query("SELECT BINLOG_GTID_AT('2020-01-01')") == [[None]]
    assert "purged" in str((await sql.query("SHOW WARNINGS"))[0])
    for text, errno in {"BINLOG_GTID_AT('0-1-1')": 1210, "BINLOG_GTID_AT()": 1582}.items():
        with pytest.raises(RemoteError, match=str(errno)):
            await sql.query(f"SELECT {text}")
    with pytest.raises(RemoteError, match="1227"):
        await (await lab.client("plain")).query("SELECT BINLOG_GTID_AT('2020-01-01')")
