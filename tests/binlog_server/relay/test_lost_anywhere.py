"""An upstream that is lost at each step of the conversation: following goes on, whatever the step and the way.

Connection number N breaks behind N packets of the upstream (with TLS: records), or in the midst of the next one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, Self

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.connection.server import ServerEvent
from binlog_protocol.errors import ServerShutdown
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.results import error_payload
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory

from binlog_server.relay.status import UpstreamStatus
from binlog_server.sessions.faulty_session import FaultySession
from tests.binlog_server.lab import Lab, until
from tests.binlog_server.relay.test_follower import Delays, delays, durable, following
from tests.binlog_server.upstream import PASSWORD, VERSION

__all__ = ["delays"]  # a fixture

STEPS: Final = 25  # so many packets come at least before the stream
GROUPS: Final = [f"0-1-{number}" for number in range(1, 9)]

Break = Callable[[bytes], bytes]


def _garbled(unit: bytes) -> bytes:
    """Its frame is right, what is in it is not; TLS notices, and the events' checksums."""
    head = 5 if unit[0] in _RECORD_TYPES else 4
    return unit[:head] + bytes(byte ^ 0x55 for byte in unit[head:])


def _nonsense(unit: bytes) -> bytes:
    """No frame at all."""
    return b"\xff" * 40


def _error(unit: bytes) -> bytes:
    """As a server that goes down says it."""
    return frame_packet(error_payload(ServerShutdown()), unit[3])[0]


WAYS: Final[dict[str, Break]] = {
    "closes": lambda unit: b"",
    "resets": lambda unit: b"",
    "closes in a packet": lambda unit: unit[: len(unit) // 2],
    "garbles": _garbled,
    "sends nonsense": _nonsense,
    "sends an error": _error,
}
_RECORD_TYPES: Final = range(0x14, 0x18)


class BreakingProxy:
    """Before a server: breaks the connections one step later each."""

    def __init__(self, target: int, way: str) -> None:
        self._target = target
        self._way = way
        self.port = self.broken = self.accepted = 0
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        step = self.accepted
        self.accepted += 1
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        up = asyncio.ensure_future(_copy(reader, up_writer))
        try:
            await self._down(up_reader, writer, step)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            up.cancel()
            up_writer.close()
            writer.close()

    async def _down(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, step: int
    ) -> None:
        passed = 0
        while True:
            if passed == step and not WAYS[self._way](b"\0" * 5):
                self._end(writer)
                return
            unit = await _unit(reader)
            if passed == step:
                writer.write(WAYS[self._way](unit))
                self._end(writer)
                return
            writer.write(unit)
            passed += 1

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self.broken += 1
        if self._way == "resets":
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)


async def _unit(reader: asyncio.StreamReader) -> bytes:
    """A packet, or a record of TLS."""
    head = await reader.readexactly(4)
    if head[0] in _RECORD_TYPES and head[1] == 3:
        head += await reader.readexactly(1)
        return head + await reader.readexactly(int.from_bytes(head[3:5], "big"))
    return head + await reader.readexactly(int.from_bytes(head[:3], "little"))


@pytest.mark.by_turns(6)
@pytest.mark.parametrize("tls", [False, True], ids=["clear", "TLS"])
@pytest.mark.parametrize("way", WAYS)
async def test_following_goes_on(
    way: str, tls: bool, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    history = MemoryHistory()
    engine = MemoryEngine(history)
    status = UpstreamStatus("x")
    options: dict[str, Any] = {
        "max_connect_errors": 1 << 30,
        "server_id": 1,
        "server_version": VERSION,
    }
    async with Lab(users={"relay": PASSWORD}, **options) as lab:
        lab.publish(",".join(GROUPS[:-1]))
        proxy = BreakingProxy(lab.server.port, way)
        info = {"ssl": tls, "ssl_verify_server_cert": None}
        async with proxy, following(proxy, engine, status=status, info=info) as task:
            await until(lambda: task.done() or durable(history) == ",".join(GROUPS[:-1]))
            lab.publish(GROUPS[-1])
            await until(lambda: task.done() or durable(history) == ",".join(GROUPS))
            assert not task.done(), status.error
    assert proxy.broken > STEPS
    assert not [record for record in caplog.records if record.exc_info], "nothing unforeseen"


@pytest.mark.slow  # two seconds of processor
async def test_a_cut_at_each_command_and_each_event_loses_nothing(
    delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One connection for each: what the relay says up to its stream is heard first."""
    said: list[str] = []
    answer = FaultySession._answer

    def heard(session: FaultySession, event: ServerEvent) -> None:
        if isinstance(event, Query):
            said.append(event.text.decode())
        answer(session, event)

    monkeypatch.setattr(FaultySession, "_answer", heard)
    history = MemoryHistory()
    options: dict[str, Any] = {
        "max_connect_errors": 1 << 30,
        "server_id": 1,
        "server_version": VERSION,
        "binlog_faults": True,
    }
    async with Lab(users={"relay": PASSWORD}, **options) as lab:
        lab.publish(GROUPS[0])
        async with following(lab.server, MemoryEngine(history)):
            await until(lambda: durable(history) == GROUPS[0])
        assert any("slave_connect_state" in text for text in said)
        lab.publish(",".join(GROUPS[1:-1]))
        orders: list[dict[str, Any]] = [
            *({"on": step} for step in ("connect", "login", "register", "dump")),
            *({"statement": text} for text in dict.fromkeys(said)),
            *(
                {"gtid": gtid, "event": event, "inside": event == 2}
                for gtid in (GROUPS[1], GROUPS[-1])
                for event in (1, 2, 3)
            ),
        ]
        lab.server.faults.add([{"do": "cut", **order} for order in orders])
        async with following(lab.server, MemoryEngine(history)) as task:
            await until(lambda: task.done() or durable(history) == ",".join(GROUPS[:-1]))
            lab.publish(GROUPS[-1])
            await until(lambda: task.done() or durable(history) == ",".join(GROUPS))
            assert not task.done()
        assert {met for _, met in lab.server.faults.met()} == {1}
