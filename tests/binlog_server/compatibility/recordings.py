"""Recorded conversations, taken apart: one `Recording` is one connection of a real client to a real master.

Recordings of the compressed protocol are unpacked; the bytes that were on the wire are kept beside.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from binlog_protocol.connection.commands import CommandCode, DumpFlag
from binlog_protocol.connection.handshake import Capability, Greeting, LoginRequest
from binlog_protocol.events.header import END_POSITION_OFFSET, LENGTH_OFFSET
from binlog_protocol.groups.event_group import EventGroup, EventGroupAssembler
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.limits import EVENT_BYTES_MAX
from binlog_protocol.wire.packets import PacketReader, frame_packet
from binlog_protocol.wire.semi_sync import STATUS_WITH_ACK

from tests.protocol import conversation

from .stream import event_of

HERE = Path(__file__).parents[1] / "captures"
FOLDERS = (HERE, conversation.CAPTURES)

_COMPRESSED_HEADER = 7  # size u24, sequence u8, size when unpacked u24, 0 for stored
_DUMP = bytes((CommandCode.BINLOG_DUMP,))
_SET = re.compile(r"set @(\w+) ?= ?'?([^']*)'?$", re.IGNORECASE)
_CHECKSUM_QUESTION = re.compile(r"(SELECT|SHOW) .*binlog_checksum", re.IGNORECASE)
_VERSIONS = {"1011": "10.11", "118": "11.8"}


@dataclass
class Exchange:
    """A request and what came until the next one. `wire`: the request as it was sent."""

    request: bytes
    wire: bytes
    answer: list[bytes] = field(default_factory=list)

    @property
    def sql(self) -> str:
        """The statement; empty for other commands."""
        is_query = self.request[:1] == bytes((CommandCode.QUERY,))
        return self.request[1:].decode(errors="replace") if is_query else ""

    @property
    def is_dump(self) -> bool:
        return self.request[:1] == _DUMP


@dataclass
class Recording:
    """`name` as "118-02-pos#1": version, scenario, connection."""

    name: str
    greeting: Greeting
    login: Exchange
    commands: list[Exchange]
    after_dump: list[Exchange]
    """What the client said while the stream ran; the stream goes on in their answers."""

    @property
    def version(self) -> str:
        """Of the client; the master's is the same but in "cross-1011master-118replica"."""
        return _VERSIONS[re.findall(r"1011|118", self.name)[-1]]

    @property
    def scenario(self) -> str:
        """The name without versions and connection."""
        return re.sub(r"^(1011|118)-|-(1011|118)(master|replica)?|#.*", "", self.name)

    @cached_property
    def login_request(self) -> LoginRequest:
        return LoginRequest.parse(self.login.request)

    @property
    def compressed(self) -> bool:
        return bool(self.login_request.capabilities & Capability.COMPRESS)

    @property
    def extended(self) -> bool:
        """Whether columns were described with MariaDB's extra metadata."""
        login = self.login_request
        return bool(login.mariadb_capabilities) and not login.capabilities & Capability.MYSQL

    @property
    def dump(self) -> Exchange | None:
        return next((command for command in self.commands if command.is_dump), None)

    @property
    def non_block(self) -> bool:
        dump = self.dump
        return dump is not None and bool(dump.request[5] & DumpFlag.NON_BLOCK)

    @cached_property
    def variables(self) -> dict[str, str]:
        """The user variables that it set to constants, in lower case."""
        found = (_SET.match(command.sql) for command in self.commands)
        return {match[1].lower(): match[2] for match in found if match}

    @property
    def position(self) -> SlavePosition | None:
        text = self.variables.get("slave_connect_state")
        return None if text is None else SlavePosition.parse(text)

    @cached_property
    def stream(self) -> list[bytes]:
        """The packets of the dump."""
        if self.dump is None:
            return []
        return [p for exchange in (self.dump, *self.after_dump) for p in exchange.answer]

    @property
    def checksum(self) -> str:
        """`binlog_checksum` of the master, by its answers; CRC32 if nobody asked."""
        asked = (c for c in self.commands if _CHECKSUM_QUESTION.match(c.sql))
        return "NONE" if any(b"NONE" in b"".join(c.answer) for c in asked) else "CRC32"

    @property
    def stream_begins_with_checksum(self) -> bool:
        """Whether the ROTATE before the first format description has one."""
        wanted = any("@master_binlog_checksum= @@" in command.sql for command in self.commands)
        return wanted and self.checksum == "CRC32"

    @cached_property
    def groups(self) -> list[EventGroup]:
        """The whole groups that the master sent."""
        events = [event for payload in self.stream if (event := event_of(payload)) is not None]
        described = next((i for i, event in enumerate(events) if event[4] == 15), len(events))
        assembler = EventGroupAssembler()
        found = map(assembler.feed, events[described:])
        return [group for group in found if isinstance(group, EventGroup)]


