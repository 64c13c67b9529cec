"""The binlog of a running server, read to where it ended when this began, or followed: by dumps, as a replica.

For commands that look through a binlog and wait for it: they have no loop, so this has one of its own. The account
needs REPLICATION SLAVE. A connection that is lost is an error for who looks through all of it, and begins again; who
follows is connected again between two groups.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeVar

from binlog_protocol.connection.beginning import answered, beginning, binlog_state
from binlog_protocol.connection.client import ClientConnection
from binlog_protocol.connection.conversation import Exchange
from binlog_protocol.connection.replica import READER_IDS, ReplicaHandshake, UpstreamRefused
from binlog_protocol.errors import ProtocolError, RemoteError
from binlog_protocol.events.checksum import normal_form
from binlog_protocol.groups.event_group import EventGroup, Incident, StartMarker
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.group_stream import (
    GroupPart,
    GroupStream,
    Item,
    StreamEnded,
    StreamEvent,
)
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_protocol.wire.semi_sync import ReplicaPlace
from binlog_storage.archive.group_files import GroupFile
from binlog_storage.console.running import refused, unreachable
from binlog_storage.errors import StorageError
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.file_times import group_time
from binlog_storage.log.groups import OfflineGroup

from binlog_server.relay.client_link import ClientLink
from binlog_server.upstreams.client_tls import TlsFailed
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import PasswordUnavailable

SILENCE_S: Final = 120.0
"""A server may look so long for where a dump begins: MariaDB before 11.4 reads the file up to there."""
_CONNECT_S: Final = 10.0
_HEARTBEAT_NS: Final = 5_000_000_000
_NET_WRITE_TIMEOUT_S: Final = (
    3600  # of our session there: reading stands still while others are read
)
_NO_LIMIT: Final = 1 << 62
_RETRY_S: Final = (0.5, 10.0)  # the first pause before a connection is made again, and the longest
ResultT = TypeVar("ResultT")


class ServerUnreadable(StorageError):
    """The binlog of a server cannot be read, or not to its end."""


class ServerLost(ServerUnreadable):
    """The connection could not be made, was lost, or was ended by the server: later it may be made again."""


class ServerHistory:
    """One server. One thread; `close` it.

    Attributes:
        begin: the position behind which nothing is missing.
        end: the binlog state at which reading ends.
    """

    def __init__(self, info: MasterInfo) -> None:
        """Ask the server. Raises `ServerUnreadable`."""
        self._info: Final = info
        self._loop: Final = asyncio.new_event_loop()
        self._links: Final[set[ClientLink]] = set()
        try:
            self.begin: Final = self._told(
                "looking for where its binlog begins", self._find_beginning
            )
            self.end: Final = self._told("asking where its binlog ends", self._ask_state)
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """The address, for people."""
        return f"{self._info.host}:{self._info.port}"

    def file(self) -> GroupFile:
        """All of it, as one file."""
        base = BinlogState(self.begin)
        return GroupFile(self.name, base, "", lambda: self.groups(self.begin), self.groups)

    def groups(self, position: SlavePosition) -> Iterator[OfflineGroup]:
        """The groups behind a position, and incidents, up to `end`. Raises `ServerUnreadable`."""
        left = {
            gtid.domain_id: gtid
            for gtid in self.end.position()
            if position.get(gtid.domain_id) != gtid
        }
        if not left:
            return
        yield from self._read(position, left, lambda _: None)

    def follow(
        self, position: SlavePosition, told: Callable[[str], None]
    ) -> Iterator[OfflineGroup]:
        """The groups behind a position, and incidents, and all that come, without an end.

        A connection that is lost between two groups is made again, and that is `told`. Raises `ServerUnreadable`: also
        if it is lost inside a group of which a part was given.
        """
        reached = BinlogState(position)
        pause_s, longest_s = _RETRY_S
        while True:
            before = reached.position()
            try:
                yield from self._read(before, None, reached.update)
            except ServerLost as lost:
                told(f"{lost}; connecting again")
            if reached.position() != before:
                pause_s, _ = _RETRY_S
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    def _read(
        self, position: SlavePosition, left: dict[int, Gtid] | None, passed: Callable[[Gtid], None]
    ) -> Iterator[OfflineGroup]:
        """The groups of one dump; see `_Reading`."""
        doing = f"reading {position.as_start()}"
        link = self._told(doing, lambda: self._run(self._dump(position, ends=left is not None)))
        try:
            yield from _Reading(self, *link, left, passed, doing).groups()
        finally:
            self._drop(link[0])

    def next_item(self, link: ClientLink, stream: GroupStream, doing: str, *, runs: bool) -> Item:
        """The next item of a dump, whenever it comes. Raises `ServerUnreadable`."""

        def wait() -> Item:
            while (item := stream.next(runs=runs)) is None:
                self._run(link.receive())
            return item

        return self._told(doing, wait)

    def unreadable(
        self, doing: str, why: object, kind: type[ServerUnreadable] = ServerUnreadable
    ) -> ServerUnreadable:
        """The error for people."""
        return kind(f"{self.name}: {doing}: {why}")

    def close(self) -> None:
        for link in list(self._links):
            self._drop(link)
        self._run(asyncio.sleep(0))  # sockets are closed by the loop
        self._loop.close()

    # --- connections ---

    def _told(self, doing: str, act: Callable[[], ResultT]) -> ResultT:
        """Do it, with an error for people."""
        try:
            return act()
        except RemoteError as error:
            kind = ServerLost if error.may_pass else ServerUnreadable
            raise self.unreadable(doing, refused(error), kind) from None
        except UpstreamRefused as error:
            raise self.unreadable(doing, error.message) from None
        except ProtocolError as error:
            raise self.unreadable(doing, f"what the server sends cannot be read: {error}") from None
        except (TlsFailed, PasswordUnavailable) as error:
            raise self.unreadable(doing, error) from None
        except OSError as error:
            raise self.unreadable(doing, unreachable(error), ServerLost) from None

    def _run(self, act: Awaitable[ResultT]) -> ResultT:
        task = asyncio.ensure_future(act, loop=self._loop)
        try:
            return self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            # The task is still in the loop: its end, when the connection is closed, would be told with a traceback.
            task.cancel()
            self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise

    def _find_beginning(self) -> SlavePosition:
        return answered(
            beginning(_random_server_id), lambda asked: self._run(self._ask(asked.exchange))
        )

    def _ask_state(self) -> BinlogState:
        return self._run(self._ask(binlog_state))

    async def _ask(self, exchange: Callable[[ClientConnection], Exchange[ResultT]]) -> ResultT:
        link = await self._connect()
        try:
            return await link.drive(exchange(link.machine))
        finally:
            self._drop(link)

    async def _dump(self, position: SlavePosition, *, ends: bool) -> tuple[ClientLink, int]:
        """A link on which the dump comes, and the checksums of its first events."""
        link = await self._connect()
        try:
            await link.query(f"SET net_write_timeout={_NET_WRITE_TIMEOUT_S}")
            handshake = ReplicaHandshake(
                link.machine,
                server_id=_random_server_id(),
                position=position,
                heartbeat_period_ns=_HEARTBEAT_NS,
                strict_mode=False,
                non_block=ends,
                comes_back=False,
            )
            await link.start_dump(handshake)
        except BaseException:
            self._drop(link)
            raise
        link.timeout_s = SILENCE_S
        return link, handshake.checksum_algorithm

    async def _connect(self) -> ClientLink:
        info = self._info
        link = await ClientLink.connect(
            info.host, info.port, info.user, info.password.read(), _CONNECT_S, info.tls
        )
        self._links.add(link)
        try:
            await link.log_in()
        except BaseException:
            self._drop(link)
            raise
        return link

    def _drop(self, link: ClientLink) -> None:
        self._links.discard(link)
        link.quit()


class _Reading:
    """The groups of one dump.

    Args:
        left: the last group of each domain that has not come; None for a dump without an end.
        passed: told of each group that was given whole, when the next is asked for.
    """

    def __init__(
        self,
        history: ServerHistory,
        link: ClientLink,
        checksum_algorithm: int,
        left: dict[int, Gtid] | None,
        passed: Callable[[Gtid], None],
        doing: str,
    ) -> None:
        self._history = history
        self._link = link
        self._left = left
        self._told = passed
        self._doing = doing
        self._place = ReplicaPlace()
        self._stream = GroupStream(
            link.machine, checksum_algorithm, group_bytes_max=_NO_LIMIT, place=self._place
        )

    def groups(self) -> Iterator[OfflineGroup]:
        """Raises `ServerUnreadable`."""
        stream = self._stream
        while self._left is None or self._left:
            start = self._place.position
            match self._next(runs=True):
                case GroupRun() as run:
                    begins = [start, *run.end_positions]
                    for i in range(len(run)):
                        gtid, payload = run.gtid(i), run.payload(i)
                        yield self._group(gtid, begins[i], payload, [payload])
                        self._passed(gtid)
                case Incident() as incident:
                    yield self._group(None, start, incident.payload, [incident.payload])
                case StreamEvent() as event if (unfinished := stream.unfinished) is not None:
                    yield from self._begun(unfinished, start, event)
                case StreamEnded():
                    missing = ",".join(map(str, (self._left or {}).values()))
                    raise self._history.unreadable(
                        self._doing,
                        "the server has ended the stream" + (missing and f" before {missing} came"),
                        ServerLost,
                    )

    def _begun(self, gtid: Gtid, start: int, begin: StreamEvent) -> Iterator[OfflineGroup]:
        """The group that has begun: a large one comes in parts."""
        while True:
            match self._next(runs=False):
                case EventGroup(payload=payload):
                    yield self._group(gtid, start, payload, [payload])
                    break
                case GroupPart() as part:
                    head = normal_form(begin.sent, begin.checksum_algorithm)
                    pieces = self._pieces(head, part)
                    yield self._group(gtid, start, head, pieces)
                    for _ in pieces:  # what nobody has looked at comes before the next group
                        pass
                    break
                case StreamEvent() if self._stream.unfinished == gtid:
                    pass
                case StartMarker():  # the server was killed inside the group: it never was
                    return
                case _:
                    raise self._history.unreadable(
                        self._doing, f"the server has ended the stream inside {gtid}", ServerLost
                    )
        self._passed(gtid)

    def _pieces(self, head: bytes, first: GroupPart) -> Iterator[bytes]:
        yield head
        yield b"".join(first.events)
        while True:
            match self._next(runs=False):
                case GroupPart(events=events):
                    yield b"".join(events)
                case EventGroup(payload=payload):
                    yield payload[len(head) :]
                    return
                case StreamEvent() if self._stream.unfinished == first.gtid:
                    pass
                case _:
                    raise self._history.unreadable(
                        self._doing, f"the server, or its stream, has ended inside {first.gtid}"
                    )

    def _group(
        self, gtid: Gtid | None, start: int, begin: bytes, pieces: Iterable[bytes]
    ) -> OfflineGroup:
        place = self._place
        file = place.file or self._history.name
        return OfflineGroup(file, Position(0, start), gtid, group_time(begin), pieces)

    def _passed(self, gtid: Gtid) -> None:
        self._told(gtid)
        if self._left is not None and self._left.get(gtid.domain_id) == gtid:
            del self._left[gtid.domain_id]

    def _next(self, *, runs: bool) -> Item:
        return self._history.next_item(self._link, self._stream, self._doing, runs=runs)


def _random_server_id() -> int:
    return random.SystemRandom().choice(READER_IDS)
