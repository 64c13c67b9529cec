"""A connection to a server: a blocking socket with the client machine of `protocol`. One user at a time."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any, Final, Self

from binlog_protocol.connection.beginning import ServerQuestion, binlog_state
from binlog_protocol.connection.client import ClientConnection, ClientState
from binlog_protocol.connection.conversation import (
    Exchange,
    ResultT,
    TlsRefused,
    drive,
    log_in,
    next_row,
    query,
    start_dump,
    start_file_dump,
    start_rows,
)
from binlog_protocol.connection.replica import ReplicaHandshake
from binlog_protocol.errors import RemoteError, UnknownSystemVariable
from binlog_protocol.gtid import BinlogState

from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.dump.tls import require_period, tls_context, tls_error, tls_policy

_READ_BYTES: Final = 1 << 18
_ATTRIBUTES: Final = {"program_name": "binlog-spark"}
SILENCE_S: Final = 120.0
"""A server may look so long for where a dump begins: MariaDB before 11.4 reads the file up to there."""


class ServerLink:
    """Logged in. Waits end with `TimeoutError`, a closed socket is a `ConnectionError`."""

    def __init__(
        self, connected: socket.socket, machine: ClientConnection, address: ServerAddress
    ) -> None:
        self._socket = connected
        self._address = address
        self.machine = machine

    @classmethod
    def open(cls, address: ServerAddress) -> Self:
        """Raises `OSError`, `SourceError`, `ProtocolError`, and `RemoteError` for what the server refuses."""
        machine = ClientConnection(address.user, address.read_password())
        found = socket.create_connection((address.host, address.port), address.connect_timeout)
        link = cls(found, machine, address)
        try:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            link._log_in()
        except BaseException:
            link.close()
            raise
        return link

    def _log_in(self) -> None:
        try:
            self._drive(log_in(self.machine, tls_policy(self._address), _ATTRIBUTES))
        except TlsRefused as error:
            raise tls_error(self._address, error) from None

    def _secure(self, request: bytes) -> bytes:
        """Start TLS. Returns the server's certificate."""
        context = tls_context(self._address)
        self._socket.sendall(request)
        try:
            secured = context.wrap_socket(self._socket, server_hostname=self._address.host)
        except ssl.SSLError as error:
            raise tls_error(self._address, error) from None
        self._socket = secured
        certificate = secured.getpeercert(binary_form=True) or b""
        require_period(self._address, certificate, time.time())
        return certificate

    def _drive(self, exchange: Exchange[ResultT]) -> ResultT:
        return drive(exchange, send=self._send, receive=self.receive, secure=self._secure)

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)  # which is another socket from the TLS handshake on

    @property
    def version(self) -> str:
        """The version of the server, as its greeting has it; empty before the greeting."""
        greeting = self.machine.greeting
        return "" if greeting is None else greeting.server_version

    def query(self, sql: str) -> list[list[str | None]]:
        """The rows, few and short; none for a statement that gives no result set. Raises `RemoteError`."""
        return self._drive(query(self.machine, sql))

    def ask(self, question: ServerQuestion) -> Any:
        """The answer to a question that has this connection to itself. Raises as its exchange."""
        return self._drive(question.exchange(self.machine))

    def rows(self, sql: str) -> Iterator[list[bytes | None]]:
        """The rows one by one, as the server sends them: there may be any number. Raises `RemoteError`."""
        self._drive(start_rows(self.machine, sql))
        while (row := self._drive(next_row(self.machine))) is not None:
            yield row

    def texts(self, sql: str) -> list[list[str | None]]:
        """The rows of any number and size, as those of `query`. Raises `RemoteError`."""
        return [
            [None if value is None else value.decode("utf-8", "surrogateescape") for value in row]
            for row in self.rows(sql)
        ]

    def be_patient(self) -> None:
        """Wait longer for each answer: a statement may take its time."""
        self._socket.settimeout(SILENCE_S)

    def binlog_state(self) -> BinlogState:
        """See `binlog_protocol.connection.beginning.binlog_state`."""
        return self._drive(binlog_state(self.machine))

    def has_engine_binlog(self) -> bool:
        """Whether the binlog has no files and positions, as MariaDB 12.3 can have it, and ours has."""
        try:
            return self.query("SELECT @@GLOBAL.binlog_storage_engine")[0][0] is not None
        except RemoteError as error:
            if error.errno != UnknownSystemVariable.errno:
                raise
            return False

    def start_dump(self, handshake: ReplicaHandshake) -> None:
        """Say what a replica says; the stream follows. Raises as `ReplicaHandshake.answer`."""
        self._drive(start_dump(self.machine, handshake))
        self._socket.settimeout(SILENCE_S)

    def start_file_dump(self, server_id: int, file: str = "", offset: int = 4) -> int:
        """The same without GTID, from the first file on, to the end of what there is.

        Returns the algorithm of checksums at the beginning.
        """
        algorithm = self._drive(start_file_dump(self.machine, server_id, file, offset))
        self._socket.settimeout(SILENCE_S)
        return algorithm

    def receive(self) -> int:
        """Wait for bytes, and hand them to the machine. Returns how many."""
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self.machine.receive_data(data)
        return len(data)

    def is_readable(self) -> bool:
        """Whether bytes are there already."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def interrupt(self) -> None:
        """Break the connection off, from another thread: a reader that waits for bytes gets an error."""
        with contextlib.suppress(OSError):
            # Not that of an SSLSocket, which also takes its TLS away while the other thread is in it.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        if self.machine.state is ClientState.READY:
            # Without a word the server writes a warning to its log. It may be gone, too.
            with contextlib.suppress(OSError):
                self._socket.sendall(self.machine.quit())
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
