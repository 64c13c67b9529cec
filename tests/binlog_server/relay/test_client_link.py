"""A connection that we make: what it says when it is gone."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
import zlib
from typing import Any, cast
from unittest.mock import patch

import pytest
import uvloop
from binlog_protocol.connection.client import ClientConnection
from binlog_protocol.connection.handshake import SERVER_CAPABILITIES, Capability
from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import build_event
from binlog_protocol.groups.group_stream import EventReceived
from binlog_protocol.wire.compressed import CompressedPacket, CompressedReader, framed
from binlog_protocol.wire.packets import frame_packet
from binlog_storage.disk.given_files import validity

from binlog_server.connections.certificate import self_signed
from binlog_server.relay.byte_stream import ByteStream
from binlog_server.relay.client_link import LARGE_BYTES, TAKEN_BYTES_MAX, ClientLink
from binlog_server.upstreams.client_tls import TlsFailed, TlsOptions
from tests.binlog_server.lab import within
from tests.binlog_server.upstream import PASSWORD, SALT, FakeUpstream
from tests.protocol.groups.test_group_runs import streaming


def test_a_question_to_one_that_is_gone() -> None:
    """On the server's own loop, whose transports answer that with a RuntimeError, which nobody takes for a loss."""

    async def ask() -> None:
        async with FakeUpstream() as upstream:
            link = await ClientLink.connect("127.0.0.1", upstream.port, "u", PASSWORD, 60)
            await link.log_in()
            assert await link.query("SELECT 1") == [["0"]]
            link.close()
            await asyncio.sleep(0)
            await link.query("SELECT 1")

    with pytest.raises(ConnectionError, match="the server has closed the connection"):
        uvloop.run(ask())


async def test_what_comes_in_clear_before_tls_is_not_taken_for_what_comes_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody between sends an OK behind the greeting, while we still read our certificates."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        machine = ServerConnection(
            connection_id=9,
            server_version="11.8",
            salt=SALT,
            capabilities=SERVER_CAPABILITIES | Capability.SSL,
        )
        writer.write(machine.greeting())
        await may_send.wait()
        writer.write(frame_packet(bytes.fromhex("00000002000000"), 4)[0])

    may_send = asyncio.Event()
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = await ClientLink.connect("127.0.0.1", port, "u", PASSWORD, 60, TlsOptions(verify=False))

    def slow_context(_: TlsOptions) -> ssl.SSLContext:
        loop.call_soon_threadsafe(may_send.set)
        while not link._stream.has_unread:
            time.sleep(0.001)  # in a thread of its own
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(TlsOptions, "context", slow_context)
    with pytest.raises(TlsFailed, match="has sent something in clear behind its greeting"):
        await within(link.log_in())
    link.close()
    server.close()


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "a\0b", "nowhere.invalid"])
async def test_a_name_that_is_none(host: str) -> None:
    with pytest.raises(socket.gaierror):
        await ClientLink.connect(host, 3306, "u", PASSWORD, 60)


async def test_each_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of the last one."""
    async with FakeUpstream() as upstream:
        addresses = ["127.0.0.2", "127.0.0.1"]

        def found(host: str, port: int, *, type: int, flags: int) -> list[tuple[Any, ...]]:
            if flags:
                raise socket.gaierror(socket.EAI_NONAME, "no number")
            return [(socket.AF_INET, type, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr("binlog_server.relay.byte_stream.socket.getaddrinfo", found)
        link = await ClientLink.connect("db", upstream.port, "u", PASSWORD, 60)
        await link.log_in()
        link.close()
        addresses.pop()
        with pytest.raises(ConnectionRefusedError) as error:
            await ClientLink.connect("db", upstream.port, "u", PASSWORD, 60)
        assert error.value.errno == errno.ECONNREFUSED


@pytest.mark.parametrize("stored", [False, True])
async def test_a_large_compressed_packet_is_handed_over_in_pieces(
    monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    """Between any two of them others may have their turn; what comes out is the same event."""
    event = build_event(EventType.HEARTBEAT, bytes(12_000_000), server_id=1)
    packets = frame_packet(b"\0" + event, 1)[0]
    part = (
        CompressedPacket(packets, 0)
        if stored
        else CompressedPacket(zlib.compress(packets), len(packets))
    )
    sent, _ = framed([part], 0)

    class Stream:
        """What comes of a socket."""

        async def ready(self, timeout_s: float) -> None:
            """There is always something."""

        def take(self, before: bytes | memoryview = b"") -> memoryview:
            assert not before
            nonlocal sent
            piece, sent = sent[:1_000_000], sent[1_000_000:]
            return memoryview(piece)

    machine = streaming()
    machine.compressed = True
    sizes: list[int] = []
    receive = machine.receive_data

    def received(data: memoryview) -> None:
        sizes.append(len(data))
        receive(data)

    monkeypatch.setattr(machine, "receive_data", received)
    link = ClientLink(cast(ByteStream, Stream()), machine, 5, "h", TlsOptions(enabled=False))
    link._packed = CompressedReader(restarts=False)
    calls = 0
    while (found := machine.next_event()) is None:
        came = len(sizes)
        await link.receive()
        assert sum(sizes[came:]) <= TAKEN_BYTES_MAX + LARGE_BYTES
        calls += 1
    assert found == EventReceived(event)
    assert sum(sizes) == len(packets)
    assert max(sizes) <= LARGE_BYTES
    assert calls >= len(packets) // (TAKEN_BYTES_MAX + LARGE_BYTES)


async def test_a_certificate_that_has_ended_is_not_taken() -> None:
    """The login, and so the password's proof, does not come: the handshake is over, and nothing was sent by it."""
    certificate = ssl.PEM_cert_to_DER_cert(self_signed()[1].decode("ascii"))

    class Secured:
        has_unread = False

        @property
        def tls(self) -> Secured:
            return self

        def getpeercert(self, *, binary_form: bool) -> bytes:
            assert binary_form
            return certificate

        def write(self, data: bytes) -> None:
            assert data == b"request"

        async def start_tls(self, *_: object) -> None: ...

    machine = ClientConnection("u", PASSWORD)
    link = ClientLink(cast(ByteStream, Secured()), machine, 60, "127.0.0.1", TlsOptions())
    assert await link._secure(b"request") == certificate
    with (
        patch.object(time, "time", return_value=validity(certificate)[1] + 1),
        pytest.raises(TlsFailed, match="certificate has expired"),
    ):
        await link._secure(b"request")
