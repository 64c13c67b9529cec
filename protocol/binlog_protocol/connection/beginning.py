"""The beginning of a server's binlog: the position behind which nothing is missing. No I/O.

A server with traditional binlog files begins each with the state that it continues (GTID_LIST). The first of them is
asked for as a dump without GTID, which needs no more than REPLICATION SLAVE.

One with its binlog in the engine refuses that (4246). There it is found by trying: a dump is refused (1236) from
positions that were purged, and accepted behind them. So the last number of each server that was purged is searched for
by halves, 20 connections for a million.

A search is a generator of questions, each for a connection of its own, which is logged in: who drives it makes the
connection, has `exchange` of the question on it, and sends back what that returns, or throws in the `RemoteError` that
it raised. `answered` is the driver for callers that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, Protocol, TypeVar, cast

from binlog_protocol.connection.client import ClientConnection, ErrorReceived
from binlog_protocol.connection.conversation import (
    RECEIVE,
    Exchange,
    next_event,
    query,
    start_dump,
    start_file_dump,
)
from binlog_protocol.connection.replica import ReplicaHandshake, UpstreamRefused
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    EngineBinlogNeedsGtid,
    MasterFatalError,
    ProtocolError,
    RemoteError,
    ServerError,
)
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.groups.event_group import OutsideGroup, StartMarker
from binlog_protocol.groups.group_stream import GroupStream, StreamEvent
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

FoundT = TypeVar("FoundT")
_NO_REPLICA: Final = 0
"""The server_id of who only looks: it ends nobody's dump."""
DUMPS_MAX: Final = 10_000
"""So many positions are tried at the most: some 400 servers that have logged and whose first files were purged."""


class ServerQuestion(Protocol):
    """What is asked on a connection of its own."""

    def exchange(self, machine: ClientConnection) -> Exchange[Any]:
        """The exchange on it, from behind the login."""


Search = Generator[ServerQuestion, Any, FoundT]


def answered(search: Search[FoundT], ask: Callable[[ServerQuestion], Any]) -> FoundT:
    """Ask all questions of a search, by calls that return when it is done. Returns what it has found."""
    try:
        question = next(search)
        while True:
            try:
                answer = ask(question)
            except RemoteError as error:
                question = search.throw(error)
            else:
                question = search.send(answer)
    except StopIteration as end:
        return cast(FoundT, end.value)


@dataclass(frozen=True, slots=True)
class StateQuestion:
    """The GTID binlog state of the server."""

    def exchange(self, machine: ClientConnection) -> Exchange[BinlogState]:
        return binlog_state(machine)


@dataclass(frozen=True, slots=True)
class FirstListQuestion:
    """The GTID list of the first traditional file, in front of its first group; None if there is none."""

    def exchange(self, machine: ClientConnection) -> Exchange[GtidList | None]:
        algorithm = yield from start_file_dump(machine, _NO_REPLICA)
        stream = GroupStream(machine, algorithm)
        try:
            while True:
                match stream.next(runs=False):
                    case None:
                        yield RECEIVE
                    case StreamEvent() as found if found.type == EventType.GTID_LIST:
                        return GtidList.parse(found.event)
                    case StreamEvent() | StartMarker() if stream.unfinished is None:
                        pass
                    case _:
                        return None
        except OutsideGroup:
            return None


@dataclass(frozen=True, slots=True)
class AcceptsQuestion:
    """Whether a dump may begin at a position. `server_id`: of the replica that it is for."""

    position: SlavePosition
    server_id: int

    def exchange(self, machine: ClientConnection) -> Exchange[bool]:
        handshake = ReplicaHandshake(
            machine,
            server_id=self.server_id,
            position=self.position,
            heartbeat_period_ns=0,
            strict_mode=False,
            non_block=True,
        )
        yield from start_dump(machine, handshake)
        found = yield from next_event(machine)
        if isinstance(found, ErrorReceived):
            if found.error.errno == MasterFatalError.errno:
                return False
            raise found.error
        return True


