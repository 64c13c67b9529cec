"""A client of the binary protocol, for our server and for a real MariaDB: the same packets to both."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.commands import Query, StmtBulkExecute, StmtExecute, StmtPrepare
from binlog_protocol.connection.handshake import (
    MARIADB_CAPABILITIES,
    SERVER_CAPABILITIES,
    Capability,
    Greeting,
    LoginRequest,
)
from binlog_protocol.wire.packets import PacketReader, frame_packet
from binlog_protocol.wire.results import parse_error

from binlog_server.testing.sql_server import Credentials

_PACKET_MAX = 1 << 26
_CAPABILITIES = SERVER_CAPABILITIES & ~int(
    Capability.COMPRESS
    | Capability.CONNECT_ATTRS
    | Capability.CONNECT_WITH_DB
    | Capability.SESSION_TRACK
    | Capability.DEPRECATE_EOF
)
Typed = tuple[int, bytes | None]
"""Type and value of a parameter, as they are sent; None is NULL."""


class PreparedClient:
    """Logged in after the constructor. Every ERR packet is raised as `RemoteError`."""

    def __init__(self, host: str, port: int, account: Credentials) -> None:
        self._socket = socket.create_connection((host, port), 20)
        self._reader = PacketReader(_PACKET_MAX)
        greeting = Greeting.parse(self._packet())
        request = LoginRequest(
            account.user,
            native_password_scramble(account.password, greeting.salt) if account.password else b"",
            capabilities=_CAPABILITIES,
            charset=45,
            mariadb_capabilities=MARIADB_CAPABILITIES,
        )
        self._send(request.build(), 1)
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._socket.close()

    def run(self, sql: str | bytes) -> None:
        """A statement without a result."""
        self._send(Query(sql).build())
        self._answer()

    def execute(self, sql: bytes, *values: Typed) -> None:
        """Prepared and executed once, without a result."""
        number = self._prepare(sql)
        nulls = sum(1 << i for i, (_, value) in enumerate(values) if value is None)
        body = nulls.to_bytes((len(values) + 7) // 8, "little") + b"\1" if values else b""
        body += b"".join(struct.pack("<H", kind) for kind, _ in values)
        body += b"".join(value for _, value in values if value is not None)
        self._send(StmtExecute(number, 0, body).build())
        self._answer()

    def execute_bulk(self, sql: bytes, types: Sequence[int], rows: Sequence[bytes]) -> None:
        """`rows` with indicators, as they are sent."""
        head = b"".join(struct.pack("<H", kind) for kind in types)
        self._send(StmtBulkExecute(self._prepare(sql), 128, head + b"".join(rows)).build())
        self._answer()

    def _prepare(self, sql: bytes) -> int:
        self._send(StmtPrepare(sql).build())
        number: int
        number, columns, parameters = struct.unpack_from("<IHH", self._answer(), 1)
        assert columns == 0
        for _ in range(parameters and parameters + 1):
            self._packet()
        return number

    def _send(self, payload: bytes, sequence: int = 0) -> None:
        self._socket.sendall(frame_packet(payload, sequence)[0])

    def _answer(self) -> bytes:
        payload = self._packet()
        if payload[:1] == b"\xff":
            raise parse_error(payload)
        return payload

    def _packet(self) -> bytes:
        while (packet := self._reader.next_packet()) is None:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("closed by the server")
            self._reader.feed(data)
        return packet.payload
