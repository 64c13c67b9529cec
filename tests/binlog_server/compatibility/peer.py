"""The client of the lab: says bytes to a session that has no socket, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.handshake import Capability, Greeting, LoginRequest
from binlog_protocol.wire.packets import frame_packet

from binlog_server.app.app import Server
from tests.binlog_server.lab import PASSWORD, until
from tests.binlog_server.transport import Held

from .recordings import Exchange, PacketsFromServer

_EOF = 0xFE
_ERROR = 0xFF
_ENDS_BY_ITSELF = b"\0\xff\xfe"  # OK, error, EOF; what else comes first is a count of columns


class Peer:
    """A client on a new connection; the greeting is read."""

    def __init__(self, server: Server) -> None:
        self._held = Held(server)
        self._from_server = PacketsFromServer()
        self._read = 0
        (payload,) = self.packets()
        self.greeting = Greeting.parse(payload)

    @property
    def closed(self) -> bool:
        return self._held.transport.closing

    @property
    def compressed(self) -> bool:
        return self._from_server.compressed

    @property
    def out_of_order(self) -> list[int]:
        return self._from_server.out_of_order

    def _send(self, data: bytes) -> None:
        """One packet, byte by byte; the answer has the next sequence number."""
        self._from_server.expect(data[3] + 1)
        for byte in data:
            self._held.receive(bytes((byte,)))

    def packets(self) -> list[bytes]:
        """What came since the last call."""
        written = self._held.transport.written
        found = self._from_server.feed(bytes(written[self._read :]))
        self._read = len(written)
        self._held.transport.take()
        return found

    def log_in(self, recorded: bytes, *, wrong_password: bool = False) -> bytes:
        """The recorded login with the answer to our salt in it; returns what the server says to that.

        Who is not offered compression does not ask for it; nothing else depends on the greeting.
        """
        login = LoginRequest.parse(recorded)
        password = "wrong" if wrong_password else PASSWORD
        scramble = native_password_scramble(password, self.greeting.salt)
        request = recorded.replace(login.auth_response, scramble)
        offered = self.greeting.capabilities & Capability.COMPRESS
        if login.capabilities & Capability.COMPRESS and not offered:
            request = bytes((request[0] & ~Capability.COMPRESS & 0xFF,)) + request[1:]
        self._send(frame_packet(request, 1)[0])
        (answer,) = self.packets()
        accepted = answer[:1] == b"\0"
        self._from_server.compressed = accepted and bool(
            LoginRequest.parse(request).capabilities & offered
        )
        return answer

    async def ask(self, exchange: Exchange) -> list[bytes]:
        """All packets of the answer to a command."""
        self.command(exchange)
        answer: list[bytes] = []

        def whole() -> bool:
            answer.extend(self.packets())
            return self.closed or _is_whole(answer)

        await _until(whole)
        return answer

    def command(self, exchange: Exchange) -> None:
        """As `ask`; the answer is taken by `packets`."""
        self._send(exchange.wire if self.compressed else frame_packet(exchange.request, 0)[0])

    def interrupt(self, request: bytes) -> None:
        """A command into the running dump, which goes on."""
        for byte in frame_packet(request, 0)[0]:
            self._held.receive(bytes((byte,)))

    def shut_down(self) -> None:
        self._held.session.shut_down()

    def end(self) -> None:
        self._held.end()


async def _until(true: Callable[[], bool]) -> None:
    """Statements may take a thread: give it its turn."""
    if not true():
        await asyncio.sleep(0.001)
        await until(true)


def _is_whole(answer: list[bytes]) -> bool:
    if not answer:
        return False
    if answer[0][:1] in _ENDS_BY_ITSELF or not _is_count(answer[0]):
        return True
    ends = [p for p in answer[1:] if p[:1] == bytes((_EOF,)) and len(p) < 9]
    return len(ends) == 2 or answer[-1][:1] == bytes((_ERROR,))


def _is_count(payload: bytes) -> bool:
    """Of columns; else it is the text that answers COM_STATISTICS."""
    return len(payload) in (1, 2)  # with or without the flag of CACHE_METADATA
