"""A client of the lab that speaks the compressed protocol, over plain sockets or inside TLS."""

from __future__ import annotations

from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.handshake import REPLICA_CAPABILITIES, Capability, LoginRequest
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.compressed import CompressedReader, compressed, framed
from binlog_protocol.wire.packets import frame_packet

from .lab import PASSWORD, USER, Lab, within
from .tls_client import TlsClient


class CompressedClient(TlsClient):
    """Compressed from the login on."""

    answers: CompressedReader | None = None
    received = 0  # bytes as they came, behind the login

    def send(self, data: bytes) -> None:
        """As one request."""
        if self.answers is None:
            super().send(data)
            return
        request, self.answers.next_seq = framed(compressed(data), 0)
        self.send_raw(request)

    def send_raw(self, data: bytes) -> None:
        """Whatever it is."""
        if self._tls is None:
            self.writer.write(data)
        else:
            self._tls.write(data)
            self._flush()

    async def packet(self) -> bytes | None:
        answers = self.answers
        if answers is None:
            return await super().packet()
        while (packet := self.packets.next_packet()) is None:
            part = answers.next_part()
            if part is not None:
                self.packets.feed(part.payload())
                continue
            data = await self._read()
            if not data:
                return None
            self.received += len(data)
            answers.feed(data)
        return packet.payload

    async def _read(self) -> bytes:
        if self._tls is None:
            try:
                return await within(self.reader.read(1 << 18))
            except ConnectionError:
                return b""
        return await self._decrypted()

    async def log_in(
        self,
        user: str = USER,
        password: str = PASSWORD,
        plugin: str | None = None,
        behind: bytes = b"",
    ) -> bytes:
        """The answer. `behind`: commands sent together with the login."""
        capabilities = REPLICA_CAPABILITIES | Capability.COMPRESS
        if self._tls is not None:
            capabilities |= Capability.SSL
        response = native_password_scramble(password, self.greeting.salt)
        request = LoginRequest(user, response, plugin=plugin, capabilities=capabilities)
        if plugin is None:
            request = LoginRequest(user, response, capabilities=capabilities)
        login, _ = frame_packet(request.build(), 2 if self._tls else 1)
        self.send_raw(login + framed(compressed(behind), 0)[0])
        answer = await self.answer()
        if answer[:1] == b"\0":
            self.answers = CompressedReader(PACKET_PAYLOAD_MAX, restarts=False)
            self.answers.next_seq = 1
            rest = self.packets.take_rest()
            self.received += len(rest)
            self.answers.feed(rest)
        return answer


async def compressed_client(lab: Lab, *, tls: bool = False) -> CompressedClient:
    """Logged in."""
    client = await CompressedClient.connect(lab.server.port)
    if tls:
        await client.upgrade()
    assert (await client.log_in())[:1] == b"\0"
    return client
