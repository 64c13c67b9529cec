"""Asking an upstream what it has: its state, and single groups, each by a dump of its own that ends behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from binlog_protocol.connection.replica import ReplicaHandshake, number
from binlog_protocol.errors import BadGtidList, ProtocolError
from binlog_protocol.groups.event_group import EventGroup, StartMarker, split_events
from binlog_protocol.groups.group_content import GroupContent
from binlog_protocol.groups.group_stream import GroupPart, GroupStream, StreamEnded
from binlog_protocol.gtid import U32_MAX, BinlogState, Gtid, SlavePosition

from binlog_server.relay.client_link import ClientLink

Connect = Callable[[], Awaitable[ClientLink]]  # logged in

SAME_START_S = 3.0  # Uptime has whole seconds, and the way takes time


class UpstreamState(NamedTuple):
    """started: by our clock, in seconds since 1970."""

    server_id: str
    started: float
    gtids: BinlogState

    def is_same_server(self, other: UpstreamState) -> bool:
        """And it was not restarted in between."""
        return (
            self.server_id == other.server_id and abs(self.started - other.started) <= SAME_START_S
        )


async def ask_state(link: ClientLink) -> UpstreamState:
    """Raises `RemoteError`, `ProtocolError`."""
    state = await _value(link, "SELECT @@GLOBAL.gtid_binlog_state", 0)
    server_id = await _value(link, "SHOW VARIABLES LIKE 'SERVER_ID'", 1)
    uptime = await _value(link, "SHOW GLOBAL STATUS LIKE 'Uptime'", 1)
    number("server_id", server_id, U32_MAX)
    started = time.time() - number("Uptime", uptime or "0", U32_MAX)
    try:
        # In a thread: it may have as many entries as fit a result.
        return UpstreamState(server_id, started, await asyncio.to_thread(BinlogState.parse, state))
    except BadGtidList:
        raise ProtocolError(f"gtid_binlog_state is {state!r}") from None


async def _value(link: ClientLink, sql: str, column: int) -> str:
    rows = await link.query(sql)
    return (rows[0][column] or "") if rows and len(rows[0]) > column else ""


class FoundGroup(NamedTuple):
    """Of an upstream."""

    gtid: Gtid
    content: GroupContent


class UpstreamGroups:
    """Of one upstream. A connection for each group: none can be used again behind a dump.

    Args:
        connect: makes one.
        server_id: ours; it ends what the upstream may still send to us elsewhere.
        group_bytes_max: a larger group is an error.
    """

    def __init__(
        self, connect: Connect, server_id: int, heartbeat_ns: int, group_bytes_max: int
    ) -> None:
        self._connect = connect
        self._server_id = server_id
        self._heartbeat_ns = heartbeat_ns
        self._group_bytes_max = group_bytes_max

    async def find(
        self, wanted: Gtid, before: Gtid | None, gtids: BinlogState
    ) -> FoundGroup | None:
        """That group, which follows `before`; None if it is not sent. `gtids`: the upstream's state."""
        return await self._first(wanted.domain_id, before, gtids, wanted, wanted)

    async def first_behind(self, before: Gtid, gtids: BinlogState) -> FoundGroup | None:
        """Whichever group of its domain comes behind `before`."""
        until = gtids.last(before.domain_id)
        return until and await self._first(before.domain_id, before, gtids, until, None)

    async def _first(
        self,
        domain_id: int,
        before: Gtid | None,
        gtids: BinlogState,
        until: Gtid,
        wanted: Gtid | None,
    ) -> FoundGroup | None:
        """Raises `RemoteError` with 1236 if it cannot be sent."""
        # Nothing of other domains: not to be sent, and not to be looked for in old files.
        others = [gtid for gtid in gtids.position() if gtid.domain_id != domain_id]
        link = await self._connect()
        try:
            handshake = ReplicaHandshake(
                link.machine,
                server_id=self._server_id,
                position=SlavePosition([*others, *([before] if before else [])]),
                heartbeat_period_ns=self._heartbeat_ns,
                strict_mode=False,
                until=SlavePosition([until]),
            )
            await link.start_dump(handshake)
            stream = GroupStream(
                link.machine,
                handshake.checksum_algorithm,
                group_bytes_max=self._group_bytes_max,
            )
            return await _read(link, stream, wanted)
        finally:
            link.close()


async def _read(link: ClientLink, stream: GroupStream, wanted: Gtid | None) -> FoundGroup | None:
    """The first group, or the first with that GTID."""
    content = GroupContent()
    while True:
        match stream.next(runs=False):
            case None:
                await link.receive()
            case GroupPart(gtid, events) if wanted in (None, gtid):
                for part in events:
                    _add(content, part)
            case EventGroup(gtid, payload) if wanted in (None, gtid):
                _add(content, payload)
                content.finish()
                return FoundGroup(gtid, content)
            case StartMarker():
                content = GroupContent()
            case StreamEnded():
                return None


def _add(content: GroupContent, events: bytes | bytearray) -> None:
    for event in split_events(bytes(events)):
        content.add(event)
