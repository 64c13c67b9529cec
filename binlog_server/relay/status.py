"""How the following of an upstream goes: for metrics and health, and for SHOW SLAVE STATUS."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from binlog_protocol.dataclass import dataclass
from binlog_protocol.wire.semi_sync import ReplicaPlace

IDLE_S = 1.0  # nothing was stored for so long: what there is was stored


class IoState(Enum):
    """The states of Slave_IO_State: Slave_IO_Running, and the text."""

    STOPPED = ("No", "")
    CONNECTING = ("Connecting", "Connecting to master")
    CHECKING = ("Preparing", "Checking master version")
    WAITING = ("Yes", "Waiting for master to send event")
    QUEUEING = ("Yes", "Queueing master event to the relay log")
    PAUSING = ("Connecting", "Waiting to reconnect after a failed master event read")

    @property
    def running(self) -> str:
        """Yes, No, Connecting or Preparing."""
        return self.value[0]

    @property
    def text(self) -> str:
        """The text of Slave_IO_State."""
        return self.value[1]


@dataclass(slots=True)
class UpstreamStatus:
    """The state of one upstream, since the start. Times in seconds since 1970, 0 is never.

    name: host and port.
    connected: the dump command was accepted, and the connection is there.
    stopped: following ended for good; `last_error` says why, without what groups say.
    last_heard: when something came, heartbeats too.
    last_stored: when the last group was stored, and `last_timestamp` when it was written, by the upstream's clock.
    storing: something has come that is not stored yet; for long while the disk is full.
    storing_since: by the monotonic clock.
    coming_timestamp: when what is being stored was written, by the upstream's clock.
    bytes_stored: of groups, in normal form.
    connection: the name that CHANGE MASTER gave it.
    state: see `IoState`.
    errno, error: of the last failure by MariaDB's number, as SHOW SLAVE STATUS has it; 0 and empty once it works again.
    server_id, version: the upstream's, once it has told them.
    protection: whether the connection has TLS, and how that was verified.
    semi_sync: what it sends is acknowledged; `acks_sent` so often.
    heartbeats: that it has sent.
    read, stored: in its files, as it tells and as a replica counts: up to where it has come, and is stored. Without a
        file's name if it tells none (12.3 with an engine binlog).
    """

    name: str
    connected: bool = False
    stopped: bool = False
    connects: int = 0
    losses: int = 0
    last_error: str = "it was not reached yet"
    last_heard: float = 0.0
    last_stored: float = 0.0
    last_timestamp: int = 0
    storing: bool = False
    storing_since: float = 0.0
    coming_timestamp: int = 0
    bytes_stored: int = 0
    connection: str = ""
    state: IoState = IoState.STOPPED
    errno: int = 0
    error: str = ""
    server_id: int = 0
    version: str = ""
    protection: str = ""
    semi_sync: bool = False
    acks_sent: int = 0
    heartbeats: int = 0
    read: ReplicaPlace = field(default_factory=ReplicaPlace)
    stored: ReplicaPlace = field(default_factory=ReplicaPlace)

    @property
    def title(self) -> str:
        """The name for log lines and errors."""
        return f"upstream {self.name}" + (f" ('{self.connection}')" if self.connection else "")

    @property
    def facts(self) -> Mapping[str, object]:
        """The facts of a log line about it that begins with the title."""
        return {"title": self.title, "connection_name": self.connection, "upstream": self.name}

    @property
    def behind_s(self) -> int | None:
        """Seconds_Behind_Master: how old the last group was when it was stored, 0 once nothing more comes.

        How old it is, while the next one waits for the disk; that one, if it is the first. None while not connected.
        """
        if self.state is not IoState.WAITING:
            return None
        written = self.last_timestamp or self.coming_timestamp
        if written and self.storing:
            return max(0, int(time.time() - written))
        if not self.last_timestamp or time.time() - self.last_stored > IDLE_S:
            return 0
        return max(0, int(self.last_stored - self.last_timestamp))

    @property
    def io_state(self) -> IoState:
        """The state for people, waiting for room in the binlog included."""
        waits = self.storing and time.monotonic() - self.storing_since > IDLE_S
        return IoState.QUEUEING if waits and self.state is IoState.WAITING else self.state

    def heard(self, stored: int, timestamp: int = 0) -> None:
        """Something came; of it so many bytes were stored, the last of them written at `timestamp`."""
        self.last_heard = time.time()
        if stored:
            self.last_stored = self.last_heard
            self.last_timestamp = timestamp
            self.bytes_stored += stored
