"""Dumps of accounts with the classic style: what a client without GTID needs, and everybody else may have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import build_event, split_events
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions

from tests.binlog_server.classic_client import USERS, ClassicClient, Got, Stream, places
from tests.binlog_server.lab import Lab, transaction, until

FILE_BYTES = 4 * 16384
SMALL = StoreOptions(max_binlog_size=FILE_BYTES, innodb_binlog_state_interval=32768)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(store=SMALL, users=USERS) as running:
        yield running


def group_of(rng: Random, gtid: Gtid, size: int) -> bytes:
    """A transaction of several events, `size` bytes of rows in all."""
    rows = [rng.randbytes(rng.randint(1, max(1, size // 3))) for _ in range(rng.randint(1, 5))]
    return b"".join(
        (
            GtidEvent(gtid, timestamp=5).build(),
            build_event(EventType.ANNOTATE_ROWS, b"INSERT INTO t SELECT", server_id=1),
            *(build_event(23, row, server_id=1, timestamp=6) for row in rows),
            XidEvent(gtid.seq_no, 1).build(),
        )
    )


def marker(number: int) -> bytes:
    return FormatDescription("11.8.0-MariaDB", 1, created=number, timestamp=7).for_store().build()


def random_history(lab: Lab, rng: Random, count: int) -> list[bytes]:
    """Groups of all sizes, some of them spilled while others commit, some start markers; in order of the store."""
    engine = lab.engine
    expected = []
    seq_no = 0
    for _ in range(count):
        seq_no += 1
        kind = rng.random()
        size = rng.choice([10, 100, 100, 1000, 16384, 40_000, 3 * FILE_BYTES])
        payload = group_of(rng, Gtid(0, 1, seq_no), size)
        if kind < 0.05:
            made = marker(seq_no)
            engine.append(made, None)
            expected.append(made)
        elif kind < 0.3 or len(payload) > FILE_BYTES // 2:
            first, *rest = split_events(payload)
            writer = engine.begin()
            for event in rest:
                writer.spill(event)
                if rng.random() < 0.3:
                    between = Gtid(3, 1, seq_no * 100 + len(expected))
                    expected.append(transaction(between))
                    engine.append(expected[-1], between)
            writer.commit(first, Gtid(0, 1, seq_no))
            expected.append(payload)
            continue
        else:
            engine.append(payload, Gtid(0, 1, seq_no))
            expected.append(payload)
        if rng.random() < 0.05:
            engine.flush()
    engine.sync()
    return expected


def names(stream: Stream) -> list[str]:
    rotates = [
        RotateEvent.parse(got.event) for got in stream.events if got.type == EventType.ROTATE
    ]
    return [rotate.name for rotate in rotates]


def joined(found: list[Got]) -> bytes:
    """Markers are compared as they are stored."""
    return b"".join(
        FormatDescription.parse(got.event).for_store().build()
        if got.type == EventType.FORMAT_DESCRIPTION
        else got.event
        for got in found
    )


async def test_the_opening_of_a_file(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-2")
    rotate, description, gtid_list, *others = (await ClassicClient(lab).dump()).events
    assert RotateEvent.parse(rotate.event) == RotateEvent.fake("binlog.000001", 1, 4)
    parsed = FormatDescription.parse(description.event)
    assert (parsed.created, parsed.end_position, parsed.flags) == (0, 256, 0)
    assert parsed.server_version == lab.server.config.server_version
    assert description.position == 256
    assert GtidList.parse(gtid_list.event).gtids == ()
    assert gtid_list.header.flags == 0
    assert [got.type for got in others] == [162, 2, 16] * 2
    file, position = lab.engine.written_end
    assert (file, 2 * position) == (0, others[-1].position)


async def test_the_opening_with_gtid(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-2,0-1-3")
    rotate, description, before, reached, *others = (
        await ClassicClient(lab).dump(gtid="0-1-2")
    ).events
    start = RotateEvent.parse(rotate.event)
    assert FormatDescription.parse(description.event).end_position == 0
    assert before.header.end_position == start.position == before.position
    assert before.header.flags == 0x20
    assert [str(gtid) for gtid in GtidList.parse(reached.event).gtids] == ["0-1-2"]
    assert reached.position == reached.header.end_position == places(lab.engine)[1][1]
    assert [got.type for got in others] == [162, 2, 16]
    assert others[-1].position == places(lab.engine)[2][1]


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("checksum", ["CRC32", "NONE", None])
@pytest.mark.parametrize("seed", range(4))
async def test_random_histories(lab: Lab, seed: int, checksum: str | None) -> None:
    """Everything comes; each group ends where it is said to be, for the client's own count, too."""
    rng = Random(seed)
    expected = random_history(lab, rng, 60)
    stream = await ClassicClient(lab, master_binlog_checksum=checksum).dump()
    assert stream.error is None
    assert joined(stream.of_groups) == b"".join(expected)
    ends = [got for got in stream.events if got.type == EventType.XID]
    groups = [
        place for place, group in zip(places(lab.engine), expected, strict=True) if group[4] == 162
    ]
    assert [(int(got.file[-6:]) - 1, got.header.end_position) for got in ends] == groups
    begun = range(lab.engine.durable_end.file_no + 1)
    assert list(dict.fromkeys(names(stream))) == [f"binlog.{n + 1:06d}" for n in begun]
    with_gtid = await ClassicClient(lab, master_binlog_checksum=checksum).dump(gtid="")
    assert joined(with_gtid.of_groups) == b"".join(expected)


