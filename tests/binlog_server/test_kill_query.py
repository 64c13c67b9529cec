"""KILL QUERY ends what runs, and leaves the connection."""

from __future__ import annotations

from binlog_server.accounts.users import Account
from protocol.connection.commands import Query

from .lab import PASSWORD, REPLICA_AND_WATCHER, USER, Client, Lab, until

USERS = {
    "root": Account("pw", frozenset({"ALL PRIVILEGES"})),
    USER: Account(PASSWORD, REPLICA_AND_WATCHER),
}


async def logged_in(lab: Lab) -> Client:
    client = await lab.connect()
    assert (await client.log_in("root", "pw"))[:1] == b"\0"
    return client


async def test_of_a_wait() -> None:
    async with Lab(users=USERS) as lab:
        dba, waits = await logged_in(lab), await logged_in(lab)
        waits.command(Query("SELECT MASTER_GTID_WAIT('0-1-99')").build())
        waiting = max(lab.server.connections, key=lambda connection: connection.id)
        number = waiting.id
        await until(lambda: "MASTER_GTID_WAIT" in (waiting.info or ""))
        await dba.query(f"KILL QUERY {number}")
        assert await waits.error() == (1317, "Query execution was interrupted")
        assert [row[1] for row in await waits.query("SHOW WARNINGS")] == ["1317"]
        await dba.query(f"KILL QUERY {number}")  # of who does nothing
        assert await waits.query("SELECT 1") == [["1"]]


async def test_of_a_dump() -> None:
    async with Lab(users=USERS) as lab:
        dba, replica = await logged_in(lab), await lab.replica()
        await replica.opening()
        (number,) = [c.id for c in lab.server.connections if c.dump_server_id]
        await dba.query(f"KILL QUERY {number}")
        assert await replica.ended()
