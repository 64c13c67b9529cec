"""Asking an upstream what it has: its state, and single groups, each by a dump of its own that ends behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from binlog_protocol.connection.replica import ReplicaHandshake, number
from binlog_protocol.errors import ProtocolError, ServerError
from binlog_protocol.events.header import split_events
from binlog_protocol.groups.event_group import EventGroup, StartMarker
from binlog_protocol.groups.group_content import GroupContent
from binlog_protocol.groups.group_stream import GroupPart, GroupStream, StreamEnded
from binlog_protocol.gtid import U32_MAX, U64_MAX, BinlogState, Gtid, SlavePosition

from binlog_server.loop.turn import Turn
from binlog_server.relay.client_link import ClientLink

Connect = Callable[[], Awaitable[ClientLink]]  # logged in

PROGRESS_BYTES: Final = 1 << 16  # each slave_net_timeout
OTHER_GROUPS_MAX: Final = 1_000_000
_LIGHT_BYTES: Final = 1 << 10  # compressed, they may stand for a thousand times as much
_MORE_BYTES: Final = 1 << 16  # that the same group may have elsewhere


class UpstreamState(NamedTuple):
    """started: the second in which it was, by its own clock, or two of which one is right.

    connection: the number of the one that has asked.
    """

    server_id: str
    started: tuple[int, int]
    connection: int
    gtids: BinlogState

    def is_same_server(self, other: UpstreamState) -> bool:
        """Whether both are of one server that was not restarted in between; `other` is the later one.

        A server that has lived for a second and is there again in the next may have lost its last groups: the second of
        its start is asked for, and it counts its connections anew.
        """
        return (
            self.server_id == other.server_id
            and self.connection < other.connection
            and self.started[0] <= other.started[1]
            and other.started[0] <= self.started[1]
        )


async def ask_state(link: ClientLink) -> UpstreamState:
    """Raises `RemoteError`, `ProtocolError`."""
    state = await _value(link, "SELECT @@GLOBAL.gtid_binlog_state", 0)
    server_id = await _value(link, "SHOW VARIABLES LIKE 'SERVER_ID'", 1)
    before = await _value(link, "SELECT UNIX_TIMESTAMP()", 0)
    uptime = await _value(link, "SHOW GLOBAL STATUS LIKE 'Uptime'", 1)
    behind = await _value(link, "SELECT UNIX_TIMESTAMP()", 0)
    number("server_id", server_id, U32_MAX)
    runs_s = number("Uptime", uptime or "0", U32_MAX)
    first, last = (number("UNIX_TIMESTAMP()", t or "0", U64_MAX) - runs_s for t in (before, behind))
    started = first, last
    try:
        # In a thread: it may have as many entries as fit a result.
        gtids = await asyncio.to_thread(BinlogState.parse, state)
    except ServerError:
        raise ProtocolError(f"gtid_binlog_state is {state!r}") from None
    return UpstreamState(server_id, started, link.connection_id, gtids)


async def _value(link: ClientLink, sql: str, column: int) -> str:
    rows = await link.query(sql)
    return (rows[0][column] or "") if rows and len(rows[0]) > column else ""


class FoundGroup(NamedTuple):
    gtid: Gtid
    content: GroupContent


class UpstreamGroups:
    """Groups of one upstream. A connection for each group: none can be used again behind a dump.

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
        self, wanted: Gtid, before: Gtid | None, gtids: BinlogState, ours: GroupContent
    ) -> FoundGroup | None:
        """Ask for the group `wanted`, which follows `before`; None if it is not sent. `gtids`: the upstream's state.

        `ours`: what it is to be compared with. No more of it is uncompressed than that has.
        """
        content = GroupContent(inflate_max=ours.plain_size + _MORE_BYTES)
        return await self._first(before, gtids, wanted, wanted, content)

    async def first_behind(self, before: Gtid, gtids: BinlogState) -> FoundGroup | None:
        """The group of its domain that comes behind `before`, whichever it is."""
        until = gtids.last(before.domain_id)
        content = GroupContent(inflate_max=_MORE_BYTES)
        return until and await self._first(before, gtids, until, None, content)

    async def _first(
        self,
        before: Gtid | None,
        gtids: BinlogState,
        until: Gtid,
        wanted: Gtid | None,
        content: GroupContent,
    ) -> FoundGroup | None:
        """Raises `RemoteError` with 1236 if it cannot be sent."""
        # In a thread: there may be thousands of domains.
        position = await asyncio.to_thread(_position, until.domain_id, before, gtids)
        link = await self._connect()
        try:
            handshake = ReplicaHandshake(
                link.machine,
                server_id=self._server_id,
                position=position,
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
            return await _read(link, stream, wanted, content)
        finally:
            link.close()


def _position(domain_id: int, before: Gtid | None, gtids: BinlogState) -> str:
    """The position behind `before`, other domains at their ends: no group of theirs is sent, or looked for."""
    others = [gtid for gtid in gtids.position() if gtid.domain_id != domain_id]
    return str(SlavePosition([*others, *([before] if before else [])]))


async def _read(
    link: ClientLink, stream: GroupStream, wanted: Gtid | None, content: GroupContent
) -> FoundGroup | None:
    """The first group, or the first with that GTID. Raises `ConnectionError` if it does not come on."""
    try:
        async with asyncio.timeout(None) as deadline:
            progress = _Progress(link, deadline)
            try:
                return await _read_on(link, stream, wanted, content, progress)
            finally:
                progress.end()
    except TimeoutError:
        asked = "a group" if wanted is None else f"its group {wanted}"
        raise ConnectionError(
            f"asked for {asked}, the server has sent no more of it for slave_net_timeout, "
            f"{link.timeout_s:.0f} s; heartbeats are no more of it"
        ) from None


class _Progress:
    """Looks every `timeout_s` seconds of the link whether groups come on, and else lets the deadline be now.

    One event may have a gigabyte, and take longer than that: what has come of it counts as well.
    """

    def __init__(self, link: ClientLink, deadline: asyncio.Timeout) -> None:
        self._link = link
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._seen = 0
        self.came = 0
        """Bytes of groups, whole events alone."""
        self._timer = self._loop.call_later(link.timeout_s, self._look)

    def _look(self) -> None:
        came = self.came + self._link.unread
        # It may be less: an event that is not given out yet is neither.
        if abs(came - self._seen) < PROGRESS_BYTES:
            self._deadline.reschedule(self._loop.time())
            return
        self._seen = came
        self._timer = self._loop.call_later(self._link.timeout_s, self._look)

    def end(self) -> None:
        self._timer.cancel()


async def _read_on(
    link: ClientLink,
    stream: GroupStream,
    wanted: Gtid | None,
    content: GroupContent,
    progress: _Progress,
) -> FoundGroup | None:
    inflate_max = content.inflate_max
    others = 0  # groups
    turn = Turn()
    while True:
        if turn.is_over:
            await asyncio.sleep(0)
            turn = Turn()
        match await link.next_item(stream, runs=False):
            case None:
                await link.receive()
                turn = Turn()
            case GroupPart(gtid, events):
                progress.came += sum(map(len, events))
                if wanted in (None, gtid):
                    for part in events:
                        await _add(content, part)
            case EventGroup(gtid, payload):
                progress.came += len(payload)
                if wanted in (None, gtid):
                    await _add(content, payload)
                    content.finish()
                    return FoundGroup(gtid, content)
                others += 1
                if others > OTHER_GROUPS_MAX:
                    raise ProtocolError(f"{others} other groups came where {wanted} was asked for")
            case StartMarker():
                content = GroupContent(inflate_max=inflate_max)
            case StreamEnded():
                return None


async def _add(content: GroupContent, events: bytes | bytearray) -> None:
    if len(events) <= _LIGHT_BYTES:
        _add_all(content, events)
    else:
        await asyncio.to_thread(_add_all, content, events)


def _add_all(content: GroupContent, events: bytes | bytearray) -> None:
    for event in split_events(bytes(events)):
        content.add(event)