@pytest.mark.parametrize("seed", range(3))
async def test_going_on_from_every_position(lab: Lab, seed: int) -> None:
    """A replica that lost its connection goes on exactly where it was, inside a group, too."""
    rng = Random(seed)
    random_history(lab, rng, 40)
    checksum = rng.choice(["CRC32", "NONE"])
    stream = await ClassicClient(lab, master_binlog_checksum=checksum).dump()
    every = stream.of_groups
    overtaken = 0
    for index in rng.sample(range(len(every)), 60):
        at = every[index]
        found = await ClassicClient(lab, master_binlog_checksum=checksum).dump(at.file, at.position)
        if found.error is not None:
            assert at.position > 1 << 31
            assert "inside a large transaction" in found.error.message
            overtaken += 1
            continue
        rest = every[index + 1 :]
        if at.type == EventType.FORMAT_DESCRIPTION:
            rest = every[
                index:
            ]  # a start marker has no length: it comes again, which changes nothing
        assert joined(found.of_groups) == joined(rest)
    assert overtaken < 40


@pytest.mark.parametrize("position", [4, 256])
@pytest.mark.parametrize("seed", range(3))
async def test_from_the_beginning_of_every_file(lab: Lab, seed: int, position: int) -> None:
    """Also where a file begins with the rest of a record: its group belongs to the file before."""
    for number in range(30):
        lab.engine.append(
            group_of(Random(seed), Gtid(0, 1, number + 1), 20_000), Gtid(0, 1, number + 1)
        )
    random_history(lab, Random(seed), 20)
    every = (await ClassicClient(lab).dump()).of_groups
    files = list(dict.fromkeys(got.file for got in every))
    assert len(files) > 4
    for file in files:
        stream = await ClassicClient(lab).dump(file, position)
        assert stream.error is None, file
        assert names(stream)[0] == file
        assert joined(stream.of_groups) == joined(every[[got.file for got in every].index(file) :])


async def test_a_file_that_nobody_has_made_durable(lab: Lab) -> None:
    """It was begun in memory, with the rest of a record."""
    number = 0
    while lab.engine.written_end.file_no == lab.engine.durable_end.file_no:
        number += 1
        lab.engine.append(group_of(Random(1), Gtid(0, 1, number), 12_000), Gtid(0, 1, number))
    stream = await ClassicClient(lab).dump("binlog.000002", 4)
    assert stream.error is None


