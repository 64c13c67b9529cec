"""Semi-sync without sockets: who waits for what, and what an acknowledgement speaks for."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import build_event, split_events
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.groups.event_group import StartMarker
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.packets import PacketReader
from binlog_protocol.wire.semi_sync import Ack, PositionStep, ReplicaPlace
from binlog_storage.engine import LargeGroup, PlacedGroup, Position
from binlog_storage.testing.memory_engine import MemoryEngine
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.commits.syncer import Syncer
from binlog_server.dumps.frame_style import ClassicStyle, EngineStyle
from binlog_server.dumps.large_group_frames import LargeGroupFrames
from binlog_server.semi_sync.commits import Commits
from binlog_server.semi_sync.master import NOWHERE, SemiSyncMaster
from binlog_server.semi_sync.replica_acks import ReplicaAcks
from binlog_server.semi_sync.upstream_acks import UpstreamAcks
from tests.binlog_server.lab import until, within
from tests.binlog_server.relay.test_large_groups import large_group
from tests.protocol.statement_groups import ddl_group


@dataclass
class Options:
    rpl_semi_sync_master_enabled: bool = True
    rpl_semi_sync_master_timeout: int = 1000
    rpl_semi_sync_master_wait_no_slave: bool = True
    rpl_semi_sync_master_wait_for_slave_count: int = 1


class Bench:
    """A master with a clock of ours, and commits that note when they are answered."""

    def __init__(self, **options: bool | int) -> None:
        self.options = Options(**options)  # type: ignore[arg-type]
        self.now = 0.0
        self.age = 0
        self.master = SemiSyncMaster(lambda: self.options, lambda: self.now, lambda: self.age)
        self.answered: list[int] = []

    def commit(self, end: int) -> None:
        self.master.when_acknowledged(Position(0, end), lambda: self.answered.append(end))

    def replica(self, start: int = 0) -> ReplicaAcks:
        acks = ReplicaAcks(Position(0, start), checksum=False, moved=self.master.moved)
        acks.sent_event(RotateEvent.fake("a.000001", 1).build())
        self.master.add(acks)
        return acks

    def status(self, *names: str) -> list[int | str]:
        found = self.master.status_variables()
        return [found[f"Rpl_semi_sync_master_{name}"] for name in names]


def send(acks: ReplicaAcks, end: int, length: int = 100) -> None:
    acks.sent_frames(PositionStep(length), ack_wanted=True)
    acks.sent_all_before(Position(0, end))


async def test_commits_wait_for_an_acknowledgement() -> None:
    bench = Bench()
    replica = bench.replica()
    for end in (10, 20, 30):
        bench.commit(end)
        send(replica, end)
    assert bench.answered == []
    assert bench.status("wait_sessions", "clients") == [3, 1]
    bench.now = 0.5
    replica.received(Ack("a.000001", 204))  # the second speaks for the first, too
    assert bench.answered == [10, 20]
    replica.received(Ack("a.000001", 304))
    assert bench.answered == [10, 20, 30]
    bench.commit(30)  # is held already
    assert bench.status("yes_tx", "no_tx", "tx_waits", "tx_avg_wait_time") == [4, 0, 3, 500_000]


async def test_timeout_to_async_and_back(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(rpl_semi_sync_master_timeout=1)
    replica = bench.replica()
    timed_out = asyncio.Event()
    bench.master.when_acknowledged(Position(0, 9), timed_out.set)
    bench.commit(10)
    bench.now = 5
    await asyncio.wait_for(timed_out.wait(), 20)
    bench.commit(20)
    bench.commit(30)
    assert bench.answered == [10, 20, 30]
    assert bench.status("no_tx", "no_times", "status") == [4, 1, "OFF"]
    assert caplog.text.count("semi-sync is OFF") == 1
    send(replica, 20)
    replica.received(Ack("a.000001", 104))
    assert bench.status("status") == ["OFF"]  # there is more that was committed
    send(replica, 30)
    replica.received(Ack("a.000001", 204))
    assert bench.status("status", "yes_tx") == ["ON", 0]


async def test_as_many_replicas_as_wanted() -> None:
    bench = Bench(rpl_semi_sync_master_wait_for_slave_count=2)
    replicas = [bench.replica() for _ in range(3)]
    bench.commit(10)
    for replica in replicas:
        send(replica, 10)
    replicas[2].received(Ack("a.000001", 104))
    assert bench.answered == []
    assert [bench.master.held_by(n) for n in (0, 1, 2, 4)] == [
        NOWHERE,
        Position(0, 10),
        Position(0, 0),
        NOWHERE,
    ]
    replicas[0].received(Ack("a.000001", 104))
    assert bench.answered == [10]


async def test_without_replicas() -> None:
    bench = Bench(rpl_semi_sync_master_wait_no_slave=False)
    bench.commit(10)
    assert (bench.answered, bench.status("status", "no_times")) == ([10], ["OFF", 1])
    replica = bench.replica(start=10)
    assert bench.status("status") == ["ON"]
    bench.commit(20)
    assert bench.answered == [10]
    bench.master.remove(replica)
    assert bench.answered == [10, 20]


async def test_switched_off_nobody_waits() -> None:
    bench = Bench()
    bench.commit(10)
    bench.options.rpl_semi_sync_master_enabled = False
    bench.master.changed()
    bench.commit(20)
    assert bench.answered == [10, 20]
    bench.master.close()


async def test_a_shorter_time_out_is_that_of_later_commits() -> None:
    bench = Bench(rpl_semi_sync_master_timeout=3_600_000)
    timed_out = asyncio.Event()
    bench.commit(10)
    bench.options.rpl_semi_sync_master_timeout = 1
    bench.master.changed()
    bench.master.when_acknowledged(Position(0, 20), timed_out.set)
    bench.commit(30)
    bench.now = 5
    await within(timed_out.wait())
    assert bench.answered == [10, 30], "nobody waits any more when one has waited in vain"
    assert bench.status("status", "wait_sessions", "no_tx") == ["OFF", 0, 3]
    # Another option switches nothing on: that is for replicas that have everything, or for who switches it on.
    bench.options.rpl_semi_sync_master_timeout = 3_600_000
    bench.master.changed()
    assert bench.status("status") == ["OFF"]
    for enabled in (False, True):
        bench.options.rpl_semi_sync_master_enabled = enabled
        bench.master.changed()
    assert bench.status("status") == ["ON"]
    bench.master.close()


async def test_fewer_replicas_suffice_from_now_on() -> None:
    bench = Bench(rpl_semi_sync_master_wait_for_slave_count=2)
    replica = bench.replica()
    bench.commit(10)
    send(replica, 10)
    replica.received(Ack("a.000001", 104))
    assert bench.answered == []
    bench.options.rpl_semi_sync_master_wait_for_slave_count = 1
    bench.master.changed()
    assert bench.answered == [10]
    bench.master.close()


async def test_reset_master_leaves_nobody_waiting() -> None:
    """Old places are larger than all that replicas will acknowledge from now on."""
    bench = Bench()
    bench.commit(20_000)
    bench.age = 2
    bench.master.enter_age()
    assert bench.answered == [20_000]
    replica = bench.replica()
    for end in (10, 20):
        bench.commit(end)
        send(replica, end)
    replica.received(Ack("a.000001", 204))
    assert bench.answered == [20_000, 10, 20]
    assert bench.status("status", "yes_tx", "no_tx", "wait_sessions") == ["ON", 2, 1, 0]


async def test_reset_master_before_a_commit_is_durable() -> None:
    engine = MemoryEngine()
    bench = Bench()
    syncer = Syncer(engine)
    answered: list[object] = []
    gtid = Gtid(0, 1, 1)
    engine.append(ddl_group(gtid, "x", timestamp=1), gtid)
    Commits(engine, syncer, bench.master).on_commit(answered.append)
    bench.age = 2
    await syncer.synced()
    await until(lambda: answered == [None])
    await syncer.close()


async def test_a_commit_of_the_new_binlog_before_anybody_is_told_of_it() -> None:
    """RESET MASTER ends in a thread, and the loop hears of it later: commits may come in between."""
    bench = Bench()
    bench.commit(20_000)
    bench.age = 2
    bench.commit(10)
    assert bench.answered == [20_000], "of the binlog that is no more"
    bench.master.enter_age()  # now it is told
    assert bench.answered == [20_000]
    replica = bench.replica()
    send(replica, 10)
    replica.received(Ack("a.000001", 104))
    assert bench.answered == [20_000, 10]
    assert bench.status("status", "yes_tx", "no_tx", "wait_sessions") == ["ON", 1, 1, 0]


async def test_a_replica_of_the_new_binlog_before_anybody_is_told_of_it() -> None:
    """What it has is none of what those of the old one wait for, or have waited for."""
    bench = Bench(rpl_semi_sync_master_wait_no_slave=False)
    bench.commit(20_000)
    assert bench.status("status") == ["OFF"]
    bench.age = 2
    bench.replica(16_384)
    assert bench.status("status", "yes_tx") == ["ON", 0]


async def test_who_waits_is_known_without_a_search() -> None:
    bench = Bench()
    commits = 3000

    class Session:
        def committed(self) -> None: ...

    sessions = [Session() for _ in range(commits)]
    for session in sessions:
        bench.master.when_acknowledged(Position(0, 9), session.committed, session.committed)
    began = time.thread_time()
    assert all(bench.master.is_waiting(session.committed) for session in sessions)
    for session in sessions:
        bench.master.give_up(session.committed)
    assert not any(bench.master.is_waiting(session.committed) for session in sessions)
    assert time.thread_time() - began < 0.2  # a search took seconds
    assert bench.status("wait_sessions", "no_tx") == [0, commits]
    bench.master.close()


def test_what_an_acknowledgement_speaks_for() -> None:
    bench = Bench()
    replica = bench.replica(5)
    replica.sent_all_before(Position(0, 7))  # nothing of it was for the replica
    assert replica.acknowledged == Position(0, 7)
    replica.sent_frames(PositionStep(50), ack_wanted=False)  # inside a large group
    replica.sent_all_before(Position(0, 8))
    replica.received(Ack("a.000001", 54))
    assert replica.acknowledged == Position(0, 7)
    send(replica, 20, 50)
    replica.sent_all_before(Position(0, 25))  # skipped
    for wrong in (Ack("b.000001", 104), Ack("a.000001", 103), Ack("a.000001", 2**63)):
        replica.received(wrong)
    assert replica.acknowledged == Position(0, 7)
    replica.received(Ack("a.000001", 104))
    assert replica.acknowledged == Position(0, 25)


def test_one_that_acknowledges_nothing_takes_no_memory() -> None:
    replica = Bench().replica()
    for end in range(1, 5000):
        send(replica, end)
    assert len(replica._asked) == 1024
    replica.received(Ack("a.000001", 4 + 4999 * 100))
    assert replica.acknowledged == Position(0, 4999)


@given(
    st.lists(st.tuples(st.sampled_from(["send", "back", "ack"]), st.integers(0, 5)), max_size=40)
)
def test_of_two_that_are_the_same_the_first_is_meant(steps: list[tuple[str, int]]) -> None:
    """Against a search from the first to the last. Where a ROTATE goes back, the same place is asked for again."""
    replica = ReplicaAcks(Position(0, 0), checksum=False, moved=lambda: None)
    replica.sent_event(RotateEvent.fake("a.000001", 1).build())
    counts, asked, has = 4, list[tuple[int, int]](), 0
    for end, (step, number) in enumerate(steps, 1):
        if step == "send":
            counts += number
            send(replica, end, number)
            asked.append((counts, end))
        elif step == "back":
            counts = 4 + number
            replica.sent_event(RotateEvent.fake("a.000001", 1, counts).build())
        else:
            replica.received(Ack("a.000001", 4 + number))
            for place, (position, _) in enumerate(asked):
                if position == 4 + number:
                    has = asked[place][1]
                    del asked[: place + 1]
                    break
        assert replica.acknowledged == Position(0, has)
    assert replica._known == Counter(each.ack for each in replica._asked)


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 900)), min_size=1, max_size=12),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_a_replica_that_counts_by_itself_is_understood(
    groups: list[tuple[int, int]], classic: bool, checksum: bool, random: Random
) -> None:
    """Batches of groups, some of them overtaken; the replica counts, and acknowledges some while later."""
    kind = ClassicStyle if classic else EngineStyle
    style = kind(True, False, checksum=checksum, semi_sync=True)
    acks = ReplicaAcks(NOWHERE, checksum=checksum, moved=lambda: None)
    place, algorithm = ReplicaPlace(), int(checksum)
    owed: list[tuple[Ack, Position]] = []

    def rotate(position: int) -> None:
        event = RotateEvent.fake("binlog.000001", 1, position).build()
        event = append_checksum(event) if checksum else event
        acks.sent_event(event)
        place.feed(event, algorithm)

    rotate(4)
    offset = 16384
    for seq_no, (distance, size) in enumerate(groups, 1):
        gtid = Gtid(0, 1, seq_no)
        payload = ddl_group(gtid, "x" * size, timestamp=1)
        start, offset = offset, offset + distance
        end = Position(0, offset)
        frames, overtaken = style.some(Position(0, start), [PlacedGroup(payload, end)])
        acks.sent_frames(frames.step, ack_wanted=frames.ack_wanted)
        acks.sent_all_before(end)
        reader = PacketReader(1 << 20)
        reader.feed(frames.at_sequence(1))
        for packet in iter(reader.next_packet, None):
            place.feed(packet.payload[3:], algorithm)
        owed.append((place.ack, end))
        if overtaken:
            rotate(2 * offset)
        while owed and random.random() < 0.5:
            ack, held = owed.pop(0)
            acks.received(ack)
            assert acks.acknowledged == held
    for ack, held in owed:
        acks.received(ack)
        assert acks.acknowledged == held


async def test_an_upstream_is_told_what_is_durable_and_held() -> None:
    engine, sent = MemoryEngine(), list[bytes]()
    syncer = Syncer(engine)
    held: list[Position | None] = [NOWHERE]
    acks = UpstreamAcks(engine, syncer, held=lambda: held[0], send=sent.append)
    place = ReplicaPlace()
    place.feed(RotateEvent.fake("m-bin.000002", 1, 500).build())
    acks.stored(place)
    for seq_no in (1, 2):
        gtid = Gtid(0, 1, seq_no)
        engine.append(ddl_group(gtid, "x", timestamp=1), gtid)
        place.move(PositionStep(100))
        acks.asked()
        acks.stored(place)
    acks.flush()
    assert sent == []
    await syncer.synced()
    assert sent == []
    held[0] = engine.durable_end
    acks.flush()
    acks.flush()
    assert sent == [Ack("m-bin.000002", 700).build()]
    await syncer.close()


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("piece", [999, 70_000, 1 << 20])
@pytest.mark.parametrize("classic", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize(("events", "event_bytes"), [(30, 40_000), (2, 3_000_000), (0, 3_000_000)])
def test_a_large_group_is_counted_and_asks_at_its_end(
    piece: int, classic: bool, checksum: bool, events: int, event_bytes: int
) -> None:
    """`events` 0: one long statement, which ends its group itself."""
    gtid = Gtid(0, 1, 1)
    payload = (
        large_group(gtid, events, event_bytes)
        if events
        else ddl_group(gtid, "x" * event_bytes, timestamp=1)
    )
    end = Position(0, 16384 + 10 * len(payload))

    def pieces() -> Iterator[bytes]:
        return (payload[at : at + piece] for at in range(0, len(payload), piece))

    kind = ClassicStyle if classic else EngineStyle
    style = kind(True, False, checksum=checksum, semi_sync=True)
    group = LargeGroup(payload[:100], end, pieces)
    place, counted, sequence = ReplicaPlace(), 4, 1
    reader, asked = PacketReader(1 << 24), False
    for chunk in LargeGroupFrames(group, style, Position(0, 16384)).chunks():
        counted = chunk.frames.step.moved(counted)
        reader.feed(chunk.frames.at_sequence(sequence))
        sequence = chunk.frames.sequence_after(sequence)
        asked = chunk.frames.ack_wanted
        for packet in iter(reader.next_packet, None):
            place.feed(packet.payload[3:], int(checksum))
    assert asked
    assert counted == place.position


@pytest.mark.parametrize("annotate", [False, True])
def test_the_quick_count_is_the_count(annotate: bool) -> None:
    """With a start marker between groups, and ANNOTATE_ROWS events."""
    annotation = build_event(EventType.ANNOTATE_ROWS, b"x" * 30, server_id=1)
    first, *rest = split_events(ddl_group(Gtid(0, 1, 1), "y", timestamp=1))
    marker = StartMarker(FormatDescription("11.8.6", 1, created=5)).payload
    groups = [b"".join((first, annotation, *rest)), marker, b"".join((first, *rest))]
    frames = EngineStyle(annotate, False, semi_sync=True).frames(groups)
    place = ReplicaPlace()
    reader = PacketReader(1 << 20)
    reader.feed(frames.at_sequence(1))
    for packet in iter(reader.next_packet, None):
        place.feed(packet.payload[3:])
    assert frames.step.moved(4) == place.position
