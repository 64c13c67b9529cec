"""A client that speaks the replication protocol itself, to see what a server sends byte by byte.

    with RawClient(server) as client:
        client.query("SET @mariadb_slave_capability=4")
        events = list(client.dump())

It works towards our server and towards a real MariaDB, so a test can hold one against the other.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from binlog_protocol.connection.client import (
    ClientConnection,
    ClientEvent,
    ErrorReceived,
    EventReceived,
    StreamEnded,
)
from binlog_protocol.connection.commands import DumpFlag
from binlog_protocol.connection.conversation import (
    Exchange,
    ResultT,
    drive,
    log_in,
    next_event,
    query,
)
from binlog_protocol.errors import RemoteError

from binlog_server.testing.sql_server import Credentials, Followed

NO_REPLICA = 4242  # the server_id that is registered where the dump has none
FORMAT_DESCRIPTION = 15
CREATED_OFFSET = 19 + 2 + 50  # header, binlog version, server version


class RawClient:
    """Logged in after the constructor. Every ERR packet is raised as `RemoteError`."""

    def __init__(
        self, source: Followed, *, account: Credentials | None = None, timeout: float = 20.0
    ) -> None:
        account = account or source.account
        self.connection = ClientConnection(account.user, account.password)
        self.socket = socket.create_connection((source.host, source.port), timeout)
        try:
            self._drive(log_in(self.connection))
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.socket.close()

    def query(self, sql: str) -> list[list[str | None]]:
        """The rows; none for OK."""
        return self._drive(query(self.connection, sql))

    def start_dump(
        self,
        position: str | None = "",
        *,
        server_id: int = 0,
        flags: int | None = None,
        file: str = "",
        at: int = 4,
    ) -> None:
        """From a GTID position; None sets none: from `at` in `file`. Without a server_id the dump ends at the end.

        It registers, as a replica does: who does not is sent no start markers.
        """
        self.query("SET @master_binlog_checksum= @@global.binlog_checksum")
        self.query("SET @mariadb_slave_capability=4")
        if position is not None:
            self.query(f"SET @slave_connect_state='{position}'")
        self.socket.sendall(self.connection.register_slave(server_id or NO_REPLICA))
        self._next()
        if flags is None:
            flags = DumpFlag.SEND_ANNOTATE_ROWS | (0 if server_id else DumpFlag.NON_BLOCK)
        self.socket.sendall(self.connection.binlog_dump(server_id, flags, file, at))

    def events(self) -> Iterator[bytes]:
        """Of the dump, as sent, until EOF."""
        while not isinstance(event := self._next(), StreamEnded):
            assert isinstance(event, EventReceived), event
            yield event.event

    def dump(self, position: str | None = "", **options: Any) -> Iterator[bytes]:
        """`start_dump` and its `events`."""
        self.start_dump(position, **options)
        return self.events()

    def _next(self) -> ClientEvent:
        event = self._drive(next_event(self.connection))
        if isinstance(event, ErrorReceived):
            raise event.error
        return event

    def _drive(self, exchange: Exchange[ResultT]) -> ResultT:
        return drive(exchange, send=self.socket.sendall, receive=self._receive)

    def _receive(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("closed by the server")
        self.connection.receive_data(data)


def all_events(source: Followed, position: str = "") -> list[bytes]:
    """Everything that the server has behind a position."""
    with RawClient(source) as client:
        return list(client.dump(position))


def dump_error(source: Followed, position: str | None, *settings: str) -> RemoteError:
    """What the server refuses a dump with."""
    with RawClient(source) as client:
        for sql in settings:
            client.query(sql)
        try:
            for _ in client.dump(position):
                pass
        except RemoteError as error:
            return error
    raise AssertionError(f"a dump from {position!r} was not refused")


def start_markers(events: list[bytes]) -> list[bytes]:
    """The format descriptions with a creation time: a replica drops its temporary tables there."""
    return [
        event
        for event in events
        if event[4] == FORMAT_DESCRIPTION and any(event[CREATED_OFFSET : CREATED_OFFSET + 4])
    ]