@pytest.mark.parametrize("seed", range(3))
async def test_from_any_gtid(lab: Lab, seed: int) -> None:
    """Skipping, over file borders too, ends in the same places."""
    rng = Random(seed)
    random_history(lab, rng, 60)
    every = (await ClassicClient(lab).dump()).events
    ends = [got for got in every if got.type == EventType.XID]
    for end in rng.sample(ends, 10):
        seq_no = int.from_bytes(end.event[19:27], "little")
        if seq_no > 60:
            continue  # of the other domain
        stream = await ClassicClient(lab).dump(gtid=f"0-1-{seq_no}")
        assert stream.error is None
        found = [got for got in stream.events if got.type == EventType.XID]
        places_ = {(got.event, got.file, got.header.end_position) for got in ends}
        assert {(got.event, got.file, got.header.end_position) for got in found} <= places_
        assert end.event not in {got.event for got in found}
        assert stream.events[-1].position == every[-1].position


async def test_an_overtaken_group_is_followed_by_its_place(lab: Lab) -> None:
    """Its data are in the file before that of its commit."""
    lab.publish("0-1-1")
    writer = lab.engine.begin()
    for event in (build_event(23, bytes(2 * FILE_BYTES), server_id=1), XidEvent(2, 1).build()):
        writer.spill(event)
    writer.commit(GtidEvent(Gtid(0, 1, 2)).build(), Gtid(0, 1, 2))
    lab.publish("0-1-3")
    stream = await ClassicClient(lab).dump()
    at = max(n for n, got in enumerate(stream.events) if got.header.length > 1000)
    xid, rotate, description, *others = stream.events[at + 1 :]
    assert xid.type == EventType.XID
    assert rotate.position == xid.header.end_position == places(lab.engine)[1][1]
    assert description.header.end_position == 0
    assert others[-1].position == places(lab.engine)[2][1] == 2 * lab.engine.written_end.offset
    # Who has it all goes on from there by its position.
    more = await ClassicClient(lab).dump(rotate.file, rotate.position)
    assert joined(more.of_groups) == transaction(Gtid(0, 1, 3))


async def test_one_format_description_a_file_for_who_is_no_replica(lab: Lab) -> None:
    """Such as mariadb-binlog: with --raw it begins the file anew with each."""
    lab.engine.append(marker(1), None)
    large = bytes(2 * FILE_BYTES)
    group = group_of(Random(1), Gtid(0, 1, 1), 10)
    lab.engine.append(group, Gtid(0, 1, 1))
    lab.engine.append(marker(2), None)
    writer = lab.engine.begin()
    for event in (build_event(23, large, server_id=1), XidEvent(2, 1).build()):
        writer.spill(event)
    writer.commit(GtidEvent(Gtid(0, 1, 2)).build(), Gtid(0, 1, 2))
    lab.publish("0-1-3")
    stream = await ClassicClient(lab, registered=False).dump()
    files = len({got.file for got in stream.events})
    for kind in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.GTID_LIST):
        assert [got.type for got in stream.events].count(kind) == files
    gtids = [got for got in stream.events if got.type == EventType.GTID]
    assert [int.from_bytes(got.event[19:27], "little") for got in gtids] == [1, 2, 3]


async def test_flush_is_told_at_once(lab: Lab) -> None:
    lab.publish("0-1-1")
    client = ClassicClient(lab)
    await client.start(flags=2)
    for _ in range(6):
        await client.event()
    lab.engine.flush()
    rotate, description, gtid_list = [await client.event() for _ in range(3)]
    assert isinstance(rotate, Got)
    assert rotate.file == "binlog.000002"
    assert isinstance(description, Got)
    assert description.header.end_position == 256
    assert isinstance(gtid_list, Got)
    assert [str(gtid) for gtid in GtidList.parse(gtid_list.event).gtids] == ["0-1-1"]
    file, offset = lab.engine.written_end
    assert (file, 2 * offset) == (1, gtid_list.position)


