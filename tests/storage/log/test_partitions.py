"""However a store is cut, each commit is in exactly one partition; what a range leaves out is not wanted."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from binlog_protocol.events.header import EventHeader
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import CorruptBinlog, PositionPurged
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.group_reader import group_pieces
from binlog_storage.log.pages import OfflinePages
from binlog_storage.log.partitions import Partition, partition_batches, partition_records, plan
from binlog_storage.log.ranges import GtidRange, TimeRange
from binlog_storage.testing.memory_disk import MemoryDisk
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage import groups, vectors
from tests.storage.groups import settle
from tests.storage.sizes import small

SOUND = [pytest.param(v, id=v["name"]) for v in vectors.sets()]


def used(pages: OfflinePages) -> list[int]:
    return [number for number in pages.numbers if pages.has_data(number)]


def by_records(
    pages: OfflinePages, partitions: Iterable[Partition]
) -> list[tuple[Position, bytes]]:
    return [
        (record.start, b"".join(group_pieces(pages, record)))
        for partition in partitions
        for record in partition_records(pages, partition)
    ]


def by_batches(pages: OfflinePages, partitions: Iterable[Partition]) -> list[bytes]:
    found: list[bytes] = []
    for partition in partitions:
        for batch in partition_batches(pages, partition):
            found += batch.groups
            if batch.large is not None:
                found.append(b"".join(batch.large.pieces()))
    return found


def random_cuts(pages: OfflinePages, rng: random.Random) -> list[Partition]:
    found = []
    for number in used(pages):
        header = pages.header(number)
        assert header is not None
        end = max(header.pages, 2)
        inner = rng.sample(range(2, end), min(rng.choice((0, 1, 5, end)), end - 2))
        cuts = sorted({1, end, *inner})
        found += [Partition(number, a, b) for a, b in pairwise(cuts)]
    return found


@pytest.mark.parametrize("vector", SOUND)
def test_vectors_cut_anywhere(vector: dict[str, Any]) -> None:
    """Files that MariaDB's readers have read: every cut gives every group once, in order."""
    disk = vectors.unpack(vector)
    whole = vectors.walk(disk).groups
    pages = OfflinePages(disk)
    rng = random.Random(vector["name"])
    for partitions in (plan(pages, used(pages)), *(random_cuts(pages, rng) for _ in range(2))):
        assert by_records(pages, partitions) == [(g.place, g.payload) for g in whole]
        assert by_batches(pages, partitions) == [g.payload for g in whole]
    pages.close()


def stored(made: list[groups.Group], interval: int = 2) -> OfflinePages:
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(8, interval))
    groups.append_all(engine, made)
    settle(engine)
    engine.close()
    return OfflinePages(disk)


@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from((0, 2, 4)))
@settings(max_examples=25)
def test_stores_cut_anywhere(seed: int, size: int, interval: int) -> None:
    rng = random.Random(seed)
    made = groups.history(rng, 60, size_max=150_000)
    pages = stored(made, interval or 2)
    for partitions in (
        plan(pages, used(pages), partition_bytes=size * 16384),
        random_cuts(pages, rng),
    ):
        found = [p for p in by_batches(pages, partitions) if groups.gtid_of(p) is not None]
        assert found == [g.payload for g in made if g.gtid is not None]


@given(st.integers(0, 2**32))
@settings(max_examples=25)
def test_ranges_leave_out_only_what_is_not_wanted(seed: int) -> None:
    rng = random.Random(seed)
    made = groups.history(rng, 80, size_max=30_000)
    gtids = [g.gtid for g in made if g.gtid is not None]
    pages = stored(made)

    def somewhere() -> SlavePosition:
        return BinlogState(gtids[: rng.randrange(1, len(gtids) + 1)]).position()

    start, stop = rng.choice((None, somewhere())), rng.choice((None, somewhere()))
    range_ = GtidRange(start, stop)
    everything = plan(pages, used(pages), partition_bytes=1)
    some = plan(pages, used(pages), partition_bytes=1, gtids=range_)
    assert set(some) <= set(everything)
    found = [groups.gtid_of(p) for p in by_batches(pages, some)]
    assert [g for g in found if g and range_.has(g)] == [g for g in gtids if range_.has(g)]


