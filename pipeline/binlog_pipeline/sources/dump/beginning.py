"""The beginning of a server's binlog: the position behind which nothing is missing.

A server with traditional binlog files begins each with the state that it continues (GTID_LIST). The first of them is
asked for as a dump without GTID, which needs no more than REPLICATION SLAVE.

One with its binlog in the engine refuses that (4246). There it is found by trying: a dump is refused (1236) from
positions that were purged, and accepted behind them. So the last number of each server that was purged is searched for
by halves, 20 connections for a million.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from binlog_protocol.connection.client import ErrorReceived
from binlog_protocol.connection.replica import ReplicaHandshake
from binlog_protocol.errors import EngineBinlogNeedsGtid, RemoteError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.groups.event_group import OutsideGroup, StartMarker
from binlog_protocol.groups.group_stream import GroupStream, StreamEvent
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_pipeline.sources.dump.address import ServerAddress, random_server_id
from binlog_pipeline.sources.dump.link import ServerLink
from binlog_pipeline.sources.dump.refusals import (
    CAUGHT,
    EndedEarly,
    is_fatal_to_dump,
    source_error,
)

_LOOKING: Final = "looking for where its binlog begins"
_NO_REPLICA = 0
"""The server_id of who only looks: it ends nobody's dump."""


def beginning(address: ServerAddress) -> SlavePosition:
    """The position at which the log of a server begins. Raises `SourceError`."""
    try:
        try:
            return _by_first_file(address)
        except RemoteError as error:
            if error.errno != EngineBinlogNeedsGtid.errno:
                raise
        return _beginning_of_state(address, state_of(address, _LOOKING))
    except CAUGHT as error:
        raise source_error(address, error, _LOOKING) from None


def state_of(address: ServerAddress, doing: str) -> BinlogState:
    """The GTID binlog state of a server. Raises `SourceError`; `doing`: see `source_error`."""
    try:
        with ServerLink.open(address) as link:
            return link.binlog_state()
    except CAUGHT as error:
        raise source_error(address, error, doing) from None


def _by_first_file(address: ServerAddress) -> SlavePosition:
    with ServerLink.open(address) as link:
        algorithm = link.start_file_dump(_NO_REPLICA)
        try:
            found = _first_list(link, GroupStream(link.machine, algorithm))
        except OutsideGroup:
            found = None
    if found is None:
        raise EndedEarly("the first binlog file has no GTID list; is it of a MariaDB before 10.0?")
    return BinlogState(found.gtids).position()


def _first_list(link: ServerLink, stream: GroupStream) -> GtidList | None:
    """The one in front of the first group."""
    while True:
        match stream.next(runs=False):
            case None:
                link.receive()
            case StreamEvent() as found if found.type == EventType.GTID_LIST:
                return GtidList.parse(found.event)
            case StreamEvent() | StartMarker() if stream.unfinished is None:
                pass
            case _:
                return None


def _beginning_of_state(address: ServerAddress, state: BinlogState) -> SlavePosition:
    if _accepts(address, SlavePosition()):
        return SlavePosition()
    found = []
    for domain_id in state.domains():
        others = [gtid for gtid in state.position() if gtid.domain_id != domain_id]
        first = _first_of_domain(address, state, domain_id, others)
        if first is not None:
            found.append(first)
    return SlavePosition(found)


def _first_of_domain(
    address: ServerAddress, state: BinlogState, domain_id: int, others: list[Gtid]
) -> Gtid | None:
    """The last GTID of the domain that was purged; None if there is none.

    A position of a server's number is refused if that number was purged, or a later one of that server; but the last
    of the domain that was purged is accepted. So the lowest that is accepted is that, or the number behind a server's
    last that was purged, which is not higher.
    """
    if _accepts(address, SlavePosition(others)):
        return None
    candidates = []
    for gtid in state.entries():
        if gtid.domain_id == domain_id:
            number = _lowest(
                lambda n, s=gtid.server_id: _accepts(  # type: ignore[misc]
                    address, SlavePosition([*others, Gtid(domain_id, s, n)])
                ),
                gtid.seq_no,
            )
            candidates.append(Gtid(domain_id, gtid.server_id, number))
    highest = max(gtid.seq_no for gtid in candidates)
    found = [gtid for gtid in candidates if gtid.seq_no == highest]
    if len(found) > 1:
        raise EndedEarly(
            f"its binlog begins behind {' or '.join(map(str, found))}, which cannot be told apart; begin at a GTID: "
            "startingPosition or startGtid"
        )
    return found[0]


def _lowest(accepts: Callable[[int], bool], high: int) -> int:
    """The lowest number from 1 on that is accepted; `high` is, and so is what is above one that is."""
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if accepts(middle) else (middle, high)
    return high


def _accepts(address: ServerAddress, position: SlavePosition) -> bool:
    """Whether a dump may begin there."""
    with ServerLink.open(address) as link:
        handshake = ReplicaHandshake(
            link.machine,
            server_id=random_server_id(),
            position=position,
            heartbeat_period_ns=0,
            strict_mode=False,
            non_block=True,
        )
        link.start_dump(handshake)
        found = link.next_event()
        if isinstance(found, ErrorReceived):
            if is_fatal_to_dump(found.error):
                return False
            raise found.error
        return True
