"""Who is connected: for SHOW PROCESSLIST, SHOW SLAVE HOSTS, KILL, and one dump per server_id."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from protocol.connection.commands import RegisterSlave
from protocol.errors import ServerError, UnknownThread
from protocol.wire.results import Value
from storage.engine import Position


class Ending(Protocol):
    """How a connection is ended from outside."""

    def end(self, error: ServerError | None) -> None:
        """Close it, with an ERR packet first if there is an error to tell and the state allows it."""

    def shut_down(self) -> None:
        """Close it because the server stops: a dump is ended by EOF, so that the replica reconnects."""


@dataclass(slots=True)
class Connection:
    """One client, as SHOW PROCESSLIST tells it."""

    id: int
    address: str
    ending: Ending
    user: str = "unauthenticated user"
    account: str = ""  # user@host of the account that it has logged in to
    command: str = "Connect"
    state: str = "login"
    since: float = field(default_factory=time.monotonic)
    registered: RegisterSlave | None = None
    dump_server_id: int = 0
    sent: Position | None = None  # how far a dump has got in the store

    def now(self, command: str, state: str) -> None:
        """What it does from now on."""
        self.command, self.state = command, state
        self.since = time.monotonic()


class Connections:
    """All clients of one server. For one event loop."""

    def __init__(self) -> None:
        self._by_id: dict[int, Connection] = {}
        self._last_id = 0
        self.accepted = 0
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._by_id.values()))

    def next_id(self) -> int:
        """A connection id, never used twice."""
        self._last_id += 1
        return self._last_id

    def add(self, connection: Connection) -> None:
        """It is there from now on."""
        self.accepted += 1
        self._by_id[connection.id] = connection
        self._none.clear()

    def remove(self, connection: Connection) -> None:
        """It has gone; twice is no error."""
        self._by_id.pop(connection.id, None)
        if not self._by_id:
            self._none.set()

    async def none_left(self) -> None:
        """Returns when the last one has gone."""
        await self._none.wait()

    def kill(self, connection_id: int) -> None:
        """End one. Raises `UnknownThread`."""
        connection = self._by_id.get(connection_id)
        if connection is None:
            raise UnknownThread(connection_id)
        connection.ending.end(None)

    def count_of(self, account: str) -> int:
        """How many are logged in to an account."""
        return sum(c.account == account for c in self._by_id.values())

    def dumps_of(self, server_id: int) -> list[Connection]:
        """The dumps that run for a server_id; 0 is nobody's."""
        return [c for c in self if server_id and c.dump_server_id == server_id]

    def owner(self, connection_id: int) -> str:
        """Whose it is. Raises `UnknownThread`."""
        connection = self._by_id.get(connection_id)
        if connection is None:
            raise UnknownThread(connection_id)
        return connection.user

    def processlist(self, user: str | None = None) -> list[Sequence[Value]]:
        """Rows of SHOW PROCESSLIST, of one user or of all."""
        now = time.monotonic()
        return [
            (c.id, c.user, c.address, None, c.command, int(now - c.since), c.state, None, "0.000")
            for c in self
            if user in (None, c.user)
        ]

    def slave_hosts(self, master_id: int) -> list[Sequence[Value]]:
        """Rows of SHOW SLAVE HOSTS."""
        return [
            (c.registered.server_id, c.registered.host, c.registered.port, master_id)
            for c in self
            if c.registered is not None
        ]
