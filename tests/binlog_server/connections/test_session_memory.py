"""What all sessions hold together: who leaves when it is too much, and that all of it is counted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.commands import Ping, Query
from binlog_protocol.connection.handshake import (
    REPLICA_CAPABILITIES,
    Capability,
    Greeting,
    LoginRequest,
)
from binlog_protocol.errors import ServerError
from binlog_protocol.wire.packets import frame_packet
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.accounts.privileges import BINLOG_REPLAY
from binlog_server.accounts.users import Account
from binlog_server.connections.session_memory import FREE_BYTES, SessionMemory
from tests.binlog_server.lab import PASSWORD, USER, Client, Lab, until
from tests.binlog_server.transport import Held

LIMIT = 1 << 20


@dataclass
class Holder:
    id: int
    account: str
    dropped: list[int] = field(default_factory=list)

    def drop(self, error: ServerError) -> None:
        self.dropped.append(error.errno)


def test_the_account_that_holds_most_loses_its_largest() -> None:
    memory = SessionMemory(lambda: LIMIT)
    single = Holder(1, "single")
    flood = [Holder(number, "flood") for number in range(2, 5)]
    memory.holds(single, LIMIT // 2)
    for holder, part in zip(flood, (4, 6, 8), strict=True):
        memory.holds(holder, LIMIT // part)
    assert [h.dropped for h in (single, *flood)] == [[], [1041], [], []]
    assert memory.held == LIMIT // 2 + LIMIT // 6 + LIMIT // 8
    assert memory.dropped == 1


def test_one_alone_may_be_too_much() -> None:
    memory = SessionMemory(lambda: LIMIT)
    holder = Holder(1, "a")
    memory.holds(holder, LIMIT + 1)
    assert holder.dropped == [1041]
    assert memory.held == 0


def test_little_is_free() -> None:
    memory = SessionMemory(lambda: LIMIT)
    for number in range(1000):
        memory.holds(Holder(number, "a"), FREE_BYTES)
    assert memory.held == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, LIMIT + 2)), max_size=50))
def test_the_sum_is_right_and_within_the_limit(told: list[tuple[int, int]]) -> None:
    memory = SessionMemory(lambda: LIMIT)
    holders = [Holder(number, "ab"[number % 2]) for number in range(6)]
    for number, size in told:
        memory.holds(holders[number], size)
        assert memory.held <= LIMIT
    for holder in holders:
        memory.holds(holder, 0)
    assert memory.held == 0


def small_lab(**users: Account | str) -> Lab:
    return Lab(users=users, max_total_session_mem_used=LIMIT, max_allowed_packet=LIMIT // 4)


async def test_half_packets_push_out_themselves() -> None:
    async with small_lab(**{USER: "pw"}, other="pw") as lab:
        memory = lab.server.session_memory
        other = await lab.connect()
        await other.log_in("other", "pw")
        half = frame_packet(Query("x" * (LIMIT // 4 - 2)).build(), 0)[0][:-1]
        other.send(half)
        await until(lambda: memory.held == len(half))
        flood: list[Client] = []
        for _ in range(10):
            client = await lab.client(USER, "pw")
            client.send(half)
            flood.append(client)
        await until(lambda: memory.dropped >= 7)
        assert memory.held <= LIMIT
        other.send(b"x")
        assert (await other.error())[0] == 1064, "who holds little is served, and stays"
        assert (await other.ask(Ping().build()))[:1] == b"\0"
        told = [asyncio.create_task(client.error()) for client in flood]
        done, waiting = await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result()[0] for task in done} == {1041}
        for task in waiting:
            task.cancel()
        for client in (other, *flood):
            client.close()
        await until(lambda: not len(lab.server.connections))
        assert memory.held == 0


async def test_answers_that_nobody_takes_are_counted() -> None:
    async with small_lab(**{USER: "pw"}) as lab:
        memory = lab.server.session_memory
        client = await lab.client(USER, "pw")
        await client.query(f"SET @a = '{'x' * 60_000}'")
        select = frame_packet(Query(f"SELECT {','.join(['@a'] * 16)}").build(), 0)[0]
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(64):
            client.send(select)
        await until(lambda: memory.held > LIMIT // 2)
        client.close()
        await until(lambda: not len(lab.server.connections))
        assert memory.held == 0


async def test_a_statement_is_counted_until_it_is_answered() -> None:
    async with small_lab(**{USER: Account("pw", frozenset({BINLOG_REPLAY}))}) as lab:
        memory = lab.server.session_memory
        client = await lab.client(USER, "pw")
        text = "INSERT INTO t VALUES ('" + "x" * (LIMIT // 4 - 100) + "@')"
        client.command(Query(text).build())
        await until(lambda: memory.held >= len(text))
        assert (await client.answer())[:1] == b"\0"
        await until(lambda: memory.held == 0)


async def test_variables_are_counted() -> None:
    """Each session may have as many as max_session_mem_used says; all together as the limit of all."""
    async with small_lab(**{USER: "pw"}) as lab:
        memory = lab.server.session_memory
        for _ in range(12):
            client = await lab.client(USER, "pw")
            for name in ("a", "b", "c", "d"):
                text = f"SET @{name}='{'x' * 40_000}'"
                if not await asked(client, text):
                    break
            assert memory.held <= LIMIT
        await until(lambda: memory.dropped > 0)


async def asked(client: Client, sql: str) -> bool:
    """Whether the connection is still there behind it."""
    client.command(Query(sql).build())
    return await client.packet() is not None


@pytest.mark.parametrize("compressed_packets", [False, True])
async def test_who_has_gone_holds_nothing(compressed_packets: bool) -> None:
    """At once: session, machine and layers refer to each other, and garbage is looked for now and then only."""
    async with Lab(users={USER: PASSWORD}) as lab:
        held = Held(lab.server)
        (greeting,) = held.packets()
        capabilities = REPLICA_CAPABILITIES
        if compressed_packets:
            capabilities |= Capability.COMPRESS
        salt = Greeting.parse(greeting.payload).salt
        login = LoginRequest(
            USER, native_password_scramble(PASSWORD, salt), capabilities=capabilities
        )
        held.receive(frame_packet(login.build(), 1)[0])
        half = frame_packet(Query("x" * 2_000_000).build(), 0)[0][:-1]
        held.receive(b"\xff\xff\xff\0\0\0\0" + half if compressed_packets else half)
        session = held.session
        assert session._machine.held + (session._layer.held if session._layer else 0) > 1_000_000
        held.transport.protocol.connection_lost(None)
        assert session._machine.held == 0
        assert session._layer is None or session._layer.held == 0


async def test_the_time_of_an_idle_client_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up after each statement: what grows with the number of domains must not be made for it."""
    async with Lab() as lab:
        client = await lab.client()
        monkeypatch.setattr(type(lab.server), "state_texts", None)
        assert await client.query("SELECT 1") == [["1"]]
