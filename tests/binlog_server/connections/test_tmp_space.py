"""Temporary space is given back, whatever ends a transaction. `integration/test_temporary_space.py` has the limits."""

from __future__ import annotations

import pytest
from binlog_protocol.connection.commands import Query, Quit

from binlog_server.accounts.privileges import BINLOG_REPLAY
from binlog_server.accounts.users import Account

from ..lab import USER, Lab, until

INSERT = f"INSERT INTO d.t VALUES ('{'x' * 100_000}')"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "quit", "close", "kill", "stop"])
async def test_all_is_given_back(end: str) -> None:
    async with Lab(users={USER: Account("pw", frozenset({BINLOG_REPLAY, "SUPER"}))}) as lab:
        space = lab.server.tmp_space
        client = await lab.client(USER, "pw")
        await client.query("BEGIN")
        await client.query(INSERT)
        assert space.used == space.most > 90_000
        if end == "kill":
            other = await lab.client(USER, "pw")
            (number,) = space._by_session
            await other.query(f"KILL {number}")
        elif end == "quit":
            client.command(Quit().build())
        elif end == "close":
            client.close()
        elif end != "stop":
            await client.query(end)
        if end != "stop":
            await until(lambda: not space.used)
            assert not space._by_session
            assert space.most > 90_000
    assert space.used == 0


async def test_what_a_statement_cannot_have_leaves_nothing_of_it() -> None:
    async with Lab(users={USER: Account("pw", frozenset({BINLOG_REPLAY}))}) as lab:
        client = await lab.client(USER, "pw")
        await client.query("SET max_tmp_session_space_usage = 131072")
        await client.query("BEGIN")
        await client.query("INSERT INTO d.t VALUES ('first')")
        client.command(Query(INSERT.replace("x", "xx")).build())
        assert (await client.error())[0] == 41
        await client.query("INSERT INTO d.t VALUES ('last')")
        await client.query("COMMIT")
        client.command(Query(INSERT.replace("x", "xx").replace("VALUES", "/**/ VALUES")).build())
        assert (await client.error())[0] == 41
        groups = [b"".join(group) for group in lab.engine.groups_of_file()]
    assert [b"first" in g and b"last" in g and b"xx" not in g for g in groups[1:]] == [True]
