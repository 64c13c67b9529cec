"""The parts of the server that following an upstream needs, to store its groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from binlog_protocol.dataclass import dataclass
from binlog_storage.engine import BinlogEngine

from binlog_server.commits.room import AppendRoom
from binlog_server.commits.syncer import Syncer
from binlog_server.relay.gate import Domains
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.settings.config import Config


@dataclass(frozen=True, slots=True)
class Into:
    """The parts of one server that following an upstream needs.

    config: the options, as they are when it is called.
    upstream_is: told the version of the upstream, each time it is connected to.
    semi_sync: knows what our replicas hold.
    next_id: a number for the process list, never given twice.
    require_whole: raises `ServerError` while nothing may be taken in.
    """

    config: Callable[[], Config]
    engine: BinlogEngine
    syncer: Syncer
    room: AppendRoom
    domains: Domains
    upstream_is: Callable[[str], Awaitable[None]]
    semi_sync: SemiSyncMaster
    next_id: Callable[[], int] = lambda: 0
    require_whole: Callable[[], None] = lambda: None
