"""The table of connections: for SHOW PROCESSLIST, SHOW SLAVE HOSTS, KILL, and one dump per server_id."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from binlog_protocol.connection.commands import RegisterSlave
from binlog_protocol.dataclass import dataclass
from binlog_protocol.dump.target import NamedTarget
from binlog_protocol.errors import ServerError, UnknownThread
from binlog_protocol.wire.results import Value
from binlog_storage.engine import Position

from binlog_server.accounts.replica_policy import ReplicaPolicy
from binlog_server.connections.channel import Traffic
from binlog_server.connections.statement_counts import StatementCounts
from binlog_server.loop.crowd import Crowd


class Ending(Protocol):
    """A connection that others may end: KILL, a new dump with the same server_id, the server's stop."""

    def end(self, error: ServerError | None) -> None:
        """Close it, with an ERR packet first if there is an error to tell and the state allows it."""

    def interrupt(self) -> None:
        """KILL QUERY: end the running statement, if it only waits or reads."""

    def shut_down(self) -> None:
        """Close it because the server stops: a dump is ended by EOF, so that the replica reconnects."""


@dataclass(slots=True)
class Connection:
    """One client's connection, with the values that SHOW PROCESSLIST shows."""

    id: int
    address: str
    ending: Ending
    user: str = "unauthenticated user"
    account: str = ""  # user@host of the account; empty before the login
    target: NamedTarget | None = None  # of a name that ends with +until=...
    command: str = "Connect"
    state: str = "login"
    since: float = field(default_factory=time.monotonic)
    registered: RegisterSlave | None = None
    dump_server_id: int = 0
    sent: Position | None = None  # the end of the groups that its dump has sent
    acknowledged: Position | None = None  # the end that a semi-sync replica has acknowledged
    # The place up to which its dump's replica has everything, and whether it has said so; None keeps no slot.
    has: Callable[[], tuple[Position, bool] | None] = lambda: None
    traffic: Traffic = field(default_factory=Traffic)
    counts: StatementCounts = field(default_factory=StatementCounts)
    uses_tls: bool = False
    # Of the account, for the dump that runs or may come.
    policy: ReplicaPolicy = field(default_factory=ReplicaPolicy)
    change_limits: Callable[[ReplicaPolicy], None] | None = None  # those of the running dump
    # End the dump by EOF, so that the replica reconnects; None without one. The reason is for the log.
    end_dump: Callable[[str], None] | None = None
    dump_by_file: bool = False  # from a file and position, without GTID
    store_changed: Callable[[], None] = lambda: None  # the binlog goes on in another store
    info: str | None = None  # the running statement, without secrets
    database: Callable[[], str | None] = lambda: None  # the default database
    # The statement that runs where nobody has said it by `now`: its state and its text.
    running: Callable[[], tuple[str, str] | None] = lambda: None
    # Bytes that were written for the client, and that the system has not taken yet.
    unsent: Callable[[], int] = lambda: 0
    # Seconds for which the replica of its dump has read nothing, as far as its system tells; None: it does not.
    unread_s: Callable[[], float | None] = lambda: None
    lag_state: str = ""  # throttled, or about to be dropped, because it lags; empty: neither

    @property
    def shown_state(self) -> str:
        """The state in SHOW PROCESSLIST and SHOW BINLOG REPLICAS."""
        return f"{self.state}; {self.lag_state}" if self.lag_state else self.state

    @property
    def shown_now(self) -> tuple[str, str, str | None]:
        """Command, state and statement in SHOW PROCESSLIST."""
        running = self.running() if self.command == "Sleep" else None
        return ("Query", *running) if running else (self.command, self.shown_state, self.info)

    def forget_login(self) -> None:
        """COM_CHANGE_USER: it is nobody's until the next login."""
        self.account = ""
        self.target = None
        self.registered = None
        self.policy = ReplicaPolicy()
        self.database = lambda: None
        self.running = lambda: None
        self.now("Change user", "login")

    def now(self, command: str, state: str, info: str | None = None) -> None:
        """Set the command and state that SHOW PROCESSLIST shows."""
        self.command, self.state, self.info = command, state, info
        self.since = time.monotonic()