async def test_heartbeats_are_never_behind(lab: Lab) -> None:
    lab.publish("0-1-1")
    client = ClassicClient(lab, master_heartbeat_period=1_000_000)
    await client.start(flags=2)
    beats = 0
    for seq_no in range(2, 6):
        while not isinstance(got := await client.event(), Got) or got.type != EventType.HEARTBEAT:
            pass
        beats += 1
        lab.publish(f"0-1-{seq_no}")
        if seq_no == 4:
            lab.engine.flush()
    assert beats == 4, "and the model of a replica has taken them all"


@pytest.mark.parametrize(
    ("file", "position", "text"),
    [
        ("binlog.000009", 4, "Could not find first log file name in binary log index file"),
        ("binlog-000000.ibb", 4, "Could not find first log file name"),
        ("nonsense", 4, "Could not find first log file name"),
        ("binlog.000001", 0, "impossible position"),
        ("binlog.000001", 3, "impossible position"),
        ("binlog.000001", 5, "impossible position"),
        ("binlog.000001", 32767, "impossible position"),
        ("binlog.000001", 1 << 20, "impossible position"),
        ("binlog.000001", (1 << 31) + 5, "inside a large transaction"),
        ("binlog.000001", (1 << 32) - 1, "inside a large transaction"),
    ],
)
async def test_positions_that_are_none(lab: Lab, file: str, position: int, text: str) -> None:
    lab.publish("0-1-1,0-1-2")
    stream = await ClassicClient(lab).dump(file, position)
    assert stream.events == [], "refused before the first event"
    assert stream.error is not None
    assert stream.error.errno == 1236
    assert text in stream.error.message


async def test_only_events_begin_somewhere(lab: Lab) -> None:
    """Of all positions of a store only those that were told are taken, and where the next group will begin."""
    lab.publish("0-1-1,0-1-2,0-1-3")
    told = {got.position for got in (await ClassicClient(lab).dump()).of_groups}
    begins = {end - length for end, length in group_places(lab)}
    first = min(begins)
    for position in range(first - 20, max(told) + 40):
        stream = await ClassicClient(lab).dump("binlog.000001", position)
        assert (stream.error is None) == (position in told | begins), position


def group_places(lab: Lab) -> list[tuple[int, int]]:
    """The end of each group, and its length with checksums."""
    length = len(transaction(Gtid(0, 1, 1))) + 3 * 4
    return [(position, length) for _, position in places(lab.engine)]


async def test_the_tail_is_followed(lab: Lab) -> None:
    lab.publish("0-1-1")
    client = ClassicClient(lab)
    await client.start("binlog.000001", places(lab.engine)[0][1], flags=2)
    assert [(await client.event()) is not None for _ in range(2)] == [True, True]
    lab.publish("0-1-2")
    got = [await client.event() for _ in range(3)]
    assert [g.type for g in got if isinstance(g, Got)] == [162, 2, 16]


@pytest.mark.parametrize(
    ("capability", "flags", "types"),
    [
        (0, 1, [4, 15, 14, 2, 2, 23, 16]),
        (1, 1, [4, 15, 14, 2, 160, 23, 16]),
        (2, 1, [4, 15, 2, 23, 16]),
        (3, 3, [4, 15, 2, 160, 23, 16]),
        (4, 1, [4, 15, 163, 162, 23, 16]),
        (4, 3, [4, 15, 163, 162, 160, 23, 16]),
    ],
)
async def test_weaker_clients(lab: Lab, capability: int, flags: int, types: list[int]) -> None:
    gtid = Gtid(0, 1, 1)
    annotate = build_event(EventType.ANNOTATE_ROWS, b"INSERT INTO t SELECT", server_id=1)
    rows = build_event(23, b"row", server_id=1)
    payload = GtidEvent(gtid).build() + annotate + rows + XidEvent(1, 1).build()
    lab.engine.append(payload, gtid)
    lab.publish("")
    client = ClassicClient(lab, mariadb_slave_capability=capability)
    stream = await client.dump(flags=flags)
    assert stream.types == types
    assert stream.events[-1].position == places(lab.engine)[0][1]


