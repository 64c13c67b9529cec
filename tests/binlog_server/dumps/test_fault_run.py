"""Faults of streams that are ordered: what a stream is then, packet by packet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.events.checksum import (
    EventChecksumError,
    append_checksum,
    strip_checksum,
    verify_checksum,
)
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import gtid_of
from binlog_protocol.events.header import (
    FLAG_IGNORABLE,
    TYPE_OFFSET,
    EventHeader,
    build_event,
    split_events,
)
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import EVENT_BYTES_MAX, PACKET_PAYLOAD_MAX
from binlog_protocol.wire.long_event import LongEvent
from binlog_protocol.wire.packets import PacketReader, frame_packet
from binlog_protocol.wire.semi_sync import STATUS, STATUS_WITH_ACK, ReplicaPlace, parse_event
from binlog_storage.engine import Position

from binlog_server.dumps import fault_run
from binlog_server.dumps.fault_run import FaultRun, Step
from binlog_server.faults.faults import FaultOrder, Faults
from tests.binlog_server.lab import Lab, Replica, transaction, until

HEAD = [build_event(EventType.ROTATE, bytes(12), server_id=1)]
GROUPS = [list(split_events(transaction(Gtid(0, 1, number)))) for number in (1, 2, 3)]
EVENTS = [*HEAD, *GROUPS[0], *GROUPS[1], *GROUPS[2]]


def packets(events: Iterable[bytes], status: bytes = b"\0", seq: int = 1) -> bytes:
    made = b""
    for event in events:
        framed, seq = frame_packet(status + event, seq)
        made += framed
    return made


def run(*tables: dict[str, Any], events: Iterable[bytes] = EVENTS, checksum: bool = False) -> Any:
    """The steps of a stream, and the faults."""
    faults = Faults()
    faults.add(tables)
    made = FaultRun(faults.of_stream("repl", 100, 1), checksum=checksum)
    data = packets(events)
    steps: list[Step] = []
    for at in range(0, len(data), 7):
        steps += take(made, data[at : at + 7])
    return steps, faults


def take(made: FaultRun, data: bytes | bytearray) -> list[Step]:
    """All steps up to what is fed."""
    made.feed(data)
    return list(iter(made.next_step, None))


def read(steps: Iterable[Step]) -> list[bytes]:
    """The events of whole packets, whose numbers must follow one another."""
    reader, found, seq = PacketReader(EVENT_BYTES_MAX), list[bytes](), 1
    reader.feed(b"".join(step for step in steps if isinstance(step, bytes)))
    while (packet := reader.next_packet()) is not None:
        assert packet.seq == seq
        seq = packet.next_seq
        found.append(packet.payload[1:])
    return found


def test_without_a_fault_the_stream_is_what_it_was() -> None:
    steps, _ = run({"do": "cut", "gtid": "0-1-9"}, {"do": "delay", "event": 99, "seconds": 1})
    assert b"".join(steps) == packets(EVENTS)


def test_pieces_of_a_large_event_may_be_numbered_anew() -> None:
    """As the compressed protocol has them."""
    event = build_event(EventType.QUERY, bytes(PACKET_PAYLOAD_MAX), server_id=1)
    long_event = LongEvent(len(event))
    faults = Faults()
    faults.add([{"do": "cut", "gtid": "0-1-9"}])
    made = FaultRun(faults.of_stream("repl", 100, 1), checksum=False)
    made.begin(1, ReplicaPlace(), 1, 0)
    steps: list[Step] = []
    for begin in range(0, len(event), 4 << 20):
        steps += take(made, long_event.frame(event[begin : begin + (4 << 20)]).at_sequence(1))
    (step,) = steps
    assert step == packets([event])


def test_a_group_is_left_out() -> None:
    steps, faults = run({"do": "leave_out", "gtid": "0-1-2"})
    assert read(steps) == [*HEAD, *GROUPS[0], *GROUPS[2]]
    assert faults.met() == [("leave_out", 1)]


@pytest.mark.parametrize("checksum", [False, True])
def test_a_group_is_repeated(checksum: bool) -> None:
    events = list(map(append_checksum, EVENTS)) if checksum else EVENTS
    steps, _ = run({"do": "repeat", "gtid": "0-1-2"}, events=events, checksum=checksum)
    found = [e for e in read(steps) if e[TYPE_OFFSET] == EventType.GTID]
    assert [gtid_of(event).seq_no for event in found] == [1, 2, 2, 3]
    assert len(read(steps)) == len(EVENTS) + len(GROUPS[1])


def test_a_checksum_is_wrong() -> None:
    events = list(map(append_checksum, EVENTS))
    fault = {"do": "garble", "gtid": "0-1-2", "event": 3}
    steps, _ = run(fault, events=events, checksum=True)
    found = read(steps)
    (wrong,) = [i for i, (a, b) in enumerate(zip(found, events, strict=True)) if a != b]
    assert events[wrong] == append_checksum(GROUPS[1][2])
    with pytest.raises(EventChecksumError):
        verify_checksum(found[wrong])


def test_a_byte_of_the_stream_is_garbled_or_the_last_one() -> None:
    data = packets(EVENTS)
    for byte in (1, 40, len(data)):
        (sent,), (garbled,) = (
            [b"".join(step for step in run(table)[0] if isinstance(step, bytes))]
            for table in ({"do": "cut", "byte": byte}, {"do": "garble", "byte": byte})
        )
        assert sent == data[:byte]
        assert [i for i in range(len(data)) if garbled[i] != data[i]] == [byte - 1]


def test_cuts_before_and_inside_an_event() -> None:
    before, _ = run({"do": "cut", "gtid": "0-1-2"})
    assert before[-1].do == "cut"
    assert read(before) == [*HEAD, *GROUPS[0]]
    inside, _ = run({"do": "cut", "gtid": "0-1-2", "event": 2, "inside": True})
    assert read(inside) == [*HEAD, *GROUPS[0], GROUPS[1][0]]
    sent = b"".join(inside[:-1])
    whole = packets([*HEAD, *GROUPS[0], *GROUPS[1][:2]])
    assert whole.startswith(sent)
    assert len(packets([*HEAD, *GROUPS[0], GROUPS[1][0]])) < len(sent) < len(whole)


def test_delays_stand_where_they_happen() -> None:
    steps, _ = run(
        {"do": "delay", "event": 2, "seconds": 1.5},
        {"do": "throttle", "gtid": "0-1-3", "bytes_per_second": 1000},
    )
    at = [i for i, step in enumerate(steps) if isinstance(step, FaultOrder)]
    assert read(steps[: at[0]]) == HEAD
    assert read(steps[: at[1]]) == [*HEAD, *GROUPS[0], *GROUPS[1]]
    assert read(steps) == EVENTS


def test_how_often_and_whom() -> None:
    faults = Faults()
    faults.add(
        [
            {"do": "cut", "event": 1, "times": 2},
            {"do": "cut", "event": 1, "times": 0, "account": "repl"},
            {"do": "cut", "event": 1, "server_id": 7},
        ]
    )
    assert [len(faults.of_stream(*who, 1)) for who in (("repl", 7), ("repl", 8), ("x", 8))] == [
        3,
        2,
        1,
    ]
    for _ in range(3):
        take(FaultRun(faults.of_stream("x", 8, 1), checksum=False), packets(EVENTS))
    assert faults.met() == [("cut", 2), ("cut", 0), ("cut", 0)]
    (one,) = faults.of_stream("repl", 8, 1)
    faults.clear()
    assert not one.is_live
    assert faults.of_stream("repl", 8, 1) == []


def test_semi_sync_numbers_its_packets_anew() -> None:
    faults = Faults()
    faults.add([{"do": "leave_out", "gtid": "0-1-1"}])
    made = FaultRun(faults.of_stream("repl", 1, 1), checksum=False)
    made.start_semi_sync()
    wanted = packets(GROUPS[0][:-1], STATUS) + packets(GROUPS[0][-1:], STATUS_WITH_ACK, 4)
    assert take(made, wanted) == []
    (first, *_) = take(made, packets(GROUPS[1], STATUS))
    assert isinstance(first, bytes)
    assert first[3] == 1


def test_a_group_comes_behind_the_next_one() -> None:
    steps, faults = run({"do": "reorder", "gtid": "0-1-1"})
    assert read(steps) == [*HEAD, *GROUPS[1], *GROUPS[0], *GROUPS[2]]
    assert faults.met() == [("reorder", 1)]


def test_groups_that_all_come_later_are_all_sent() -> None:
    """The first of two neighbours was lost."""
    first, second, third = GROUPS
    both = {"do": "reorder", "gtid": "0-1-1"}, {"do": "reorder", "gtid": "0-1-2"}
    steps, _ = run(*both)
    assert read(steps) == [*HEAD, *third, *second, *first]
    steps, _ = run(*both, {"do": "leave_out", "gtid": "0-1-3"})
    assert read(steps) == [*HEAD, *second, *first]


def test_what_happens_to_one_group_at_once() -> None:
    first, second, third = GROUPS
    later, twice, never = ({"do": do, "gtid": "0-1-1"} for do in ("reorder", "repeat", "leave_out"))
    for both in ((later, twice), (twice, later)):
        steps, _ = run(*both)
        assert read(steps) == [*HEAD, *second, *first, *first, *third]
    for one in (later, twice):
        for both in ((one, never), (never, one)):
            steps, _ = run(*both)
            assert read(steps) == [*HEAD, *second, *third]


def test_a_hole_in_the_numbers_of_packets() -> None:
    steps, _ = run({"do": "hole", "gtid": "0-1-2", "event": 2})
    numbers = [step[3] for step in steps if isinstance(step, bytes)]
    hole = len(HEAD) + len(GROUPS[0]) + 2
    assert numbers == [*range(1, hole), *range(hole + 1, len(EVENTS) + 2)]


@pytest.mark.parametrize("checksum", [False, True])
def test_a_heartbeat_that_nobody_has_asked_for(checksum: bool) -> None:
    events = list(map(append_checksum, EVENTS)) if checksum else EVENTS
    table = {"do": "heartbeat", "gtid": "0-1-2", "event": 3, "log_pos": 4}
    steps, _ = run(table, {"do": "heartbeat", "event": 3}, events=events, checksum=checksum)
    found = read(steps)
    beats = [event for event in found if event[TYPE_OFFSET] == EventType.HEARTBEAT]
    plain = [strip_checksum(event, checksum) for event in beats]
    right, wrong = (HeartbeatEvent.parse(event) for event in plain)
    assert (wrong.name, wrong.position) == (right.name, 4)
    place = ReplicaPlace()
    for event in found[: found.index(beats[0])]:
        place.feed(event, checksum)
    assert (right.name, right.position) == (place.file, place.position)
    assert [event for event in found if event not in beats] == list(events)


@pytest.mark.parametrize("checksum", [False, True])
def test_an_event_that_only_another_version_has(checksum: bool) -> None:
    events = list(map(append_checksum, EVENTS)) if checksum else EVENTS
    plain = {"do": "foreign_event", "gtid": "0-1-2", "event": 2, "event_type": 200}
    ignorable = {"do": "foreign_event", "gtid": "0-1-2", "event_type": 201, "ignorable": True}
    found = read(run(plain, ignorable, events=events, checksum=checksum)[0])
    at = len(HEAD) + len(GROUPS[0])
    heads = [EventHeader.parse(strip_checksum(found[n], checksum)) for n in (at, at + 2)]
    assert [(one.type, one.flags, one.server_id) for one in heads] == [
        (201, FLAG_IGNORABLE, 1),
        (200, 0, 1),
    ]
    del found[at + 2], found[at]
    assert found == list(events)


def test_the_format_of_another_server() -> None:
    description = FormatDescription("11.8.9-MariaDB", 1).build()
    events = [*HEAD, description, *GROUPS[0]]
    steps, _ = run({"do": "claim", "on": "format", "version": "8.0.36"}, events=events)
    found = read(steps)
    assert FormatDescription.parse(found[1]).server_version == "8.0.36"
    assert [*found[:1], *found[2:]] == [*HEAD, *GROUPS[0]]


def test_an_acknowledgement_has_the_number_of_its_request() -> None:
    faults = Faults()
    faults.add([{"do": "lose_ack", "gtid": "0-1-2"}, {"do": "leave_out", "gtid": "0-1-1"}])
    made = FaultRun(faults.of_stream("repl", 1, 1), checksum=False)
    made.start_semi_sync()
    for group in GROUPS:
        take(made, packets(group[:-1], STATUS) + packets(group[-1:], STATUS_WITH_ACK, 4))
    assert {n: [one.fault.do for one in found] for n, found in made.at_acks.items()} == {
        1: ["lose_ack"]
    }
    assert faults.met() == [("lose_ack", 0), ("leave_out", 1)], "it is met when the replica says it"


# --- streams ---


async def test_an_error_of_any_number_ends_a_stream() -> None:
    async with Lab() as lab:
        lab.publish("0-1-1,0-1-2,0-1-3")
        lab.server.faults.add(
            [
                {"do": "leave_out", "gtid": "0-1-1"},
                {"do": "error", "gtid": "0-1-3", "errno": 4321, "message": "as you like"},
            ]
        )
        replica = await lab.replica()
        await replica.opening()
        assert await replica.groups(1) == "0-1-2"
        assert await replica.refused() == (4321, "as you like")
        again = await lab.replica()
        await again.opening()
        assert await again.groups(3) == "0-1-1,0-1-2,0-1-3"


async def test_faults_at_a_time_meet_a_stream_wherever_it_is() -> None:
    """It may be looking for its place, or wait at the end."""
    async with Lab() as lab:
        lab.publish("0-1-1")
        for server_id, fault in ((7, {"do": "cut"}), (8, {"do": "error", "errno": 1236})):
            for after in (1e-9, 0.05):
                fault = {**fault, "after_seconds": after, "server_id": server_id}
                lab.server.faults.add([fault])
                replica = Replica(await lab.client())
                await replica.start(server_id=server_id)
                last = b""
                while (payload := await replica.client.packet()) is not None:
                    last = payload
                assert (last[:1] == b"\xff") is (server_id == 8)
        assert [met for _, met in lab.server.faults.met()] == [1, 1, 1, 1]


async def test_a_shutdown_behind_a_changed_stream_is_readable() -> None:
    """Its EOF has the number that follows."""
    async with Lab() as lab:
        lab.publish("0-1-1,0-1-2")
        lab.server.faults.add([{"do": "repeat", "gtid": "0-1-2"}])
        replica = await lab.replica()
        await replica.opening()
        assert await replica.groups(3) == "0-1-1,0-1-2,0-1-2"
        for connection in list(lab.server.connections):
            connection.ending.shut_down()
        assert await replica.ended()


async def test_a_fault_meets_what_comes_at_the_tail() -> None:
    """Groups for replicas that wait at the end go by a way of their own."""
    async with Lab() as lab:
        lab.publish("0-1-1")
        lab.server.faults.add([{"do": "repeat", "gtid": "0-1-3"}])
        replica = await lab.replica()
        await replica.opening()
        assert await replica.groups(1) == "0-1-1"
        for gtid in ("0-1-2", "0-1-3"):
            lab.publish(gtid)
            lab.server.syncer.appended()
            assert await replica.group() == Gtid.parse(gtid)
        assert await replica.group() == Gtid(0, 1, 3)


async def test_heartbeats_go_on_in_a_delay_that_says_so() -> None:
    async with Lab() as lab:
        lab.publish("0-1-1")
        fault = {"do": "delay", "gtid": "0-1-1", "seconds": 0.3, "heartbeats": True}
        lab.server.faults.add([fault])
        replica = await lab.replica(master_heartbeat_period=100_000_000)
        await replica.opening()
        while (event := await replica.event())[TYPE_OFFSET] == EventType.GTID_LIST:
            pass
        assert event[TYPE_OFFSET] == EventType.HEARTBEAT
        while event[TYPE_OFFSET] == EventType.HEARTBEAT:
            event = await replica.event()
        assert gtid_of(event) == Gtid(0, 1, 1)


@pytest.mark.parametrize("beats", [False, True])
async def test_a_delay_ends_when_it_is_dropped(beats: bool) -> None:
    async with Lab() as lab:
        lab.publish("0-1-1")
        delay = {"do": "delay", "gtid": "0-1-1", "seconds": 3600, "heartbeats": beats}
        lab.server.faults.add([delay, {"do": "repeat", "gtid": "0-1-1"}])
        replica = await lab.replica()
        await replica.opening()
        await until(lambda: lab.server.faults.met()[0] == ("delay", 1))
        lab.server.faults.drop("fault1")
        assert await replica.groups(2) == "0-1-1,0-1-1"


async def test_a_slow_line_ends_when_it_is_dropped_and_what_comes_behind_it_does_not() -> None:
    async with Lab() as lab:
        lab.publish("0-1-1,0-1-2,0-1-3")
        slow = {"do": "throttle", "gtid": "0-1-1", "bytes_per_second": 1}
        lab.server.faults.add([slow, {"do": "cut", "gtid": "0-1-3"}])
        replica = await lab.replica()
        await replica.opening()
        await until(lambda: lab.server.faults.met()[0] == ("throttle", 1))
        lab.server.faults.drop("fault1")
        assert await replica.groups(2) == "0-1-1,0-1-2"
        assert await replica.client.closed()


async def test_another_one_with_its_server_id_is_said_to_have_come() -> None:
    async with Lab() as lab:
        lab.publish("0-1-1,0-1-2")
        lab.server.faults.add([{"do": "duplicate_server_id", "gtid": "0-1-2"}])
        replica = await lab.replica()
        await replica.opening()
        assert await replica.groups(1) == "0-1-1"
        errno, text = await replica.refused()
        assert (errno, "same server_id" in text) == (4052, True)


async def test_a_delay_holds_all_back_and_a_kill_ends_it() -> None:
    async with Lab() as lab:
        lab.publish("0-1-1")
        lab.server.faults.add([{"do": "delay", "gtid": "0-1-1", "seconds": 3600}])
        replica = await lab.replica()
        await replica.opening()
        (connection,) = [c for c in lab.server.connections if c.dump_server_id]
        await until(lambda: "delays it by 3600" in connection.state)
        connection.ending.end(None)
        assert await replica.group() == Gtid(0, 1, 1), "what waits goes, as for a throttle"
        assert await replica.client.closed()
        other = await lab.client()
        other.command(Query("SELECT 1").build())
        assert (await other.answer())[:1] != b"\xff"


class SemiSync:
    """A replica that acknowledges all that it is asked to."""

    def __init__(self, lab: Lab, replica: Replica) -> None:
        self.lab, self.client, self.place = lab, replica.client, ReplicaPlace()

    @property
    def acknowledged(self) -> Position | None:
        (connection,) = [c for c in self.lab.server.connections if c.dump_server_id]
        return connection.acknowledged

    async def take(self, gtid: str) -> None:
        """It gets that group, and says so."""
        self.lab.publish(gtid)
        self.lab.server.syncer.appended()
        before = self.lab.server.semi_sync.acks
        wanted = False
        while not wanted:
            event, wanted = parse_event(await self.client.answer())
            self.place.feed(event)
        self.client.send(self.place.ack.build())
        await until(lambda: self.lab.server.semi_sync.acks > before)


async def test_acknowledgements_are_lost_or_late() -> None:
    async with Lab(rpl_semi_sync_master_enabled=True) as lab:
        lab.server.faults.add(
            [
                {"do": "lose_ack", "gtid": "0-1-2"},
                {"do": "delay_ack", "gtid": "0-1-4", "seconds": 3600},
                {"do": "delay_ack", "gtid": "0-1-3", "seconds": 0.05},
            ]
        )
        one = SemiSync(lab, await lab.replica(rpl_semi_sync_slave=1))
        await one.take("0-1-1")
        first = one.acknowledged
        await one.take("0-1-2")
        assert one.acknowledged == first
        await one.take("0-1-3")
        await until(lambda: one.acknowledged != first)
        third = one.acknowledged
        assert third == lab.engine.durable_end, "it speaks for all before it"
        await one.take("0-1-4")
        await one.take("0-1-5")
        assert one.acknowledged == third, "none overtakes another"
        assert [met for _, met in lab.server.faults.met()] == [1, 1, 1]


# --- a stream that runs ---


@pytest.mark.parametrize("quick", [False, True])
async def test_an_order_takes_hold_of_a_stream_that_runs(quick: bool) -> None:
    """At the tail it is fed together with others; counting begins with the order."""
    async with Lab(binlog_faults=True) as lab:
        replica = await lab.replica()
        await replica.opening()
        for number in (1, 2):
            lab.publish(f"0-1-{number}")
            lab.server.syncer.appended()
            assert await replica.group() == Gtid(0, 1, number)
        if quick:
            await until(lambda: len(lab.server._feed) == 1)
        (connection,) = [c.id for c in lab.server.connections if c.dump_server_id]
        orders: list[dict[str, Any]] = [
            {"do": "heartbeat", "event": 2, "connection": connection},
            {"do": "leave_out", "gtid": "0-1-4", "account": "repl"},
            {"do": "cut", "gtid": "0-1-5", "event": 2, "server_id": 100},
            {"do": "cut", "gtid": "0-1-3", "server_id": 101},
        ]
        lab.server.faults.add(orders)
        for number in (3, 4, 5):
            lab.publish(f"0-1-{number}")
            lab.server.syncer.appended()
        assert gtid_of(await replica.event()) == Gtid(0, 1, 3)
        beat = await replica.event()
        assert beat[TYPE_OFFSET] == EventType.HEARTBEAT
        while (await replica.event())[TYPE_OFFSET] != EventType.XID:
            pass
        assert gtid_of(await replica.event()) == Gtid(0, 1, 5)
        assert await replica.client.closed()
        assert [met for _, met in lab.server.faults.met()] == [1, 1, 1, 0]


async def test_an_order_may_come_while_a_large_event_goes_out() -> None:
    """Its pieces are no packets: zeros in one passed for empty ones, and the dump ended."""
    async with Lab(binlog_faults=True) as lab:
        gtid = Gtid(0, 1, 1)
        large = transaction(gtid, "INSERT INTO t VALUES ('" + 30_000_000 * "\0" + "')")
        await asyncio.to_thread(lab.engine.append, large, gtid)
        await asyncio.to_thread(lab.engine.sync)
        replica = await lab.replica()
        place = ReplicaPlace()
        for event in await replica.opening():
            place.feed(event)
        (connection,) = [c for c in lab.server.connections if c.dump_server_id]
        stream: Any = connection.change_limits
        await until(lambda: stream.__self__.inside_event)  # and stays there: nobody reads
        lab.server.faults.add(
            [{"do": "leave_out", "gtid": "0-1-2"}, {"do": "heartbeat", "gtid": "0-1-3", "event": 2}]
        )
        found: list[bytes] = []
        for number in (1, 3):
            while not found or found[-1][TYPE_OFFSET] != EventType.XID:
                found.append(await replica.event())
                if found[-1][TYPE_OFFSET] == EventType.HEARTBEAT:
                    beat = HeartbeatEvent.parse(found[-1])
                    assert (beat.name, beat.position) == (place.file, place.position)
                else:
                    place.feed(found[-1])
            assert [gtid_of(e).seq_no for e in found if e[TYPE_OFFSET] == EventType.GTID] == [
                number
            ]
            found.clear()
            if number == 1:
                lab.publish("0-1-2,0-1-3")
                lab.server.syncer.appended()


async def test_a_heartbeat_of_a_stream_that_runs_has_the_place_of_the_replica() -> None:
    for engine in ("innodb", ""):
        async with Lab(binlog_faults=True, binlog_storage_engine=engine) as lab:
            replica = await lab.replica()
            place = ReplicaPlace()
            for event in await replica.opening():
                place.feed(event)
            lab.publish("0-1-1,0-1-2")
            lab.server.syncer.appended()
            last = None
            while last != 2 or event[TYPE_OFFSET] != EventType.XID:
                event = await replica.event()
                place.feed(event)
                last = gtid_of(event).seq_no if event[TYPE_OFFSET] == EventType.GTID else last
            lab.server.faults.add([{"do": "heartbeat", "after_seconds": 1e-6}])
            beat = HeartbeatEvent.parse(await replica.event())
            assert (beat.name, beat.position) == (place.file, place.position), engine


async def test_faults_at_a_time_count_from_their_order_where_a_stream_runs() -> None:
    async with Lab(binlog_faults=True) as lab:
        lab.publish("0-1-1")
        replica = await lab.replica()
        await replica.opening()
        assert await replica.groups(1) == "0-1-1"
        order = {"do": "error", "errno": 1236, "message": "now", "after_seconds": 1e-6}
        lab.server.faults.add([order])
        assert await replica.refused() == (1236, "now")


def test_a_byte_and_an_event_of_a_stream_that_runs() -> None:
    made = FaultRun((), checksum=False)
    made.begin(200, ReplicaPlace(), 1, 0)
    data = packets(GROUPS[0], seq=200)
    assert b"".join(step for step in take(made, data) if isinstance(step, bytes)) == data
    faults = Faults()
    faults.add([{"do": "cut", "event": 2}, {"do": "garble", "byte": 1}])
    for one in faults.ordered():
        made.add(one)
    more = packets(GROUPS[1], seq=(200 + len(GROUPS[0])) & 0xFF)
    first, cut = take(made, more)
    assert isinstance(first, bytes)
    assert (first[0] ^ more[0], first[1:]) == (0xFF, more[1 : len(first)])
    assert isinstance(cut, FaultOrder)


async def test_an_acknowledgement_of_a_stream_that_runs_is_lost() -> None:
    async with Lab(rpl_semi_sync_master_enabled=True, binlog_faults=True) as lab:
        one = SemiSync(lab, await lab.replica(rpl_semi_sync_slave=1))
        await one.take("0-1-1")
        first = one.acknowledged
        lab.server.faults.add([{"do": "lose_ack", "gtid": "0-1-2"}])
        await one.take("0-1-2")
        assert one.acknowledged == first
        await one.take("0-1-3")
        await until(lambda: one.acknowledged == lab.engine.durable_end)


@pytest.mark.parametrize("do", ["repeat", "reorder"])
def test_a_group_that_has_no_room_ends_the_stream(do: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(len(event) + 1 for event in GROUPS[1])
    fault = {"do": do, "gtid": "0-1-2"}
    monkeypatch.setattr(fault_run, "HELD_BYTES_MAX", size)
    steps, _ = run(fault)
    assert len(read(steps)) >= len(EVENTS)
    monkeypatch.setattr(fault_run, "HELD_BYTES_MAX", size - 1)
    steps, _ = run(fault)
    *packets_before, end = steps
    assert isinstance(end, FaultOrder)
    assert "holds no group" in str(end.error)
    assert read(packets_before)[: len(HEAD) + len(GROUPS[0])] == [*HEAD, *GROUPS[0]]
    assert len(read(packets_before)) < len(EVENTS)
