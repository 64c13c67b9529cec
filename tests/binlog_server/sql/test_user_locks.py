"""GET_LOCK and its kin, between sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from binlog_protocol.connection.commands import Query, ResetConnection
from binlog_protocol.errors import RemoteError

from binlog_server.sql.user_locks import LOCKS_MAX
from tests.binlog_server.lab import ROOT, Client, Lab, until, within


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users=ROOT) as made:
        yield made


async def value(client: Client, expression: str) -> str | None:
    ((found,),) = await within(client.query(f"SELECT {expression}"))
    return found


def ask(client: Client, expression: str) -> asyncio.Task[str | None]:
    return asyncio.get_running_loop().create_task(value(client, expression))


async def waiting(lab: Lab, count: int) -> None:
    """Until so many wait for a lock."""
    locks = lab.server.user_locks
    await until(lambda: len(locks._waits) == count)


async def test_a_lock_is_one_sessions(lab: Lab) -> None:
    one, other = await lab.root(), await lab.root()
    assert await value(one, "GET_LOCK('A', 0)") == "1"
    assert await value(one, "GET_LOCK('a', 0)") == "1"
    assert await value(other, "GET_LOCK('a', 0)") == "0"
    assert await value(other, "IS_USED_LOCK('a')") == await value(one, "CONNECTION_ID()")
    assert await value(other, "IS_FREE_LOCK('b')") == "1"
    assert await value(other, "RELEASE_LOCK('a')") == "0"
    assert await value(other, "RELEASE_LOCK('b')") is None
    assert await value(one, "RELEASE_ALL_LOCKS()") == "2"
    assert await value(other, "GET_LOCK('a', 0)") == "1"


async def test_who_waits_gets_it_in_turn(lab: Lab) -> None:
    one, second, third = await lab.root(), await lab.root(), await lab.root()
    await value(one, "GET_LOCK('a', 0)")
    waits = ask(second, "GET_LOCK('a', 100)")
    await waiting(lab, 1)
    later = ask(third, "GET_LOCK('a', 100)")
    await waiting(lab, 2)
    assert await value(one, "1") == "1"  # nobody else is kept waiting
    await one.query("DO RELEASE_LOCK('a')")
    assert await within(waits) == "1"
    assert not later.done()
    await second.query("DO RELEASE_LOCK('a')")
    assert await within(later) == "1"


async def test_what_was_done_before_the_wait_is_done_once(lab: Lab) -> None:
    one, other = await lab.root(), await lab.root()
    await value(one, "GET_LOCK('b', 0)")
    await other.query("SET @n=0")
    waits = ask(other, "CONCAT(GET_LOCK('a', 0), GET_LOCK('b', 9), @n := @n + 1)")
    await waiting(lab, 1)
    await one.query("DO RELEASE_LOCK('b')")
    assert await within(waits) == "111"
    assert await value(other, "RELEASE_ALL_LOCKS()") == "2"
    assert await value(other, "@n") == "1"


async def test_a_wait_ends_in_time(lab: Lab) -> None:
    one, other = await lab.root(), await lab.root()
    await value(one, "GET_LOCK('a', 0)")
    assert await value(other, "GET_LOCK('a', 0.01)") == "0"
    with pytest.raises(RemoteError, match="max_statement_time"):
        await other.query("SET STATEMENT max_statement_time=0.01 FOR SELECT GET_LOCK('a', 100)")
    assert lab.server.user_locks._waits == {}


async def test_who_would_wait_for_himself_is_told(lab: Lab) -> None:
    one, second, third = await lab.root(), await lab.root(), await lab.root()
    for name, client in zip("abc", (one, second, third), strict=True):
        await value(client, f"GET_LOCK('{name}', 0)")
    first = ask(one, "GET_LOCK('b', 100)")
    await waiting(lab, 1)
    next_ = ask(second, "GET_LOCK('c', 100)")
    await waiting(lab, 2)
    with pytest.raises(RemoteError) as caught:
        await third.query("SELECT GET_LOCK('a', 100)")
    assert caught.value.errno == 1213
    await third.query("DO RELEASE_ALL_LOCKS()")
    assert await within(next_) == "1"
    await second.query("DO RELEASE_ALL_LOCKS()")
    assert await within(first) == "1"


async def test_kill_query_ends_a_wait(lab: Lab) -> None:
    """The lock is NULL then, and the statement goes on, as in MariaDB."""
    one, other = await lab.root(), await lab.root()
    await value(one, "GET_LOCK('a', 0)")
    number = await value(other, "CONNECTION_ID()")
    for text, expected in (
        ("SELECT GET_LOCK('a', 100), GET_LOCK('b', 100)", [[None, "1"]]),
        ("SELECT IFNULL(GET_LOCK('a', 100), 9)", [["9"]]),
        ("DO GET_LOCK('a', 100)", []),
    ):
        asked = asyncio.ensure_future(other.query(text))
        await waiting(lab, 1)
        await one.query(f"KILL QUERY {number}")
        assert await within(asked) == expected
        await waiting(lab, 0)
    await one.query("DO RELEASE_ALL_LOCKS()")
    assert await value(one, "IS_FREE_LOCK('a')") == "1"


async def test_kill_query_of_who_has_just_got_the_lock(lab: Lab) -> None:
    locks = lab.server.user_locks
    locks.take(1, "a")
    wait = asyncio.ensure_future(locks.wait(2, "a", 100))
    await waiting(lab, 1)
    locks.release(1, "a")
    assert not locks.interrupt(2)  # its turn has come, though it does not know yet
    assert await within(wait) is True
    assert not locks.interrupt(2)


@pytest.mark.parametrize("how", ["leaves", "is reset", "is killed"])
async def test_a_session_that_ends_gives_its_locks_back(lab: Lab, how: str) -> None:
    one, other = await lab.root(), await lab.root()
    await value(one, "GET_LOCK('a', 0)")
    number = await value(one, "CONNECTION_ID()")
    if how == "is killed":
        await other.query(f"KILL {number}")
    elif how == "is reset":
        assert (await one.ask(ResetConnection().build()))[:1] == b"\0"
    else:
        one.close()
    assert await value(other, "GET_LOCK('a', 100)") == "1"


async def test_one_who_leaves_waits_no_longer(lab: Lab) -> None:
    one, other = await lab.root(), await lab.root()
    await value(one, "GET_LOCK('a', 0)")
    other.command(Query("SELECT GET_LOCK('a', 100)").build())
    await waiting(lab, 1)
    other.close()
    await waiting(lab, 0)
    await one.query("DO RELEASE_LOCK('a')")
    assert await value(one, "IS_FREE_LOCK('a')") == "1"


async def test_what_is_no_timeout_gives_null_with_a_warning(lab: Lab) -> None:
    client = await lab.root()
    assert await value(client, "GET_LOCK('a', -1)") is None
    assert await client.query("SHOW WARNINGS") == [
        ["Warning", "1411", "Incorrect timeout value: '-1' for function get_lock"]
    ]


async def test_a_session_has_so_many(lab: Lab) -> None:
    client = await lab.root()
    for start in range(0, LOCKS_MAX, 100):
        calls = ", ".join(f"GET_LOCK('{start + i}', 0)" for i in range(100))
        await client.query(f"DO {calls}")
    with pytest.raises(RemoteError) as caught:
        await client.query("SELECT GET_LOCK('one more', 0)")
    assert caught.value.errno == 1235
    assert await value(client, "RELEASE_ALL_LOCKS()") == str(LOCKS_MAX)


async def test_set_does_not_wait(lab: Lab) -> None:
    one, other = await lab.root(), await lab.root()
    await value(one, "GET_LOCK('a', 0)")
    with pytest.raises(RemoteError) as caught:
        await other.query("SET @a = GET_LOCK('a', 100)")
    assert caught.value.errno == 1235