async def test_a_weaker_client_with_gtid_is_refused(lab: Lab) -> None:
    stream = await ClassicClient(lab, mariadb_slave_capability=3).dump(gtid="")
    assert stream.error is not None
    assert "@mariadb_slave_capability=4" in stream.error.message


async def test_until(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-2,0-1-3")
    client = ClassicClient(lab, slave_until_gtid="0-1-2")
    last = (await client.dump(gtid="")).events[-1]
    parsed = GtidList.parse(last.event)
    assert parsed.flags == 1
    assert last.header.end_position == places(lab.engine)[1][1]


async def test_engine_style_gives_checksums_to_who_asks(lab: Lab) -> None:
    expected = random_history(lab, Random(7), 30)
    stream = await ClassicClient(lab, user="repl").dump(gtid="")
    assert {got.header.end_position for got in stream.events} == {0}
    assert joined(stream.of_groups) == b"".join(expected)
    refused = await ClassicClient(lab, user="repl").dump()
    assert refused.error is not None
    assert refused.error.errno == 1236  # of 4246 it would say nothing, and come again
    assert "Slave must enable GTID mode" in str(refused.error)
    refused = await ClassicClient(lab, user="repl", registered=False).dump()
    assert refused.error is not None
    assert refused.error.errno == 4246


@pytest.mark.parametrize("user", ["classic", "repl"])
async def test_a_replica_that_has_read_another_file_is_told_of_that_first(
    lab: Lab, user: str
) -> None:
    """With checksums, which what it has read may have lacked: its relay log has them before it sees the new name."""
    lab.publish("0-1-1")
    client = ClassicClient(lab, user=user)
    stream = await client.dump("other.000007", gtid="")
    assert names(stream) == ["other.000007", "binlog.000001"]
    assert [got.type for got in stream.events[:4]] == [4, 15, 4, 15]
    described = FormatDescription.parse(stream.events[1].event)
    assert (described.checksum_algorithm, described.created) == (1, 0)
    for other, file in (
        (client, "binlog.000001"),
        (client, ""),
        (ClassicClient(lab, user=user, master_binlog_checksum=None), "other.000007"),
    ):
        assert names(await other.dump(file, gtid="")) == ["binlog.000001"]
    # mariadb-binlog leaves out all of a file that has another name than that which it has asked for.
    reader = ClassicClient(lab, user=user, registered=False)
    read = "other.000007" if user == "repl" else "binlog.000001"
    assert names(await reader.dump("other.000007", gtid="")) == [read]


async def test_many_replicas_share_frames(lab: Lab) -> None:
    random_history(lab, Random(3), 60)
    one = await ClassicClient(lab).dump()
    misses = lab.server.frames.misses + lab.server.frames.made_ahead
    two = await ClassicClient(lab).dump()
    assert [got.event for got in two.of_groups] == [got.event for got in one.of_groups]
    # At the durable end, frames are made anew.
    assert lab.server.frames.misses + lab.server.frames.made_ahead <= misses + 1


async def test_purged_files(lab: Lab) -> None:
    random_history(lab, Random(5), 60)
    last = lab.engine.files()[-1].number
    lab.engine.set_option("slave_connections_needed_for_purge", 0)
    await until(lambda: len(lab.engine.files()) >= 1)
    lab.engine.purge_to(last)
    refused = await ClassicClient(lab).dump("binlog.000001", 4)
    assert isinstance(refused.error, RemoteError)
    assert "Could not find first log file name" in refused.error.message
    first = await ClassicClient(lab).dump("", 4)
    assert names(first)[0] == f"binlog.{last + 1:06d}"
