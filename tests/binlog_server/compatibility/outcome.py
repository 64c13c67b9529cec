"""What came of a conversation with our server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from binlog_storage.binlog.options import StoreOptions

from binlog_server.accounts.replica_policy import ReplicaPolicy, StreamStyle
from binlog_server.accounts.users import Account
from tests.binlog_server.lab import PASSWORD

from .peer import Peer
from .stream import Follower

# Small files are made quickly.
STORE = StoreOptions(max_binlog_size=1 << 18, innodb_log_file_size=1 << 20)
SERVER_ID = 1  # of the recorded masters
FIRST_FILE = "binlog.000001"  # of a store in the classic style
STYLES = (StreamStyle.ENGINE, StreamStyle.CLASSIC)
_PATIENCE_S = 20.0


def users(style: StreamStyle) -> dict[str, Account]:
    """The accounts of the recordings; one of them may not replicate."""
    grants = {"repl": "ALL PRIVILEGES", "norepl": "BINLOG MONITOR"}
    policy = ReplicaPolicy(style)
    return {name: Account(PASSWORD, frozenset({grant}), policy) for name, grant in grants.items()}


@dataclass
class Outcome:
    """`differences` are faults of ours; `refused` is what we do not do, with the error that the client gets.

    intended: statements of `answers.INTENDED` that came up.
    checksum: of the stream, as negotiated.
    types: of the events that came.
    """

    name: str
    style: StreamStyle = StreamStyle.ENGINE
    differences: list[str] = field(default_factory=list)
    refused: str | None = None
    intended: list[str] = field(default_factory=list)
    compressed: bool = False
    semi_sync: bool = False
    checksum: str | None = None
    types: list[int] = field(default_factory=list)

    @property
    def fault(self) -> str:
        """Why the client is not served; empty if it is."""
        return self.refused or "; ".join(self.differences)


async def follow(peer: Peer, follower: Follower, enough: Callable[[], bool]) -> bool:
    """Let the stream come until `enough()`, or until it ends; False if neither happens in time."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                for payload in peer.packets():
                    follower.take(payload)
                if follower.ended or peer.closed or enough():
                    return True
                await asyncio.sleep(0.001)
    except TimeoutError:
        return False