def unpacked(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each packet of the compressed protocol: what was in it, and as it was on the wire."""
    while len(data) > _COMPRESSED_HEADER:
        end = _COMPRESSED_HEADER + int.from_bytes(data[:3], "little")
        size = int.from_bytes(data[4:7], "little")
        body = data[_COMPRESSED_HEADER:end]
        yield (zlib.decompress(body) if size else body), data[:end]
        data = data[end:]


def payloads(data: bytes) -> list[bytes]:
    return [packet.payload for packet in conversation.packets(data)]


def _asks_for_ack(payload: bytes) -> bool:
    """Behind such a packet of semi-sync the master numbers from 1 again."""
    event = payload[len(STATUS_WITH_ACK) :]
    return payload.startswith(STATUS_WITH_ACK) and (
        int.from_bytes(event[LENGTH_OFFSET:END_POSITION_OFFSET], "little") == len(event)
    )


class PacketsFromServer:
    """The packets of the server, whatever the chunks are; `compressed` once the login is through.

    out_of_order: sequence numbers of packets that are not one more than that of the packet before. In the compressed
        protocol those of the compressed packets count, and nobody looks at the others.
    """

    def __init__(self) -> None:
        self.compressed = False
        self.out_of_order: list[int] = []
        self._sequence = 0
        self._reader = PacketReader(EVENT_BYTES_MAX)
        self._rest = b""

    def expect(self, sequence: int) -> None:
        """Of the next packet: one more than that of the request."""
        self._sequence = sequence

    def feed(self, data: bytes) -> list[bytes]:
        if self.compressed:
            data = self._unpack(self._rest + data)
        self._reader.feed(data)
        found = []
        while (packet := self._reader.next_packet()) is not None:
            found.append(packet.payload)
            if not self.compressed:
                self._check(packet.seq)
                self._sequence = 1 if _asks_for_ack(packet.payload) else packet.next_seq
        return found

    def _check(self, sequence: int) -> None:
        if sequence != self._sequence:
            self.out_of_order.append(sequence)

    def _unpack(self, data: bytes) -> bytes:
        size = 0
        while len(data) - size >= _COMPRESSED_HEADER:
            end = size + _COMPRESSED_HEADER + int.from_bytes(data[size : size + 3], "little")
            if end > len(data):
                break
            self._check(data[size + 3])
            self._sequence = (data[size + 3] + 1) % 256
            size = end
        self._rest = data[size:]
        return b"".join(inner for inner, _ in unpacked(data[:size]))


def _requests(data: bytes, *, compressed: bool) -> list[Exchange]:
    if compressed:
        return [Exchange(payloads(inner)[0], wire) for inner, wire in unpacked(data)]
    return [
        Exchange(packet.payload, frame_packet(packet.payload, packet.seq)[0])
        for packet in conversation.packets(data)
    ]


def _recording(recorded: conversation.Conversation) -> Recording | None:
    """None if the connection ended before the login."""
    server = PacketsFromServer()
    greeting: Greeting | None = None
    login: Exchange | None = None
    exchanges: list[Exchange] = []
    for side, data in recorded.chunks:
        if side == "C>S":
            requests = _requests(data, compressed=server.compressed)
            if login is None:
                login = requests.pop(0)
            exchanges += requests
            continue
        for payload in server.feed(data):
            if greeting is None:
                greeting = Greeting.parse(payload)
            elif login is not None and not login.answer:
                login.answer.append(payload)
                asked = LoginRequest.parse(login.request).capabilities
                offered = asked & greeting.capabilities
                server.compressed = bool(offered & Capability.COMPRESS)
            elif exchanges:
                exchanges[-1].answer.append(payload)
    if greeting is None or login is None:
        return None
    last = next((i for i, e in enumerate(exchanges) if e.is_dump), len(exchanges))
    return Recording(recorded.name, greeting, login, exchanges[: last + 1], exchanges[last + 1 :])


@cache
def recordings() -> dict[str, Recording]:
    """All that are kept here, by name."""
    paths = sorted((path for folder in FOLDERS for path in folder.glob("*.jsonl")), key=_by_name)
    found = (_recording(c) for path in paths for c in conversation.conversations_in(path))
    return {recording.name: recording for recording in found if recording is not None}


def _by_name(path: Path) -> str:
    return path.name
