"""Groups too large for memory, on their way to replicas."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import build_event, split_events
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.groups.event_parts import event_parts
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import parse_error
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.engine import GroupBatch, Position
from binlog_storage.errors import CorruptBinlog, StorageError
from binlog_storage.testing.memory_engine import MemoryEngine

from binlog_server.connections.channel import WRITE_BUFFER_BYTES
from binlog_server.dumps import large_group_frames
from tests.binlog_server.classic_client import USERS, ClassicClient
from tests.binlog_server.dumps import test_classic_style
from tests.binlog_server.dumps.test_classic_style import FILE_BYTES, random_history
from tests.binlog_server.engines import HOLD_S
from tests.binlog_server.lab import DEADLINE_S, Lab, Replica, transaction, until, within
from tests.binlog_server.transport import Held

LARGE = 40_000
SMALL = StoreOptions(max_binlog_size=FILE_BYTES, innodb_binlog_state_interval=32768)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = partial(event_parts, run_bytes=5000, long_bytes=30_000)
    monkeypatch.setattr(large_group_frames, "event_parts", parts)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(store=SMALL, users=USERS) as running:
        running.engine.large_group_bytes = LARGE
        yield running


async def whole_stream(replica: Replica) -> list[bytes]:
    """All events up to EOF."""
    found = []
    while (payload := await replica.client.answer())[:1] == b"\0":
        found.append(payload[1:])
    assert payload[:1] == b"\xfe", payload[:200]
    return found


# --- the same stream as from memory ---


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
async def test_random_histories(lab: Lab, seed: int, checksum: str) -> None:
    """From any GTID, in both styles, the same bytes as when nothing is large."""
    rng = Random(seed)
    history = random_history(lab, rng, 40)
    assert sum(len(group) > LARGE for group in history) > 3
    positions = ["", *(f"0-1-{rng.randrange(1, 30)}" for _ in range(3))]

    async def streams() -> list[object]:
        found: list[object] = []
        for at in positions:
            stream = await ClassicClient(lab, master_binlog_checksum=checksum).dump(gtid=at)
            # Where a batch ends decides whether the place behind it is told once more.
            found.append([(got.event, got.file, got.position) for got in stream.of_groups])
            found.append(stream.events[-1].position)
            replica = await lab.replica(at, flags=3, master_binlog_checksum=checksum)
            _, _, *events = await whole_stream(replica)
            found.append(events)
        return found

    streamed = await streams()
    lab.server.frames._made.clear()
    lab.engine.large_group_bytes = 1 << 30
    assert await streams() == streamed


@pytest.mark.parametrize("seed", range(2))
async def test_going_on_from_every_position(lab: Lab, seed: int) -> None:
    await test_classic_style.test_going_on_from_every_position(lab, seed)


@pytest.mark.parametrize("seed", range(2))
async def test_classic_from_any_gtid(lab: Lab, seed: int) -> None:
    await test_classic_style.test_from_any_gtid(lab, seed)


UNTIL = {
    "before it": ("0-1-1", 0, "0-1-1"),
    "itself": ("0-1-2", 0, "0-1-1,0-1-2"),
    "not itself": ("0-1-2", 1, "0-1-1"),
    "behind it": ("0-1-3", 0, "0-1-1,0-1-2,0-1-3"),
}


@pytest.mark.parametrize("name", UNTIL)
async def test_until(lab: Lab, name: str) -> None:
    until_gtid, before, expected = UNTIL[name]
    publish_with_large(lab)
    replica = await lab.replica(slave_until_gtid=until_gtid, slave_gtid_until_before_gtids=before)
    assert gtids_of(await whole_stream(replica)) == expected


async def test_skipped_by_gtid(lab: Lab) -> None:
    publish_with_large(lab)
    for position, expected in (("0-1-1", "0-1-2,0-1-3"), ("0-1-2", "0-1-3")):
        replica = await lab.replica(position, flags=3)
        assert gtids_of(await whole_stream(replica)) == expected


def publish_with_large(lab: Lab) -> None:
    """0-1-2 is large."""
    for seq_no in (1, 2, 3):
        gtid = Gtid(0, 1, seq_no)
        lab.engine.append(large_group(gtid) if seq_no == 2 else transaction(gtid), gtid)
    lab.engine.sync()


def large_group(gtid: Gtid, events: int = 50, event_bytes: int = 20_000) -> bytes:
    """Of events that come whole, or with larger ones in parts."""
    rows = build_event(EventType.WRITE_ROWS_V1, bytes(event_bytes), server_id=1)
    *rest, last = split_events(transaction(gtid))
    return b"".join((*rest, *[rows] * events, last))


def gtids_of(events: list[bytes]) -> str:
    found = [group_gtid(event) for event in events if event[4] == EventType.GTID]
    return ",".join(map(str, found))


# --- what happens in the middle of it ---


class HaltingEngine(MemoryEngine):
    """Pieces beyond so many bytes of a large group wait for `go_on`, and then raise `error`."""

    def __init__(self) -> None:
        super().__init__()
        self.large_group_bytes = LARGE
        self.halt_at = 1 << 60
        self.go_on = threading.Event()
        self.error: StorageError | None = None

    def read(self, start: Position) -> GroupBatch:
        batch = super().read(start)
        if batch.large is None:
            return batch
        pieces = batch.large.pieces
        return replace(batch, large=replace(batch.large, pieces=lambda: self._halting(pieces())))

    def _halting(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        count = 0
        for piece in pieces:
            if count > self.halt_at:
                self.go_on.wait(HOLD_S)
                if self.error is not None:
                    raise self.error
            count += len(piece)
            yield piece


@pytest.fixture
async def halting() -> AsyncIterator[Lab]:
    engine = HaltingEngine()
    async with Lab(engine) as running:
        yield running
        engine.go_on.set()


def halting_engine(lab: Lab) -> HaltingEngine:
    assert isinstance(lab.engine, HaltingEngine)
    return lab.engine


DAMAGE = CorruptBinlog(3, 16384, "Wrong chunk type")


async def test_damage_between_events_is_told(halting: Lab) -> None:
    engine = halting_engine(halting)
    engine.halt_at, engine.error = 500_000, DAMAGE
    engine.go_on.set()
    publish_with_large(halting)
    replica = await halting.replica()
    found = []
    while (payload := await replica.client.answer())[:1] == b"\0":
        found.append(payload[1:])
    error = parse_error(payload)
    assert error.errno == 1236
    assert "Wrong chunk type" in error.message
    assert await replica.client.closed()
    assert gtids_of(found) == "0-1-1,0-1-2"
    assert found[-1][4] == EventType.WRITE_ROWS_V1, "the group has no end"


async def test_damage_inside_an_event_closes(halting: Lab) -> None:
    """An error there would be taken for a part of the event."""
    engine = halting_engine(halting)
    engine.halt_at, engine.error = 500_000, DAMAGE
    engine.go_on.set()
    gtid = Gtid(0, 1, 1)
    engine.append(large_group(gtid, 1, 1_000_000), gtid)
    engine.sync()
    replica = await halting.replica()
    await replica.opening()
    assert [(await replica.event())[4] for _ in range(2)] == [EventType.GTID, EventType.QUERY]
    assert await replica.client.closed()
    assert 0 < replica.client.packets.buffered < 1_000_000


async def only_heartbeats(replica: Replica) -> None:
    """Those in front of an event of which a part is here; in it they would be found in its bytes."""
    while True:
        assert (await within(replica.event(), 0.2))[4] == EventType.HEARTBEAT


@pytest.mark.parametrize("inside", [False, True])
async def test_heartbeats_while_the_disk_is_slow(halting: Lab, inside: bool) -> None:
    """None inside an event; elsewhere beyond what the replica has counted."""
    engine = halting_engine(halting)
    gtid = Gtid(0, 1, 1)
    payload = large_group(gtid, 1 if inside else 50, 1_000_000 if inside else 20_000)
    engine.halt_at = 500_000
    engine.append(payload, gtid)
    engine.sync()
    replica = await halting.replica(master_heartbeat_period=10_000_000)
    await replica.opening()
    found: list[bytes] = []
    if inside:
        while len(found) < 2:  # a busy machine is slow on the way there
            event = await replica.event()
            if event[4] != EventType.HEARTBEAT:
                found.append(event)
        with pytest.raises(TimeoutError):
            await only_heartbeats(replica)
    else:
        beats = counted = 0
        while counted < 400_000 or beats < 2:  # a busy machine is slow on the way there, too
            event = await replica.event()
            if event[4] == EventType.HEARTBEAT:
                assert HeartbeatEvent.parse(event).position > counted
                beats = beats + 1 if counted > 400_000 else 0
            else:
                found.append(event)
                counted += len(event)
    engine.go_on.set()
    while sum(map(len, found)) < len(payload):
        event = await replica.event()
        if event[4] != EventType.HEARTBEAT:
            found.append(event)
    assert b"".join(found) == payload


@pytest.mark.parametrize("inside", [False, True])
async def test_killed_in_the_middle(halting: Lab, inside: bool) -> None:
    engine = halting_engine(halting)
    engine.halt_at = 500_000
    gtid = Gtid(0, 1, 1)
    engine.append(large_group(gtid, 1, 1_000_000) if inside else large_group(gtid), gtid)
    engine.sync()
    first = await halting.replica(server_id=7)
    await first.opening()
    while (await first.event())[4] != EventType.QUERY:
        pass
    client = first.client
    while inside and client.packets.buffered < 100_000:
        client.packets.feed(await within(client.reader.read(1 << 18)))
    await halting.replica(server_id=7)  # ends the first
    packets = []
    while (payload := await client.packet()) is not None:
        packets.append(payload)
    errors = [payload for payload in packets if payload[:1] == b"\xff"]
    assert len(errors) == (not inside)
    engine.go_on.set()


async def test_memory_for_a_slow_replica_is_bounded(lab: Lab) -> None:
    gtid = Gtid(0, 1, 1)
    payload = large_group(gtid, 400)
    lab.engine.append(payload, gtid)
    lab.engine.sync()
    slow = Held(lab.server)
    slow.log_in()
    slow.dump(1)
    await until(lambda: slow.transport.held > WRITE_BUFFER_BYTES)
    await asyncio.sleep(0.1)
    assert slow.transport.held < WRITE_BUFFER_BYTES + 3 * LARGE
    async with asyncio.timeout(DEADLINE_S):
        while len(slow.transport.written) < len(payload):
            slow.transport.take()
            await asyncio.sleep(0)
    await until(lambda: slow.transport.written.endswith(payload[-27:]))
    received = [
        packet.payload[1:] for packet in slow.packets()[-len(list(split_events(payload))) :]
    ]
    assert b"".join(received) == payload
    slow.end()
