"""Faults by SQL: only where the server was started so, only for who has the right, and as TOML has them."""

from __future__ import annotations

from typing import Any

import pytest
from binlog_protocol.errors import RemoteError

from binlog_server.accounts.users import Account
from binlog_server.faults.faults import KINDS, FaultOrder, Faults
from tests.binlog_server.lab import Lab

USERS = {
    "tester": Account("pw", frozenset({"BINLOG FAULT"})),
    "replayer": Account("pw", frozenset({"BINLOG REPLAY"})),
    "root": Account("pw", frozenset({"ALL PRIVILEGES"})),
    "open": "",
}
CREATE = "CREATE BINLOG FAULT torn DO cut GTID='0-1-5' EVENT=3 INSIDE=TRUE TIMES=0"


async def refused(lab: Lab, sql: str, user: str = "tester") -> int:
    with pytest.raises(RemoteError) as error:
        await (await lab.client(user, "pw")).query(sql)
    return error.value.errno


async def test_a_server_that_was_not_started_so_has_none() -> None:
    async with Lab(users=USERS) as lab:
        for sql in (CREATE, "SHOW BINLOG FAULTS", "DROP ALL BINLOG FAULTS", "DROP BINLOG FAULT x"):
            assert await refused(lab, sql, "root") == 1290
        assert lab.server.faults.ordered() == []


async def test_the_right_is_one_of_its_own() -> None:
    async with Lab(users=USERS, binlog_faults=True) as lab:
        assert await refused(lab, CREATE, "replayer") == 1227
        client = await lab.client("tester", "pw")
        await client.query(CREATE)
        assert await client.query("SHOW BINLOG FAULTS") == [
            ["torn", "DO cut GTID='0-1-5' EVENT=3 TIMES=0 INSIDE=TRUE", "0", "0"]
        ]


async def test_created_replaced_and_dropped() -> None:
    async with Lab(users=USERS, binlog_faults=True) as lab:
        client = await lab.client("tester", "pw")
        await client.query(CREATE)
        (first,) = lab.server.faults.ordered()
        assert await refused(lab, CREATE) == 1105
        assert await refused(lab, "CREATE OR REPLACE BINLOG FAULT torn DO explode EVENT=1") == 1105
        assert await refused(lab, "CREATE BINLOG FAULT x DO cut EVENT=1 EVENT=2") == 1105
        assert not first.is_over, "what is wrong changes nothing"
        await client.query("CREATE OR REPLACE BINLOG FAULT torn DO delay ON=login SECONDS=0.5")
        (second,) = lab.server.faults.ordered()
        assert first.is_over
        assert second.fault == FaultOrder("delay", name="torn", on="login", seconds=0.5)
        await client.query("DROP BINLOG FAULT torn")
        assert await refused(lab, "DROP BINLOG FAULT torn") == 1105
        await client.query("DROP BINLOG FAULT IF EXISTS torn")
        await client.query("CREATE BINLOG FAULT a DO cut EVENT=1")
        await client.query("DROP ALL BINLOG FAULTS")
        assert await client.query("SHOW BINLOG FAULTS") == []


async def test_what_is_shown_can_be_said_again() -> None:
    tables: list[dict[str, Any]] = [
        {"do": "error", "statement": "SET @it's \\", "errno": 1236, "message": "it's"},
        {"do": "delay", "after_seconds": 0.25, "seconds": 3, "heartbeats": True},
        {"do": "claim", "on": "connect", "version": "10.5.9-MariaDB", "without": "ssl, compress"},
    ]
    faults = Faults()
    faults.add(tables)
    async with Lab(users=USERS, binlog_faults=True) as lab:
        client = await lab.client("tester", "pw")
        for one in faults.ordered():
            await client.query(f"CREATE BINLOG FAULT {one.name} {one.fault.text}")
        found = lab.server.faults.ordered()
        assert [one.fault.text for one in found] == [one.fault.text for one in faults.ordered()]
        assert {one.fault.do for one in found} <= KINDS.keys()
