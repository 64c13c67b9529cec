"""A transport that takes nothing by itself: what was written stays to be looked at."""

from __future__ import annotations

import asyncio
from typing import Any

from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.commands import BinlogDump, Query
from binlog_protocol.connection.handshake import Greeting, LoginRequest
from binlog_protocol.wire.packets import Packet, PacketReader, frame_packet

from binlog_server.app.app import Server
from binlog_server.commits.syncer import Syncer
from binlog_server.sessions.conversation import Conversation
from binlog_server.sessions.session import ClientSession

from .lab import PASSWORD, USER, until


class HeldTransport(asyncio.Transport):
    """Pauses its protocol beyond the limit, as those of asyncio do; `take` makes room."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1234)})
        self.protocol: ClientSession
        self.written = bytearray()
        self.held = 0
        self.high = 64 * 1024
        self.reading = True
        self.closing = self.aborted = False
        self._paused = False

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or self.high

    def get_write_buffer_size(self) -> int:
        return self.held

    def write(self, data: Any) -> None:
        if self.closing:
            return
        self.written += data
        self.held += len(data)
        if self.held > self.high and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def take(self, size: int | None = None) -> None:
        """The peer has read so many bytes, or everything."""
        self.held -= self.held if size is None else min(size, self.held)
        if self._paused and self.held <= self.high // 4:
            self._paused = False
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


class Held:
    """A session on such a transport."""

    def __init__(self, server: Server) -> None:
        if not hasattr(server, "syncer"):  # one that was not started
            server.syncer = Syncer(server.engine)
        self.transport = HeldTransport()
        self.session = ClientSession(server)
        self.transport.protocol = self.session
        self.session.connection_made(self.transport)
        self._reader = PacketReader(1 << 24)
        self._read = 0

    def packets(self) -> list[Packet]:
        """What was written since the last call."""
        self._reader.feed(self.take_bytes())
        found = []
        while (packet := self._reader.next_packet()) is not None:
            found.append(packet)
        return found

    def take_bytes(self) -> bytes:
        """What was written since the last call, as it was."""
        new = bytes(self.transport.written[self._read :])
        self._read = len(self.transport.written)
        return new

    def receive(self, data: bytes) -> None:
        """And answer all of it, also if the process stood still in the middle, so that the turn was over."""
        self.transport.protocol.data_received(data)
        channel, layer = self.session._channel, self.session._layer
        while channel.is_resting or (layer is not None and layer._resting):
            # As the loop does in its next round.
            if layer is not None and layer._resting:
                layer._rested()
            if channel.is_resting:
                channel._rested()

    def log_in(self, user: str = USER) -> None:
        (greeting,) = self.packets()
        salt = Greeting.parse(greeting.payload).salt
        login = LoginRequest(user, native_password_scramble(PASSWORD, salt))
        self.receive(frame_packet(login.build(), 1)[0])
        (answer,) = self.packets()
        assert answer.payload[:1] == b"\0"

    def dump(self, server_id: int) -> None:
        """Begin one from an empty position."""
        self.ask(Query("SET @mariadb_slave_capability=4, @slave_connect_state=''").build())
        self.transport.take()
        self.receive(frame_packet(BinlogDump(server_id, 2).build(), 0)[0])

    def ask(self, *payloads: bytes) -> list[bytes]:
        """Commands, sent together; all packets of their answers."""
        self.receive(b"".join(frame_packet(p, 0)[0] for p in payloads))
        return [packet.payload for packet in self.packets()]

    async def ask_long(self, payload: bytes) -> None:
        """A statement that is parsed in a thread, to its answer."""
        self.transport.take()
        self.session.data_received(frame_packet(payload, 0)[0])
        await until(lambda: self.transport.held > 0)

    @property
    def conversation(self) -> Conversation:
        """From the login on."""
        assert self.session._conversation is not None
        return self.session._conversation

    def end(self) -> None:
        self.session.connection_lost(None)