def test_state_records_prune() -> None:
    """Of a long store only the part around the range is left."""
    pages = stored(groups.simple(3000, size=500))
    everything = plan(pages, used(pages), partition_bytes=1)
    start, stop = SlavePosition.parse("0-1-1500"), SlavePosition.parse("0-1-1600")
    some = plan(pages, used(pages), partition_bytes=1, gtids=GtidRange(start, stop))
    assert 0 < len(some) < len(everything) / 5
    assert plan(pages, used(pages), gtids=GtidRange(SlavePosition.parse("0-1-9000"))) != everything


def test_partitions_begin_at_state_records() -> None:
    pages = stored(groups.simple(3000, size=500))
    partitions = plan(pages, used(pages), partition_bytes=4 * 16384)
    assert len(partitions) > 10
    assert all(p.first_page == 1 or p.first_page % 2 == 0 for p in partitions)
    assert all(p.end_page - p.first_page <= 4 for p in partitions)


def at(timestamp: int, group: groups.Group) -> groups.Group:
    return group._replace(payload=timestamp.to_bytes(4, "little") + group.payload[4:])


def test_times_prune() -> None:
    made = [at(10 * i, g) for i, g in enumerate(groups.simple(3000, size=500), 1)]
    pages = stored(made)
    everything = plan(pages, used(pages), partition_bytes=1)
    times = TimeRange(first=15_000, end=16_000, slack=100)
    some = plan(pages, used(pages), partition_bytes=1, times=times)
    assert 0 < len(some) < len(everything) / 5
    found = [EventHeader.parse(p[:19]).timestamp for p in by_batches(pages, some)]
    assert [t for t in found if times.has(t)] == list(range(15_000, 16_000, 10))
    late = plan(pages, used(pages), partition_bytes=1, times=TimeRange(first=90_000))
    assert late == everything[-1:]  # what comes last may be of any time
    no_slack = TimeRange(first=15_000, end=16_000, slack=None)
    assert plan(pages, used(pages), partition_bytes=1, times=no_slack) == everything


def test_purged_groups_are_told() -> None:
    pages = stored(groups.simple(3000, size=500))
    files = used(pages)
    assert len(files) > 3
    with pytest.raises(PositionPurged, match=r"0-1-\d+ is wanted"):
        plan(pages, files[2:], gtids=GtidRange(SlavePosition.parse("0-1-1")))
    assert plan(pages, files[2:])  # from the beginning, wherever that is
    assert plan(pages, files[2:], gtids=GtidRange(SlavePosition.parse("0-1-2999")))
    with pytest.raises(CorruptBinlog, match="missing"):
        plan(pages, [files[0], files[2]])


def test_a_limit_ends_the_last_partition() -> None:
    """What a server at work has published is all that is read."""
    made = groups.simple(300, size=500)
    pages = stored(made)
    places = [place for place, _ in by_records(pages, plan(pages, used(pages)))]
    limit = places[150]
    found = [
        record.start
        for partition in plan(pages, used(pages))
        for record in partition_records(pages, partition, limit)
    ]
    assert found == places[:150]


def test_gtid_range() -> None:
    range_ = GtidRange(SlavePosition.parse("0-1-10"), SlavePosition.parse("0-1-20,1-1-5"))
    assert [range_.has(Gtid(0, 2, n)) for n in (10, 11, 20, 21)] == [False, True, True, False]
    assert range_.has(Gtid(1, 1, 1))
    assert not range_.has(Gtid(2, 1, 1))
    assert GtidRange().has(Gtid(7, 7, 7))
