"""Those that have not logged in: who has to leave, and that nobody can be kept out."""

from __future__ import annotations

import resource

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.connection.handshake import Greeting, TlsRequest
from binlog_protocol.wire.packets import frame_packet
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.connections import open_files
from binlog_server.connections.connections import Connection
from binlog_server.loop.crowd import Crowd
from binlog_server.settings.config import ConfigError
from tests.binlog_server.lab import Client, Lab, until
from tests.binlog_server.transport import Held


class Nobody:
    def end(self, error: object) -> None: ...
    def interrupt(self) -> None: ...
    def shut_down(self) -> None: ...


def filled(text: str) -> Crowd[Connection]:
    """One for each letter, which is its address; ids count from 1."""
    pending: Crowd[Connection] = Crowd()
    for number, address in enumerate(text, 1):
        assert pending.add(Connection(number, "", Nobody()), address, len(text)) is None
    return pending


@pytest.mark.parametrize(
    ("there", "newcomer", "leaves"),
    [
        ("aaa", "b", 1),
        ("aab", "b", 3),
        ("bcb", "b", 1),
        ("abc", "d", 1),
        ("abc", "c", 3),
        ("a", "a", 1),
    ],
)
def test_who_leaves(there: str, newcomer: str, leaves: int) -> None:
    pending = filled(there)
    gone = pending.add(Connection(99, "", Nobody()), newcomer, len(there))
    assert gone is not None
    assert gone.id == leaves
    assert len(pending) == len(there)


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from("abc"), st.booleans())))
def test_nothing_is_left_behind(steps: list[tuple[int, str, bool]]) -> None:
    pending: Crowd[Connection] = Crowd()
    there: dict[int, Connection] = {}
    for number, address, comes in steps:
        if comes and number not in there:
            there[number] = Connection(number, "", Nobody())
            gone = pending.add(there[number], address, 5)
            if gone is not None:
                del there[gone.id]
        elif number in there:
            pending.remove(there[number])
            pending.remove(there.pop(number))
        assert len(pending) == len(there) <= 5
    for connection in there.values():
        pending.remove(connection)
    assert not pending._all
    assert not pending._by_address


async def test_a_flood_pushes_itself_out() -> None:
    async with Lab(max_connections=20) as lab:
        silent = [await Client.connect(lab.server.port) for _ in range(60)]
        assert len(lab.server.connections) <= 21
        for client in silent[:40]:
            assert await client.error() == (1040, "Too many connections")
            assert await client.closed()
        client = await lab.client()
        assert await client.query("SELECT 1") == [["1"]]
        assert lab.server.connections.too_many == 41
        for client in silent:
            client.close()
        await until(lambda: len(lab.server.connections) == 1)
        assert lab.server.connections.logged_in == 1


async def test_who_is_logged_in_stays() -> None:
    async with Lab(max_connections=10) as lab:
        clients = [await lab.client() for _ in range(10)]
        silent = [await Client.connect(lab.server.port) for _ in range(30)]
        for client in clients:
            assert await client.query("SELECT 1") == [["1"]]
        for client in silent:
            client.close()


async def test_no_error_is_written_into_a_tls_handshake() -> None:
    async with Lab(max_connections=10) as lab:
        held = Held(lab.server)
        held.receive(frame_packet(TlsRequest().build(), 1)[0] + b"\x16\x03\x01")
        before = len(held.transport.written)
        for _ in range(10):
            await lab.connect()
        assert held.transport.closing
        assert len(held.transport.written) == before
        held.end()


async def test_nothing_is_done_before_login(lab: Lab) -> None:
    held = Held(lab.server)
    (greeting,) = held.packets()
    assert Greeting.parse(greeting.payload)
    held.receive(frame_packet(Query("KILL 1").build(), 1)[0])
    assert held.transport.closing
    held.end()


@pytest.mark.parametrize(
    ("soft", "hard", "becomes", "connections"),
    [
        (5000, 5000, None, 2000),
        (1024, 9000, 9000, 2000),
        (1024, 2000, 2000, 904),
        (512, 512, None, 160),
        (64, 64, None, 10),
        (1024, resource.RLIM_INFINITY, 4192, 2000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 2000),
    ],
)
def test_open_files(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    becomes: int | None,
    connections: int,
) -> None:
    """The store needs some of them, whatever the connections take: see `tests/storage/binlog/test_open_files.py`."""
    said: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: said.append(both))
    assert open_files.allow_open_files(2000) == connections
    assert said == ([] if becomes is None else [(becomes, hard)])
    assert bool(caplog.records) == (connections < 2000)


def test_too_few_open_files_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no traceback of whatever needs the next descriptor: a module of Python, a socket."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (32, 63))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: None)
    with pytest.raises(ConfigError, match=r"a limit of 63 open files is too low, .*ulimit -Hn"):
        open_files.allow_open_files(2000)
