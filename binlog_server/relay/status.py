"""How the following of an upstream goes: for metrics and health."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class UpstreamStatus:
    """Of one upstream, since the start. Times in seconds since 1970, 0 is never.

    name: host and port.
    connected: the dump command was accepted, and the connection is there.
    stopped: following ended for good; `last_error` says why.
    last_heard: when something came, heartbeats too.
    last_stored: when the last group was stored, and `last_timestamp` when it was written, by the upstream's clock.
    bytes_stored: of groups, in normal form.
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
    bytes_stored: int = 0

    def heard(self, stored: int, timestamp: int = 0) -> None:
        """Something came; of it so many bytes were stored, the last of them written at `timestamp`."""
        self.last_heard = time.time()
        if stored:
            self.last_stored = self.last_heard
            self.last_timestamp = timestamp
            self.bytes_stored += stored