class Connections:
    """All connections of one server. To be used on its event loop only."""

    def __init__(self) -> None:
        self.by_id: dict[int, Connection] = {}  # to be looked at from outside, not changed
        self.pending: Crowd[Connection] = Crowd()  # connections before their login
        self._last_id = 0
        self.accepted = 0
        self.most = 0  # the highest number of connections at one time
        self.most_at = 0.0  # when, in seconds since 1970
        self.too_many = 0  # refused by max_connections, or crowded out before their login
        self.aborted_connects = 0  # connections that ended without a login
        self.aborted_clients = 0  # those that ended behind it, without COM_QUIT
        self.registered = 0  # COM_REGISTER_SLAVE
        self.aborted_early = 0  # of the aborted, those that sent no login
        self.asked: Counter[str] = Counter()  # see `StatementCounts.everybody`
        self.flushed: Mapping[str, int] = {}  # see `flush_status`
        self.flushed_at = time.monotonic()
        self.tls_accepts = 0
        self.tls_finished = 0  # handshakes that succeeded
        self.write_timeouts = 0  # connections that took nothing for net_write_timeout
        self.duplicate_server_ids = 0  # dumps that ended because their server_id came again
        self._gone = Traffic()  # bytes of ended connections
        self.replicas_dropped = 0  # dumps that were ended for lagging too far
        self.throttled_ms = 0.0  # time that all dumps together have waited for their rate
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def logged_in(self) -> int:
        return len(self.by_id) - len(self.pending)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self.by_id.values()))

    def next_id(self) -> int:
        """A connection id, never used twice."""
        self._last_id += 1
        return self._last_id

    def add(self, connection: Connection) -> None:
        self.accepted += 1
        self.by_id[connection.id] = connection
        if len(self.by_id) > self.most:
            self.most, self.most_at = len(self.by_id), time.time()
        self._none.clear()

    def remove(self, connection: Connection) -> None:
        """Remove a connection; twice is no error."""
        self.pending.remove(connection)
        if self.by_id.pop(connection.id, None) is not None:
            self._gone.received += connection.traffic.received
            self._gone.sent += connection.traffic.sent
            connection.counts.fold()
        if not self.by_id:
            self._none.set()

    def traffic(self) -> Traffic:
        """Bytes of all connections since the start."""
        open_now = [c.traffic for c in self.by_id.values()]
        return Traffic(
            self._gone.received + sum(t.received for t in open_now),
            self._gone.sent + sum(t.sent for t in open_now),
        )

    def counted(self) -> Mapping[str, int]:
        """The statements of all connections since the start, by the names of SHOW STATUS."""
        for connection in self.by_id.values():
            connection.counts.fold()
        return self.asked

    def flush_status(self, shown: Mapping[str, int]) -> None:
        """FLUSH GLOBAL STATUS: the sums begin anew, with what the sessions say that are there.

        Args:
            shown: the counters that begin at 0, as they are now. Metrics, which count on, do not.
        """
        self.counted()
        self.asked.clear()
        for connection in self.by_id.values():
            self.asked.update(connection.counts.own)
        self.most, self.most_at = len(self.by_id), time.time()
        self.flushed, self.flushed_at = shown, time.monotonic()

    async def none_left(self) -> None:
        """Wait until the last connection has gone."""
        await self._none.wait()

    def is_there(self, connection_id: int) -> bool:
        """Whether there is a connection of that number."""
        return connection_id in self.by_id

    def kill(self, connection_id: int) -> None:
        """End a connection. Raises `UnknownThread`."""
        self._find(connection_id).ending.end(None)

    def interrupt(self, connection_id: int) -> None:
        """KILL QUERY. Raises `UnknownThread`."""
        self._find(connection_id).ending.interrupt()

    def owner(self, connection_id: int) -> str:
        """The account of a connection. Raises `UnknownThread`."""
        return self._find(connection_id).user

    def _find(self, connection_id: int) -> Connection:
        connection = self.by_id.get(connection_id)
        if connection is None:
            raise UnknownThread(connection_id)
        return connection

    def set_policy(self, account: str, policy: ReplicaPolicy) -> None:
        """Set the replica policy of an account: its limits hold for running dumps at once, its style for later ones."""
        for connection in self:
            if connection.account == account:
                connection.policy = policy
                if connection.change_limits is not None:
                    connection.change_limits(policy)

    def end_clients(self) -> None:
        """The server stops: all leave but dumps."""
        for connection in self:
            if connection.end_dump is None:
                connection.ending.shut_down()

    def behind(self, end: Position) -> list[Connection]:
        """The dumps that have not sent everything up to there."""
        dumps = [c for c in self if c.end_dump is not None]
        return [c for c in dumps if c.sent is None or c.sent < end or c.unsent()]

    def count_of(self, account: str) -> int:
        return sum(c.account == account for c in self.by_id.values())

    def dumps_of(self, server_id: int) -> list[Connection]:
        """The connections with a running dump for a server_id; none for 0, which no replica has."""
        return [c for c in self if server_id and c.dump_server_id == server_id]

    def processlist(self, user: str | None = None) -> list[Sequence[Value]]:
        """Rows of SHOW PROCESSLIST, of one user or of all."""
        now = time.monotonic()
        rows: list[Sequence[Value]] = []
        for c in self:
            if user in (None, c.user):
                command, state, info = c.shown_now
                seconds = int(now - c.since)
                row = (c.id, c.user, c.address, c.database(), command, seconds, state, info)
                rows.append((*row, "0.000"))
        return rows

    def slave_hosts(self, master_id: int) -> list[Sequence[Value]]:
        return [
            (c.registered.server_id, c.registered.host, c.registered.port, master_id)
            for c in self
            if c.registered is not None
        ]
