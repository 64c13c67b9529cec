"""The connections to upstreams, by name; "" is the default one. What CHANGE MASTER, START, STOP and RESET SLAVE do.

Those of the configuration file are defined there alone: SQL starts and stops them. If SQL has defined one of the same
name before, the file's counts, and a warning says so at each start. What runs and what was stopped is kept over a
restart for both.

State of the store: `relay:NAME` holds a connection that SQL has made, `relay_stopped:NAME` tells that one of the file
was stopped, `relay_followed:NAME` which of its servers one with candidates has followed last, `relay_passed:NAME` the
last INCIDENT that was passed. Names are compared without case.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.errors import (
    BadSlave,
    MasterInfoRefused,
    NoMasterConnection,
    NoRoomOnDisk,
    NotSupportedYet,
    OptionPreventsBecause,
    ServerError,
    SlaveMustStop,
    SlaveWasRunning,
    WrongArguments,
)
from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.state import StoreFacts
from binlog_storage.errors import DiskFull, StorageError

from binlog_server.relay.gate import Domains
from binlog_server.relay.incidents import ER_SLAVE_INCIDENT, Incidents
from binlog_server.relay.into import Into
from binlog_server.relay.status import UpstreamStatus
from binlog_server.upstreams.master_info import MasterInfo, Warn, is_long_name
from binlog_server.upstreams.password import KeyFile, PasswordUnavailable

if TYPE_CHECKING:
    from binlog_server.relay.connection import UpstreamConnection

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 128
"""The most connections by SQL: each is a task, and a row of SHOW ALL SLAVES STATUS."""

_KEPT = "relay:"
_STOPPED = "relay_stopped:"
_FOLLOWED = "relay_followed:"
_PASSED = "relay_passed:"
_ADDRESSES = frozenset({"host", "port", "candidates"})
_ONLY_INCIDENTS = NotSupportedYet(
    "sql_slave_skip_counter for a connection that has not stopped at an incident (1590): groups are never skipped here"
)


def no_connection(name: str) -> ServerError:
    """There is no connection of that name, or, 1210, there can be none."""
    return (
        WrongArguments("MASTER_CONNECTION_NAME") if is_long_name(name) else NoMasterConnection(name)
    )


def _only_logged(_: ServerError) -> None:
    """A `Warn` of those whom nobody asked."""


class Relay:
    """The connections to upstreams, for one event loop. Statements wait for each other.

    Args:
        configured: the connections of the configuration file.
        changed: is told that there are connections, or none any more.
    """

    def __init__(
        self,
        domains: Domains,
        state: StoreFacts,
        keys: KeyFile,
        configured: Mapping[str, MasterInfo],
        changed: Callable[[bool], None],
    ) -> None:
        self.domains = domains
        self._state = state
        self._keys = keys
        self._changed = changed
        self._lock = asyncio.Lock()
        self._into: Into
        self._connections: dict[str, UpstreamConnection] = {}
        for _, kept in state.items(_KEPT):
            connection = _connection_type().from_state(kept, keys)
            self._connections[connection.name.lower()] = connection
        for name, info in configured.items():
            if name.lower() in self._connections:
                log.warning(
                    "connection '%s' is that of the configuration file; what CHANGE MASTER said of it is not used",
                    name,
                )
            wanted = not state.get(_STOPPED + name.lower(), False)
            self._connections[name.lower()] = _connection_type()(
                name, info, configured=True, wanted=wanted
            )
        for key, connection in self._connections.items():
            connection.followed = state.get(_FOLLOWED + key, "")
            connection.incidents = Incidents(state.get(_PASSED + key))
            connection.forget()
        changed(bool(self._connections))

    # --- of the server ---

    def open(self, into: Into) -> None:
        """Let statements come, at the start of the server."""
        self._into = into

    def start_wanted(self, *, skip: bool) -> None:
        """Start the connections that ran, once groups may be taken in. `skip`: none, as skip_slave_start says."""
        for connection in self._connections.values():
            if connection.problem:
                log.error("connection '%s': %s", connection.name, connection.problem)
            if skip or not connection.wanted or not connection.info.host:
                log.info("connection '%s' is not started; START SLAVE does it", connection.name)
            elif not connection.problem and not connection.runs:
                self._run(connection)

    async def start_late(self, *, skip: bool) -> None:
        """Call `start_wanted` while statements come: behind the one that is at work."""
        async with self._lock:
            self.start_wanted(skip=skip)

    @contextlib.asynccontextmanager
    async def left_for_now(self) -> AsyncIterator[None]:
        """Inside of the block nothing is followed, and statements about it wait; behind it, what was is again."""
        async with self._lock:
            running = [(one, one.until) for one in self.connections if one.runs]
            try:
                await _stop_together(connection for connection, _ in running)
                yield
            finally:
                for connection, until in running:
                    self._run(connection, until)

    async def close(self) -> None:
        """Stop all connections. Those that ran run again after a restart."""
        await _stop_together(self._connections.values())

    # --- to look at ---

    @property
    def connections(self) -> Sequence[UpstreamConnection]:
        """The connections by name; the default one first."""
        return [self._connections[key] for key in sorted(self._connections)]

    @property
    def statuses(self) -> Sequence[UpstreamStatus]:
        """The states of connections that run, or ought to."""
        return [c.status for c in self.connections if c.wanted or c.runs]

    @property
    def running(self) -> str | None:
        """The name of a connection that runs; None if none does."""
        return next((c.name for c in self.connections if c.runs), None)

    def find(self, name: str) -> UpstreamConnection | None:
        """A connection; None for the default one while it is not set. Raises `NoMasterConnection` (1617) for others.

        1210 where there can be none of that name.
        """
        connection = self._connections.get(name.lower())
        if connection is None and name:
            raise no_connection(name)
        return connection

    def require_stopped(self) -> None:
        """Raises `SlaveMustStop` (1198)."""
        running = self.running
        if running is not None:
            raise SlaveMustStop(running)

    # --- statements ---

    async def change(self, name: str, options: Mapping[str, Any], warn: Warn) -> None:
        """CHANGE MASTER, durable when it returns. Raises `ServerError`: 1198, 1201 (also for a new name beyond
        `CONNECTIONS_MAX`), 1210, 1290, 1624."""
        if is_long_name(name) or not name.isprintable():
            raise WrongArguments("MASTER_CONNECTION_NAME")
        async with self._lock:
            found = self._connections.get(name.lower())
            if found is None and len(self._connections) >= CONNECTIONS_MAX:
                raise MasterInfoRefused(
                    name,
                    f"there are {len(self._connections)} connections, and {CONNECTIONS_MAX} are the most: RESET SLAVE "
                    "'name' ALL forgets one",
                )
            if found is not None:
                _require_ours(found)
                if found.runs:
                    raise SlaveMustStop(found.name)
            before = MasterInfo() if found is None else found.info
            timeout = self._into.config().slave_net_timeout
            info = before.changed(name, options, timeout, warn)
            problem = "" if found is None or info.password is not before.password else found.problem
            stays = not _ADDRESSES & options.keys()
            connection = _connection_type()(
                name if found is None else found.name,
                info,
                problem=problem,
                followed=found.followed if found is not None and stays else "",
                incidents=found.incidents if found is not None and stays else Incidents(),
            )
            if problem:
                raise MasterInfoRefused(name, problem)  # saving it would lose the password
            progress = _progress(connection.name, connection.followed, connection.incidents.kept)
            await self._keep([connection], progress)
            self._connections[name.lower()] = connection
            self._changed(True)
            log.info("connection '%s' is now to %s@%s", connection.name, info.user, info.address)

    async def start(
        self, name: str, until: SlavePosition | None = None, warn: Warn = _only_logged
    ) -> bool:
        """START SLAVE; False if it ran already. Raises `ServerError`: 1200, 1201, 1254, 1290, 1617.

        `warn`, here and with the next ones: is told that a full disk does not let it be kept over a restart.
        """
        async with self._lock:
            connection = self.find(name)
            if connection is not None and connection.runs:
                if until is not None:
                    raise SlaveWasRunning()
                return False
            if connection is None or not connection.info.host:
                raise BadSlave()
            self._into.require_whole()
            await self._require_sound(connection)
            if self.running is None:
                self.domains.forget()
            # A restart would go on behind UNTIL.
            await self._want([connection], warn, wanted=until is None)
            self._run(connection, until)
            return True

    async def stop(self, name: str, warn: Warn = _only_logged) -> bool:
        """STOP SLAVE; False if it did not run. Raises `NoMasterConnection` (1617)."""
        async with self._lock:
            connection = self.find(name)
            if connection is None:
                return False
            ran = connection.runs
            await connection.stop()
            await self._want([connection], warn, wanted=False)
            return ran

    async def start_all(self, warn: Warn = _only_logged) -> list[str]:
        """START ALL SLAVES: the names of those that did not run. Raises as `start`."""
        self._into.require_whole()
        async with self._lock:
            ready = []
            try:
                for connection in self.connections:
                    if connection.info.host and not connection.runs:
                        await self._require_sound(connection)
                        ready.append(connection)
            finally:  # those before one that cannot be started are
                if ready and self.running is None:
                    self.domains.forget()
                await self._want(ready, warn, wanted=True)
                for connection in ready:
                    self._run(connection)
            return [connection.name for connection in ready]

    async def stop_all(self, warn: Warn = _only_logged) -> list[str]:
        """STOP ALL SLAVES: the names of those that ran."""
        async with self._lock:
            running = [connection for connection in self.connections if connection.runs]
            await _stop_together(self.connections)
            await self._want(self.connections, warn, wanted=False)
            return [connection.name for connection in running]

    def skip_counter(self, name: str) -> int:
        """sql_slave_skip_counter of the connection; 0 for one that there is not."""
        connection = self._connections.get(name.lower())
        return 0 if connection is None else connection.incidents.skip_counter

    def require_skippable(self, name: str, count: int) -> None:
        """Whether sql_slave_skip_counter may be that. Raises `ServerError`: 1198, 1200, 1235, 1617."""
        connection = self.find(name)
        if connection is None:
            if count:
                raise BadSlave()
            return
        if connection.runs:
            raise SlaveMustStop(connection.name)
        if count and connection.status.errno != ER_SLAVE_INCIDENT:
            raise _ONLY_INCIDENTS

    def skip(self, name: str, count: int) -> None:
        """SET GLOBAL sql_slave_skip_counter: so many INCIDENT events are passed behind the next START SLAVE."""
        self.require_skippable(name, count)
        connection = self.find(name)
        if connection is not None:
            connection.incidents.skip_counter = count

    async def reset(self, name: str, *, everything: bool) -> None:
        """RESET SLAVE [ALL]: errors are forgotten; or all of it. Raises `ServerError`: 1198, 1290, 1617."""
        async with self._lock:
            connection = self.find(name)
            if connection is None:
                return
            if connection.runs:
                raise SlaveMustStop(connection.name)
            if everything:
                _require_ours(connection)
            changes = _progress(connection.name, "", None)
            if everything:
                changes[_KEPT + name.lower()] = None
            await asyncio.to_thread(self._state.update, changes)
            connection.followed = ""
            connection.incidents = Incidents()
            connection.forget()
            if everything:
                del self._connections[name.lower()]
                self._changed(bool(self._connections))
                log.info("connection '%s' is forgotten", connection.name)

    async def _require_sound(self, connection: UpstreamConnection) -> None:
        """Raises `MasterInfoRefused` (1201) for one that has no password."""
        if connection.problem:  # the key may be back
            kept = self._state.get(_KEPT + connection.name.lower())
            read = await asyncio.to_thread(MasterInfo.from_state, kept["info"], self._keys)
            connection.info, connection.problem = read
            connection.forget()
        if connection.problem:
            raise MasterInfoRefused(connection.name, connection.problem)

    def _run(self, connection: UpstreamConnection, until: SlavePosition | None = None) -> None:
        async def keep(what: str) -> None:
            progress = _progress(connection.name, connection.followed, connection.incidents.kept)
            try:
                if any(self._state.get(key) != value for key, value in progress.items()):
                    await asyncio.to_thread(self._state.update, progress)
            except StorageError as error:  # only a restart would miss it
                log.warning("that %s is not kept: %s", what, error)

        async def follows(name: str) -> None:
            if connection.followed != name:
                connection.followed = name
                await keep(f"{name} is followed")

        connection.incidents.keep = lambda: keep("an incident was passed")
        connection.start(self._into, until, follows if connection.info.candidates else None)

    async def _want(
        self, connections: Sequence[UpstreamConnection], warn: Warn, *, wanted: bool
    ) -> None:
        """Keep for all these connections together whether they are wanted: all of them or, on a full disk, none."""
        changed = [c for c in connections if c.wanted is not wanted or not c.wanted_is_kept]
        for connection in changed:
            connection.wanted, connection.wanted_is_kept = wanted, False
        try:
            await self._keep(changed)
        except DiskFull as error:  # to stop what fills a disk needs no room on it
            done, again = ("START", "does not start it") if wanted else ("STOP", "starts it again")
            for connection in changed:
                text = (
                    f"Connection '{connection.name}': {error}; a restart {again}, "
                    f"unless {done} SLAVE is repeated once there is room"
                )
                log.warning("%s", text)
                warn(ServerError(NoRoomOnDisk, text))
        else:
            for connection in changed:
                connection.wanted_is_kept = True

    async def _keep(
        self, connections: Sequence[UpstreamConnection], progress: Mapping[str, Any] | None = None
    ) -> None:
        """Keep connections; of those in the configuration file only whether they were stopped.

        Raises `MasterInfoRefused` (1201) if a password cannot be kept.

        progress: is kept in the same write, so that a full disk or a crash keeps all or nothing.
        """

        def keep() -> None:
            changes: dict[str, Any] = dict(progress or {})
            for connection in connections:
                name = connection.name.lower()
                if connection.configured:
                    changes[_STOPPED + name] = None if connection.wanted else True
                    continue
                try:
                    changes[_KEPT + name] = connection.to_state(self._keys)
                except PasswordUnavailable as error:
                    raise MasterInfoRefused(connection.name, str(error)) from None
            if changes:
                self._state.update(changes)

        await asyncio.to_thread(keep)


def _progress(name: str, followed: str, passed: list[Any] | None) -> dict[str, Any]:
    """The progress of a connection for the state: the server that is followed, and the incident that was passed."""
    key = name.lower()
    return {_FOLLOWED + key: followed or None, _PASSED + key: passed}


def _connection_type() -> type[UpstreamConnection]:
    """Loaded with the first upstream: a server that follows none starts without a client of MariaDB."""
    from binlog_server.relay.connection import UpstreamConnection

    return UpstreamConnection


async def _stop_together(connections: Iterable[UpstreamConnection]) -> None:
    """Stop connections at the same time: each may have to wait for its upstream."""
    await asyncio.gather(*(connection.stop() for connection in connections))


def _require_ours(connection: UpstreamConnection) -> None:
    if connection.configured:
        table = f"upstream.{connection.name}" if connection.name else "upstream"
        raise OptionPreventsBecause(
            table,
            f"connection '{connection.name}' is defined in the configuration file; change it there",
        )
