"""An upstream: the stream of events as a hostile or broken master sends it, through the relay into a store.

What must be true: nothing but what ends a connection is raised; what is stored are whole groups, byte for byte what was
sent; and `verify` finds no damage.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, cast
from unittest import mock

import uvloop
from binlog_protocol.connection.client import ClientConnection
from binlog_protocol.connection.commands import BinlogDump
from binlog_protocol.connection.server import LoginReceived, ServerConnection
from binlog_protocol.errors import ProtocolError, RemoteError, ServerError
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import TYPE_OFFSET, split_events
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups.group_stream import PIECE_BYTES
from binlog_protocol.wire.packets import frame_packet
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import StorageError
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.commits.publisher import Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.commits.syncer import Syncer
from binlog_server.relay import ingest
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.gate import Domains, Gate, GroupRefused, UpstreamHistory
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.ingest import Ingest
from binlog_server.relay.into import Into
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.settings.config import Config
from binlog_server.upstreams.master_info import GroupFilter
from tests.binlog_server.upstream import OPENING, groups
from tests.fuzz import frames
from tests.fuzz.events import changed_event
from tests.fuzz.mutation import mutated_parts
from tests.fuzz.readers import read_by_all, require_sound
from tests.fuzz.target import Wrong
from tests.protocol.conversation import all_streams, binlog_events, binlog_names, checksum_algorithm
from tests.protocol.events.rows import samples
from tests.protocol.sample_events import SAMPLES
from tests.storage.sizes import small

_SALT: Final = b"s" * 20
_HEADER: Final = 19
_CHECKSUM: Final = 4
_CRC32: Final = 1
_PIECE_BYTES: Final = 200


class _Link:
    """Stands in for a `ClientLink`: its bytes are here."""

    def __init__(self, machine: ClientConnection, chunks: list[bytes], *, asks_first: bool) -> None:
        self.machine = machine
        self._chunks = chunks
        self._asks_first = asks_first
        self._taker: Callable[[], bool] | None = None

    def ask_first(self, taker: Callable[[], bool] | None) -> None:
        self._taker = taker if self._asks_first else None

    def receive_now(self) -> bool:
        self.machine.receive_data(self._chunks.pop(0))
        return True

    async def receive(self) -> None:
        while self._chunks:
            left = len(self._chunks)
            if self._taker is not None and self._taker():
                continue
            if len(self._chunks) == left:  # nobody has taken it
                self.receive_now()
            return
        raise ConnectionError("the server has closed the connection")

    next_item = ClientLink.next_item

    def acknowledge(self, packet: bytes) -> None:
        pass


class Upstream:
    """The first part: what is configured, the size of pieces; the others: events.

    Of the first byte: whether lengths and checksums are made right again, the history of the upstream is looked at,
    a server's groups are left out, large groups begin early, and what comes is taken at once where it can be.
    """

    name = "upstream"
    time_s = 1.0
    per_life = 200

    def __init__(self) -> None:
        self._streams = _streams()
        self._events = sorted({event for stream in self._streams for event in stream})
        self._loop: asyncio.AbstractEventLoop

    def open(self) -> None:
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def close(self) -> None:
        self._loop.close()

    def make(self, rng: random.Random) -> bytes:
        stream = rng.choice(self._streams)
        begin = rng.randrange(len(stream))
        some = stream[: rng.randrange(2, 5)] + stream[begin : begin + rng.randrange(1, 30)]
        how = bytes([rng.randrange(256), rng.randrange(4)])
        if rng.random() < 0.5:
            return frames.joined([how, *mutated_parts(some, rng, self._events)])
        # All in its order, from some group on, and one or two events of it are others.
        begins = [at for at, event in enumerate(stream) if event[TYPE_OFFSET] == EventType.GTID]
        some = stream[:2] + stream[rng.choice(begins or [2]) :]
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(some))
            some[at] = changed_event(some[at], rng, self._events)
        return frames.joined([how, *some])

    def run(self, data: bytes) -> None:
        self._loop.run_until_complete(self._one(data))

    async def _one(self, data: bytes) -> None:
        how, *events = frames.split(data) or [b""]
        how = how.ljust(2, b"\0")
        if how[0] & 1:
            events = [_made_whole(event) for event in events]
        stream = b"".join(
            frame_packet(b"\0" + event, (n + 1) & 0xFF)[0] for n, event in enumerate(events)
        )
        step = max((1, 50, 4000, 1 << 20)[how[1] % 4], len(stream) // 300)
        chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
        disk = MemoryDisk()
        engine = IbbEngine(disk, small(8))
        try:
            with mock.patch.object(
                ingest, "PIECE_BYTES", _PIECE_BYTES if how[0] & 8 else PIECE_BYTES
            ):
                await self._follow(engine, _dumping(), chunks, how[0])
            engine.sync()
            engine.checkpoint()
        finally:
            engine.close()
        _check(disk, events)

    async def _follow(
        self, engine: IbbEngine, machine: ClientConnection, chunks: list[bytes], how: int
    ) -> None:
        publisher = Publisher(
            engine, server_version="11.8.6", server_id=10, domain_id=0, follows=True
        )
        wanted = GroupFilter(ignore_server_ids=frozenset({2})) if how & 4 else GroupFilter()
        domains = Domains(engine, publisher)
        gate = Gate("upstream", domains, wanted)
        syncer = Syncer(engine)
        config = Config(Path("/nowhere"), server_id=10, max_event_group_size=1 << 20)
        into = Into(
            lambda: config, engine, syncer, AppendRoom(engine), domains, _heard_version,
            SemiSyncMaster(lambda: config),
        )  # fmt: skip
        taking = Ingest(
            cast(ClientLink, _Link(machine, chunks, asks_first=bool(how & 16))), into, gate, UpstreamStatus("upstream"),
            Incidents(), _CRC32,
            acks=None, history=UpstreamHistory(engine, gate) if how & 2 else None,
        )  # fmt: skip
        try:
            await taking.run()
        except (
            ProtocolError,
            RemoteError,
            ServerError,
            GroupRefused,
            ConnectionError,
            StorageError,
        ):
            pass
        finally:
            gate.release()
            await syncer.close()


async def _heard_version(version: str) -> None:
    """Nobody else hears of it."""


def _dumping() -> ClientConnection:
    """A client that has asked for a dump."""
    server = ServerConnection(connection_id=9, server_version="10.11.19-MariaDB-log", salt=_SALT)
    client = ClientConnection("u", "p")
    _hand(client, server.greeting())
    server.receive_data(client.login())
    assert isinstance(server.next_event(), LoginReceived)
    _hand(client, server.accept_login())
    server.receive_data(client.binlog_dump(5))
    assert isinstance(server.next_event(), BinlogDump)
    return client


def _hand(client: ClientConnection, data: bytes | bytearray) -> None:
    client.receive_data(data)
    while client.next_event() is not None:
        pass


def _made_whole(event: bytes) -> bytes:
    """With the length and the checksum that it ought to have: what else is wrong is met only so."""
    return append_checksum(event[:-_CHECKSUM]) if len(event) >= _HEADER + _CHECKSUM else event


def _streams() -> list[list[bytes]]:
    found = [events for _, events in all_streams()]
    for name in binlog_names():
        events = binlog_events(name)
        if checksum_algorithm(events) == _CRC32:
            found.append([OPENING[0], *events])
    found.append(OPENING + groups("0-1-1", "0-1-2", "1-2-1", "0-1-3"))
    for name in samples.NAMES:
        payloads = [group.payload for group in samples.groups(name)]
        found.append([*OPENING, *(append_checksum(e) for p in payloads for e in split_events(p))])
    found.append([*OPENING, *map(append_checksum, _of_each_type())])
    return found


def _of_each_type() -> Iterator[bytes]:
    """Groups with an event of each type that may be in one, every form of it."""
    inner = [e for type_, forms in SAMPLES.items() if type_ != EventType.GTID for e in forms]
    heads = SAMPLES[EventType.GTID]
    for number, event in enumerate(inner):
        head = heads[number % len(heads)]
        seq_no = (100 + number).to_bytes(8, "little")
        head = head[:_HEADER] + seq_no + head[_HEADER + 8 :]
        yield from (head, event, XidEvent(number, 1).build())


def _check(disk: MemoryDisk, sent: list[bytes]) -> None:
    binlog = OfflineBinlog(disk)
    try:
        at = 0
        for group in binlog.groups():
            if group.gtid is not None:  # a start marker is made anew from what it tells
                stored = b"".join(group.pieces())
                at = _find(sent, list(split_events(stored)), at, str(group.gtid))
                read_by_all(stored)
    finally:
        binlog.close()
    require_sound(disk)


def _find(sent: list[bytes], events: list[bytes], begin: int, gtid: str) -> int:
    """Behind where the events of a group begin among those that were sent. Raises `Wrong`.

    Between two events of a group may stand what belongs to the connection, a heartbeat say, and is not stored.
    """
    for start in range(begin, len(sent)):
        rest = iter(sent[start:])
        if _is_same(sent[start], events[0]) and all(
            any(_is_same(one, event) for one in rest) for event in events
        ):
            return start + 1
    raise Wrong(f"{gtid} is stored, but was not sent so")


def _is_same(sent: bytes, stored: bytes) -> bool:
    """Type and body; in normal form there is no checksum."""
    return sent[4:5] == stored[4:5] and stored[_HEADER:] in (
        sent[_HEADER:-_CHECKSUM],
        sent[_HEADER:],
    )
