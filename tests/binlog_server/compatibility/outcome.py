"""What came of a conversation with our server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.binlog.options import StoreOptions
from tests.binlog_server.lab import DEADLINE_S

from .peer import Peer
from .stream import Follower

STORE = StoreOptions(
    max_binlog_size=1 << 18, innodb_log_file_size=1 << 20
)  # small ones are made quickly
SERVER_ID = 1  # of the recorded masters


@dataclass
class Outcome:
    """`differences` are faults of ours; `refused` is what we do not do, with the error that the client gets.

    intended: statements of `answers.INTENDED` that came up.
    checksum: of the stream, as negotiated.
    types: of the events that came.
    """

    name: str
    differences: list[str] = field(default_factory=list)
    refused: str | None = None
    intended: list[str] = field(default_factory=list)
    compressed: bool = False
    semi_sync: bool = False
    checksum: str | None = None
    types: list[int] = field(default_factory=list)

    @property
    def works(self) -> bool:
        return not self.differences and self.refused is None


async def follow(peer: Peer, follower: Follower, enough: Callable[[], bool]) -> bool:
    """Let the stream come until `enough()`, or until it ends; False if neither happens in time."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for payload in peer.packets():
                    follower.take(payload)
                if follower.ended or peer.closed or enough():
                    return True
                await asyncio.sleep(0.001)
    except TimeoutError:
        return False
