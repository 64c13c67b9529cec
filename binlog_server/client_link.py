"""A connection that we make: a socket with the client machine. For following an upstream, and for asking it things."""

from __future__ import annotations

import asyncio
from typing import Self

from protocol.connection.client import (
    AuthSwitchReceived,
    ClientConnection,
    ClientEvent,
    ErrorReceived,
    GreetingReceived,
    LoggedIn,
    OkReceived,
    ResultReceived,
)
from protocol.connection.replica import ReplicaHandshake
from protocol.errors import ProtocolError

READ_BYTES = 1 << 18


class ClientLink:
    """One connection. Made by `connect`; one user at a time.

    Every wait for bytes ends with `TimeoutError` after `timeout_s` seconds; a closed socket is a `ConnectionError`.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        machine: ClientConnection,
        timeout_s: float,
    ) -> None:
        self.machine = machine
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s

    @classmethod
    async def connect(
        cls, host: str, port: int, user: str, password: str, timeout_s: float
    ) -> Self:
        """Open the socket; `log_in` comes next."""
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port, limit=READ_BYTES)
        return cls(reader, writer, ClientConnection(user, password), timeout_s)

    async def log_in(self) -> str:
        """Returns the version text of the greeting. Raises `RemoteError` when refused."""
        version = ""
        while True:
            match await self.next_event():
                case GreetingReceived(greeting):
                    version = greeting.server_version
                    self._writer.write(self.machine.login())
                case AuthSwitchReceived(answer):
                    self._writer.write(answer)
                case LoggedIn():
                    return version
                case ErrorReceived(error):
                    raise error

    async def query(self, sql: str) -> list[list[str | None]]:
        """The rows; none for a statement that gives no result set. Raises `RemoteError`."""
        self._writer.write(self.machine.query(sql))
        match await self.next_event():
            case ResultReceived(rows=rows):
                return rows
            case OkReceived():
                return []
            case ErrorReceived(error):
                raise error
            case other:
                raise ProtocolError(f"{type(other).__name__} is no answer to a query")

    async def start_dump(self, handshake: ReplicaHandshake) -> None:
        """Say what a replica says; events follow. Raises as `ReplicaHandshake.answer`."""
        while (request := handshake.next_request()) is not None:
            self._writer.write(request)
            if not handshake.is_streaming:
                handshake.answer(await self.next_event())

    async def next_event(self) -> ClientEvent:
        """The next event; waits for bytes as needed."""
        while (event := self.machine.next_event()) is None:
            await self._fill()
        return event

    async def events(self) -> list[ClientEvent]:
        """At least one event, and all that came with it."""
        events = [await self.next_event()]
        while (event := self.machine.next_event()) is not None:
            events.append(event)
        return events

    def close(self) -> None:
        """Close the socket."""
        self._writer.close()

    async def _fill(self) -> None:
        async with asyncio.timeout(self._timeout_s):
            data = await self._reader.read(READ_BYTES)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self.machine.receive_data(data)
