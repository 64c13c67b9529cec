"""One named connection to an upstream: what is known of it, and its following while there is one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import Any, Final

from binlog_protocol.connection.replica import ER_SLAVE_FATAL_ERROR
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.wire.results import Value

from binlog_server.relay.follower import Follower
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.into import Into
from binlog_server.relay.status import UpstreamStatus
from binlog_server.upstreams.candidates import Ring
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import KeyFile

_USER: Final = "system user"
_COMMAND: Final = "Slave_IO"


@dataclass(slots=True)
class UpstreamConnection:
    """A connection to an upstream, as the manager keeps it.

    configured: by the configuration file; SQL may start and stop it, not change it.
    wanted: START SLAVE was said, and no STOP SLAVE since; kept over a restart.
    problem: why it has no password.
    followed: the server that was followed last, HOST:PORT; kept over a restart.
    wanted_is_kept: that has been written down; else a restart takes it as it was before.
    thread_id: in the process list, of the last following.
    incidents: which of its INCIDENT events are passed; what was passed is kept over a restart.
    """

    name: str
    info: MasterInfo
    configured: bool = False
    wanted: bool = False
    wanted_is_kept: bool = True
    problem: str = ""
    followed: str = ""
    incidents: Incidents = field(default_factory=Incidents)
    until: SlavePosition | None = None
    status: UpstreamStatus = field(default_factory=lambda: UpstreamStatus(""))
    thread_id: int = 0
    _task: asyncio.Task[None] | None = None
    _ring: Ring = field(init=False)
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.forget()

    @property
    def runs(self) -> bool:
        """Whether the upstream is followed, or being connected to."""
        return self._task is not None and not self._task.done()

    def forget(self) -> None:
        """Forget errors and UNTIL of the last START SLAVE."""
        self.until = None
        ring = self._ring = Ring(self.info.addresses, self.followed, self.info.connect_retry)
        status = self.status = UpstreamStatus(str(ring.current), connection=self.name)
        if self.problem:
            status.stopped = True
            status.last_error = self.problem
            status.errno, status.error = ER_SLAVE_FATAL_ERROR, f"Fatal error: {self.problem}"

    @property
    def upstream(self) -> MasterInfo:
        """The settings with the address of the server that is followed, or tried, or comes first."""
        return self.info.at(self._ring.current)

    def start(
        self,
        into: Into,
        until: SlavePosition | None = None,
        follows: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """Start following, on the loop. It must not run, and have a host. `follows` is told each server followed."""
        self.forget()
        self.until = until
        self.thread_id, self._began = into.next_id(), time.monotonic()
        follower = Follower(
            self.info, into, self.status, self._ring, self.incidents, until, follows
        )
        self._task = asyncio.get_running_loop().create_task(follower.run())

    @property
    def process(self) -> Sequence[Value]:
        """A row of SHOW PROCESSLIST, as MariaDB has one for its I/O thread."""
        seconds = int(time.monotonic() - self._began)
        state = self.status.io_state.text
        return (self.thread_id, _USER, "", None, _COMMAND, seconds, state, None, "0.000")

    async def stop(self) -> None:
        """Stop following. Returns when nothing more of it is stored."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # --- the store's state ---

    def to_state(self, keys: KeyFile) -> dict[str, Any]:
        """Raises `PasswordUnavailable`."""
        return {"name": self.name, "wanted": self.wanted, "info": self.info.to_state(keys)}

    @classmethod
    def from_state(cls, kept: dict[str, Any], keys: KeyFile) -> UpstreamConnection:
        """The connection that `to_state` has described."""
        info, problem = MasterInfo.from_state(kept["info"], keys)
        return cls(kept["name"], info, wanted=kept["wanted"], problem=problem)
