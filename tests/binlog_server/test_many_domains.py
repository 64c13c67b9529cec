"""A server with thousands of replication domains: what each commit and each login costs does not depend on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.store import IbbEngine

from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.accounts.users import Account
from binlog_server.process.logs import TEXT_CHARS_MAX
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.status import UpstreamStatus
from binlog_server.relay.stream import UpstreamStream
from binlog_server.upstreams.master_info import MasterInfo

from .lab import PASSWORD, USER, Client, Lab, fill

if TYPE_CHECKING:
    from binlog_protocol.connection.replica import ReplicaHandshake

    from binlog_server.relay.gate import Gate
    from binlog_server.relay.guard import Guard
    from binlog_server.relay.into import Into

HISTORY = [Gtid(domain_id, 1 + domain_id % 2, 7) for domain_id in range(1000)]
STATE = ",".join(map(str, HISTORY))


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users={USER: Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}) as found:
        fill(found.engine, HISTORY)
        yield found


@pytest.fixture
async def client(lab: Lab) -> Client:
    return await lab.client()


async def test_commits_logins_and_what_shows_no_state_do_not_ask_for_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = IbbEngine.binlog_state

    def of_one_domain(engine: IbbEngine, domain_id: int | None = None) -> BinlogState:
        assert domain_id is not None, "all domains are looked at"
        return asked(engine, domain_id)

    with monkeypatch.context() as patched:
        patched.setattr(IbbEngine, "binlog_state", of_one_domain)
        client = await lab.client()
        for statement in (
            "SELECT @@version_comment, @@max_allowed_packet, USER()",
            "SET NAMES utf8mb4",
            "SHOW VARIABLES LIKE 'version%'",
            "SHOW VARIABLES WHERE Variable_name IN ('sql_mode', 'wait_timeout')",
            "SHOW STATUS",
            "SET gtid_domain_id=3",
            "SELECT MASTER_GTID_WAIT('3-2-7,4-1-7', 10)",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO t VALUES (2)",
            "SET gtid_domain_id=123456",
            "CREATE TABLE t (a INT)",
        ):
            await client.query(statement)
    state = lab.engine.binlog_state()
    assert state.last(3) == Gtid(3, lab.server.config.server_id, 9)
    assert state.last(123456) == Gtid(123456, lab.server.config.server_id, 1)


async def test_a_long_state_is_shown_whole_wherever_it_is_asked_for(client: Client) -> None:
    assert await client.query("SELECT @@gtid_binlog_state, @@gtid_slave_pos") == [[STATE, STATE]]
    assert await client.query("SHOW VARIABLES LIKE 'gtid_current_pos'") == [
        ["gtid_current_pos", STATE]
    ]
    assert await client.query("SHOW VARIABLES WHERE Value LIKE '%998-1-7,999-2_7'") == [
        [name, STATE]
        for name in ("gtid_binlog_pos", "gtid_binlog_state", "gtid_current_pos", "gtid_slave_pos")
    ]
    assert (await client.query("SHOW MASTER STATUS"))[0][-1] == STATE
    await client.query("SET @a=@@gtid_binlog_pos")
    assert await client.query("SELECT @a") == [[STATE]]


@pytest.mark.long
async def test_no_line_of_the_log_has_a_whole_position(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert len(STATE) > 2 * TEXT_CHARS_MAX
    replica = await lab.replica(STATE)
    await replica.opening()
    info = MasterInfo("127.0.0.1", 1, "u")
    following = UpstreamStream(
        info,
        cast("Into", None),
        UpstreamStatus("up"),
        cast("Gate", None),
        cast("Guard", None),
        among=False,
        until=None,
        begun=lambda: asyncio.sleep(0),
        incidents=Incidents(),
    )
    position = str(lab.engine.binlog_state().position())
    following._note_begin(cast("ReplicaHandshake", SimpleNamespace(upstream_server_id=1)), position)
    lines = [record.getMessage() for record in caplog.records]
    told = [line for line in lines if line.startswith(("dump starts", "following"))]
    assert len(told) == 2
    for line in told:
        assert f"({len(STATE)} characters)" in line
        assert len(line) < TEXT_CHARS_MAX + 200


async def test_a_state_that_has_gone_on_is_shown_as_it_is(client: Client) -> None:
    before = await client.query("SELECT @@gtid_binlog_pos")
    await client.query("SET gtid_domain_id=5000")
    await client.query("INSERT INTO t VALUES (1)")
    assert before == [[STATE]]
    [[after]] = await client.query("SELECT @@gtid_binlog_pos")
    assert after is not None
    assert after.startswith(f"{STATE},5000-")
    await client.query("RESET MASTER")
    assert await client.query("SELECT @@gtid_binlog_pos, @@gtid_slave_pos") == [["", ""]]
    await client.query("INSERT INTO t VALUES (1)")
    [[anew]] = await client.query("SELECT @@gtid_binlog_pos")
    assert anew is not None
    assert anew.endswith("-1"), "numbers begin anew"
