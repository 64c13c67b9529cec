"""The two ends of a connection, joined by memory."""

from __future__ import annotations

from binlog_protocol.connection.client import (
    ClientConnection,
    ClientEvent,
    GreetingReceived,
    LoggedIn,
)
from binlog_protocol.connection.server import LoginReceived, ServerConnection, ServerEvent

SALT = bytes(range(65, 85))


class ConnectionPair:
    """Carries bytes in chunks of a given size."""

    def __init__(self, *, user: str = "repl", password: str = "pw", chunk: int = 1 << 20) -> None:
        self.server = ServerConnection(
            connection_id=7, server_version="11.8.6-MariaDB-test", salt=SALT
        )
        self.client = ClientConnection(user, password)
        self._chunk = chunk

    def to_server(self, data: bytes) -> ServerEvent | None:
        """Deliver; the event must not come before the last byte."""
        for start in range(0, len(data), self._chunk):
            assert self.server.next_event() is None
            self.server.receive_data(data[start : start + self._chunk])
        return self.server.next_event()

    def to_client(self, data: bytes | bytearray) -> list[ClientEvent]:
        events = []
        for start in range(0, len(data), self._chunk):
            self.client.receive_data(data[start : start + self._chunk])
            while (event := self.client.next_event()) is not None:
                events.append(event)
        return events

    def log_in(self) -> None:
        (greeting,) = self.to_client(self.server.greeting())
        assert isinstance(greeting, GreetingReceived)
        login = self.to_server(self.client.login())
        assert isinstance(login, LoginReceived)
        assert self.to_client(self.server.accept_login()) == [LoggedIn()]
