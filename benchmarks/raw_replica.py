"""A client that says what a replica says up to the dump, and then is only a socket."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final

from binlog_protocol.connection.client import ClientConnection
from binlog_protocol.connection.commands import DumpFlag
from binlog_protocol.connection.conversation import (
    NO_TLS,
    Exchange,
    TlsPolicy,
    TlsRefused,
    drive,
    log_in,
    query,
)
from binlog_protocol.errors import RemoteError

from benchmarks.registry import BenchmarkError

READ_BYTES: Final = 1 << 16
NON_BLOCK: Final = DumpFlag.NON_BLOCK | DumpFlag.SEND_ANNOTATE_ROWS
FOLLOW: Final = DumpFlag.SEND_ANNOTATE_ROWS
_NS: Final = 1_000_000_000


class DrainError(BenchmarkError):
    """A stream that was refused, broke off, or is not like the others."""


class StreamEnded(DrainError):
    """The server has closed a connection."""


def received(sock: socket.socket, buffer: bytearray) -> Iterator[memoryview]:
    """What has come to a socket that is readable, in pieces that lie in the buffer until the next one.

    With TLS all of it: no poll tells of what the socket holds decrypted. Raises `StreamEnded`.
    """
    view = memoryview(buffer)
    while True:
        try:
            taken = sock.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        if not taken:
            raise StreamEnded("the server has closed a connection")
        yield view[:taken]
        if not isinstance(sock, ssl.SSLSocket):
            return


class RawReplica:
    """A blocking socket with the protocol's client machine, up to the dump command.

    Args:
        position: GTID list to begin behind; nothing for the beginning.
        heartbeat_s: period of heartbeats, 0 for none.
        tls: all by TLS; which certificate the server has is the same to it.
    """

    def __init__(
        self,
        address: tuple[str, int],
        user: str,
        password: str,
        *,
        position: str = "",
        heartbeat_s: float = 0,
        tls: bool = False,
    ) -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self._machine = ClientConnection(user, password)
        self._drive(log_in(self._machine, TlsPolicy(required=True) if tls else NO_TLS))
        for statement in (
            f"SET @master_heartbeat_period={round(heartbeat_s * _NS)}",
            # As a replica: events come with the checksums that they are stored with, if any.
            "SET @master_binlog_checksum=@@global.binlog_checksum",
            "SET @mariadb_slave_capability=4",
            f"SET @slave_connect_state='{position}'",
            "SET @slave_gtid_strict_mode=0",
            "SET @slave_gtid_ignore_duplicates=0",
        ):
            self._drive(query(self._machine, statement))

    def start_dump(self, server_id: int, flags: DumpFlag = NON_BLOCK) -> socket.socket:
        """The socket, from which from now on comes the stream; it does not block."""
        self._socket.sendall(self._machine.binlog_dump(server_id, flags))
        self._socket.setblocking(False)
        return self._socket

    def _drive(self, exchange: Exchange[Any]) -> None:
        try:
            drive(exchange, send=self._send, receive=self._receive, secure=self._secure)
        except (RemoteError, TlsRefused) as error:
            raise DrainError(str(error)) from None

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _secure(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._socket = secured = context.wrap_socket(self._socket)
        return secured.getpeercert(binary_form=True) or b""

    def _receive(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise DrainError("the server has closed the connection during the login")
        self._machine.receive_data(data)
