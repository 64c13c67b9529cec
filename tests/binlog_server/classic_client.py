"""A client of the classic style: checks what it gets, and counts as a replica does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from binlog_protocol.connection.commands import BinlogDump, RegisterSlave
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.checksum import normal_form, verify_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import EventHeader
from binlog_protocol.wire.results import parse_error
from binlog_storage.engine import BinlogEngine, Position

from binlog_server.accounts.replica_policy import ReplicaPolicy, StreamStyle
from binlog_server.accounts.users import Account
from tests.protocol.replica_position import ReplicaPosition

from .lab import PASSWORD, Lab

CLASSIC = Account(PASSWORD, replica=ReplicaPolicy(style=StreamStyle.CLASSIC))
USER = "classic"
USERS = {USER: CLASSIC, "repl": PASSWORD}
FILE_EVENTS = {
    EventType.ROTATE,
    EventType.FORMAT_DESCRIPTION,
    EventType.GTID_LIST,
    EventType.HEARTBEAT,
}


class Got(NamedTuple):
    """One event in normal form, its header as it came, and where the replica is behind it."""

    event: bytes
    header: EventHeader
    file: str
    position: int

    @property
    def type(self) -> int:
        return self.header.type


@dataclass
class Stream:
    """What a dump that ended has sent."""

    events: list[Got] = field(default_factory=list)
    error: RemoteError | None = None

    @property
    def of_groups(self) -> list[Got]:
        """Without those that files begin with; a start marker is one that has been created some time."""
        return [got for got in self.events if got.type not in FILE_EVENTS or is_marker(got)]

    @property
    def types(self) -> list[int]:
        return [got.type for got in self.events]


def is_marker(got: Got) -> bool:
    return got.type == EventType.FORMAT_DESCRIPTION and got.event[71:75] != bytes(4)


class ClassicClient:
    """One connection of its own for each dump."""

    def __init__(
        self,
        lab: Lab,
        *,
        user: str = USER,
        registered: bool = True,
        **variables: str | int | None,
    ) -> None:
        self._lab = lab
        self._registered = registered
        self._user = user
        self._variables = {
            "master_binlog_checksum": "CRC32",
            "mariadb_slave_capability": 4,
            **variables,
        }
        self.checksum = self._variables["master_binlog_checksum"] == "CRC32"
        self.place = ReplicaPosition(checksum=self.checksum)

    async def start(
        self, file: str = "", position: int = 4, *, gtid: str | None = None, flags: int = 2
    ) -> None:
        self._client = await self._lab.connect()
        assert (await self._client.log_in(self._user))[:1] == b"\0"
        for name, value in {**self._variables, "slave_connect_state": gtid}.items():
            if value is not None:
                shown = value if isinstance(value, int) else f"'{value}'"
                await self._client.query(f"SET @{name}={shown}")
        if self._registered:
            assert (await self._client.ask(RegisterSlave(77).build()))[:1] == b"\0"
        self._client.command(BinlogDump(77, flags, file, position).build())

    async def event(self) -> Got | RemoteError | None:
        """The next event; None for EOF."""
        payload = await self._client.answer()
        if payload[:1] == b"\xff":
            return parse_error(payload)
        if payload[:1] == b"\xfe" and len(payload) < 9:
            return None
        event = payload[1:]
        header = EventHeader.parse(event)
        if header.type == EventType.FORMAT_DESCRIPTION:
            assert FormatDescription.parse(event).checksum_algorithm == int(self.checksum)
            plain, counted = event, event
        else:
            if self.checksum:
                verify_checksum(event)
            plain = normal_form(event, int(self.checksum))
            counted = plain[:13] + event[13:17] + plain[17:]
        self.place.feed(counted)
        return Got(plain, header, self.place.file, self.place.position)

    async def dump(
        self, file: str = "", position: int = 4, *, gtid: str | None = None, flags: int = 3
    ) -> Stream:
        """All that there is now."""
        await self.start(file, position, gtid=gtid, flags=flags)
        stream = Stream()
        while (got := await self.event()) is not None:
            if isinstance(got, RemoteError):
                stream.error = got
                break
            stream.events.append(got)
        assert await self._client.closed()
        return stream


def places(engine: BinlogEngine) -> list[tuple[int, int]]:
    """File number and position of the end of each group, as the store has them."""
    found = []
    first = engine.files()[0].number
    start = Position(first, 16384)
    while start < engine.durable_end:
        batch = engine.read_placed(start)
        found += [(group.end.file_no, 2 * group.end.offset) for group in batch.groups]
        start = batch.end
    return found
