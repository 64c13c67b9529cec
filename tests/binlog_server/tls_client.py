"""A client of the lab that speaks TLS by hand, so that a test decides what goes into which segment."""

from __future__ import annotations

import contextlib
import ssl
from typing import Self

from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.handshake import Capability, LoginRequest, TlsRequest
from binlog_protocol.wire.packets import frame_packet

from .lab import PASSWORD, USER, Client, within


def client_context() -> ssl.SSLContext:
    """Takes any certificate, as a client does that waits for the proof."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class TlsClient(Client):
    """`upgrade` after `connect`; everything else as any client."""

    _tls: ssl.SSLObject | None = None

    def begin(self, context: ssl.SSLContext | None = None) -> bytes:
        """The request and the ClientHello, one after the other."""
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = (context or client_context()).wrap_bio(self._in, self._out, server_side=False)
        self._handshake = tls
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        return frame_packet(TlsRequest().build(), 1)[0] + self._out.read()

    async def finish(self) -> Self:
        """The rest of the handshake."""
        while True:
            try:
                self._handshake.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                data = await within(self.reader.read(1 << 16))
                if not data:
                    raise ConnectionError("closed within the handshake") from None
                self._in.write(data)
        self._flush()
        self._tls = self._handshake
        return self

    async def upgrade(self, context: ssl.SSLContext | None = None) -> Self:
        self.writer.write(self.begin(context))
        return await self.finish()

    def _flush(self) -> None:
        self.writer.write(self._out.read())

    @property
    def certificate(self) -> bytes:
        """The server's, in DER."""
        assert self._tls is not None
        found = self._tls.getpeercert(binary_form=True)
        assert found is not None
        return found

    def send(self, data: bytes) -> None:
        if self._tls is None:
            super().send(data)
            return
        self._tls.write(data)
        self._flush()

    async def packet(self) -> bytes | None:
        while self._tls is not None:
            packet = self.packets.next_packet()
            if packet is not None:
                self.seen.append(packet)
                return packet.payload
            data = await self._decrypted()
            if not data:
                return None
            self.packets.feed(data)
        return await super().packet()

    async def _decrypted(self) -> bytes:
        """What came; nothing when the server has closed."""
        assert self._tls is not None
        while True:
            try:
                return self._tls.read(1 << 16)
            except ssl.SSLWantReadError:
                received = await within(self.reader.read(1 << 16))
                if not received:
                    return b""
                self._in.write(received)

    async def log_in(
        self, user: str = USER, password: str = PASSWORD, plugin: str | None = None
    ) -> bytes:
        request = LoginRequest(
            user,
            native_password_scramble(password, self.greeting.salt),
            capabilities=LoginRequest("").capabilities | Capability.SSL,
        )
        self.send(frame_packet(request.build(), 2)[0])
        return await self.answer()