def binlog_state(machine: ClientConnection) -> Exchange[BinlogState]:
    """The last number of each domain and server. Raises `UpstreamRefused` if nothing is logged there at all."""
    rows = yield from query(machine, "SELECT @@GLOBAL.gtid_binlog_state")
    text = (rows[0][0] if rows and rows[0] else None) or ""
    try:
        state = BinlogState.parse(text)
    except ServerError:
        raise ProtocolError(f"gtid_binlog_state is {text!r}") from None
    if not len(state):
        rows = yield from query(machine, "SHOW GLOBAL VARIABLES LIKE 'log_bin'")
        if rows and rows[0][-1] == "OFF":
            raise UpstreamRefused("the server has no binlog; start it with log_bin")
    return state


def beginning(server_id: Callable[[], int]) -> Search[SlavePosition]:
    """The position at which the log of a server begins. Raises `UpstreamRefused` if it cannot be told.

    server_id: gives one that no replica of the server has.
    """
    try:
        found = yield FirstListQuestion()
    except RemoteError as error:
        if error.errno != EngineBinlogNeedsGtid.errno:
            raise
    else:
        if found is None:
            raise UpstreamRefused(
                "the first binlog file has no GTID list; is it of a MariaDB before 10.0?"
            )
        return BinlogState(found.gtids).position()
    state = yield StateQuestion()
    return (yield from beginning_of_engine(state, server_id))


def beginning_of_engine(state: BinlogState, server_id: Callable[[], int]) -> Search[SlavePosition]:
    """That of a server with its binlog in the engine, which has this binlog state."""
    dumps = _Dumps(state, server_id)
    if (yield from dumps.may_begin_at([])):
        return SlavePosition()
    found = []
    for domain_id in state.domains():
        others = [gtid for gtid in dumps.ends if gtid.domain_id != domain_id]
        first = yield from _first_of_domain(state, domain_id, others, dumps)
        if first is not None:
            found.append(first)
    return SlavePosition(found)


class _Dumps:
    """Tries where dumps of a server may begin, up to `DUMPS_MAX` times.

    `ends`: the last GTID of each domain. The server says how many there are, and answers at its leisure: without a
    limit it would keep who asks for ever.
    """

    def __init__(self, state: BinlogState, server_id: Callable[[], int]) -> None:
        """Raises `UpstreamRefused` where the number of domains is over the limit already."""
        self.ends: Final = list(state.position())
        self._server_id: Final = server_id
        self._left = DUMPS_MAX
        if len(self.ends) > DUMPS_MAX:
            raise self._too_many()

    def may_begin_at(self, position: Iterable[Gtid]) -> Search[bool]:
        """Whether the server accepts that position. Raises `UpstreamRefused` where too many were tried."""
        if not self._left:
            raise self._too_many()
        self._left -= 1
        return bool((yield AcceptsQuestion(SlavePosition(position), self._server_id())))

    def _too_many(self) -> UpstreamRefused:
        return UpstreamRefused(
            f"its binlog state has {len(self.ends)} domains, and where its binlog begins is not found by {DUMPS_MAX} "
            "connections; begin at a GTID (Spark: startingPosition or startGtid)"
        )


def _first_of_domain(
    state: BinlogState, domain_id: int, others: list[Gtid], dumps: _Dumps
) -> Search[Gtid | None]:
    """The last GTID of the domain that was purged; None if there is none.

    A position of a server's number is refused if that number was purged, or a later one of that server; but the last
    of the domain that was purged is accepted. So the lowest that is accepted is that, or the number behind a server's
    last that was purged, which is not higher.
    """
    if (yield from dumps.may_begin_at(others)):
        return None
    candidates = []
    for gtid in state.entries():
        if gtid.domain_id == domain_id:
            candidates.append((yield from _lowest(gtid, others, dumps)))
    highest = max(gtid.seq_no for gtid in candidates)
    found = [gtid for gtid in candidates if gtid.seq_no == highest]
    if len(found) > 1:
        raise UpstreamRefused(
            f"its binlog begins behind {' or '.join(map(str, found))}, which cannot be told apart; begin at a GTID "
            "(Spark: startingPosition or startGtid)"
        )
    return found[0]


def _lowest(high: Gtid, others: list[Gtid], dumps: _Dumps) -> Search[Gtid]:
    """The lowest number of the server that is accepted; `high` is, and so is what is above one that is."""
    low, end = 0, high.seq_no
    while end - low > 1:
        middle = high._replace(seq_no=(low + end) // 2)
        is_accepted = yield from dumps.may_begin_at([*others, middle])
        low, end = (low, middle.seq_no) if is_accepted else (middle.seq_no, end)
    return high._replace(seq_no=end)
