"""Groups that are read piece by piece: a part of `EngineContract`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from binlog_protocol.groups.stored_group import group_gtid
from binlog_storage.engine import BinlogEngine, LargeGroup, PlacedBatch, PlacedGroup, Position

from tests.storage.contract.bench import FILE_BYTES, Bench, filled
from tests.storage.groups import Group, append_all, beginning, history, payloads, simple

LARGE = 40_000


def whole(large: LargeGroup) -> bytes:
    return b"".join(large.pieces())


def batches(engine: BinlogEngine) -> Iterator[PlacedBatch]:
    """All, each read in both ways."""
    start = beginning(engine)
    while start < engine.durable_end:
        batch = engine.read_placed(start)
        same = engine.read(start)
        assert same.large is None or not same.groups
        assert batch.large is None or not batch.groups
        assert batch.end > start
        if batch.large is not None:
            assert same.large is not None
            assert (same.end, same.heads) == (batch.end, [batch.large.head])
            assert whole(same.large) == whole(batch.large)
        yield batch
        start = batch.end


class LargeContract:
    """Sizes above `large_group_bytes`, from one byte more to several files."""

    @pytest.fixture
    def groups(self, rng: random.Random) -> list[Group]:
        edges = [simple(1, first=n, domain=9, size=LARGE + n - 2)[0] for n in range(1, 9)]
        return [*history(rng, 60, size_max=3 * FILE_BYTES), *edges, *simple(2, domain=8)]

    def test_large_groups_are_batches_of_their_own(self, bench: Bench, groups: list[Group]) -> None:
        engine = filled(bench, groups)
        engine.large_group_bytes = LARGE
        found: list[bytes] = []
        for batch in batches(engine):
            if batch.large is not None:
                found.append(whole(batch.large))
                assert len(found[-1]) > LARGE
                assert found[-1].startswith(batch.large.head)
                assert group_gtid(batch.large.head) == group_gtid(found[-1])
                assert batch.large.end <= batch.end
            assert all(len(group.payload) <= LARGE for group in batch.groups)
            found += [group.payload for group in batch.groups]
        assert found == payloads(groups)
        engine.close()

    def test_places_are_those_of_groups_in_memory(self, bench: Bench, groups: list[Group]) -> None:
        engine = filled(bench, groups)
        expected = [group for batch in batches(engine) for group in batch.groups]
        engine.large_group_bytes = LARGE
        found: list[PlacedGroup] = []
        for batch in batches(engine):
            found += batch.groups
            if batch.large is not None:
                found.append(PlacedGroup(whole(batch.large), batch.large.end))
        assert found == expected
        engine.close()

    def test_what_lies_around_a_place(self, bench: Bench, groups: list[Group]) -> None:
        engine = filled(bench, groups)
        places = [group.end for batch in batches(engine) for group in batch.groups]
        inside = [place._replace(offset=place.offset - 1) for place in places]
        expected = [engine.locate(place) for place in places + inside]
        engine.large_group_bytes = LARGE
        seen = 0
        for place, known in zip(places + inside, expected, strict=True):
            found = engine.locate(place)
            if isinstance(found.group, LargeGroup):
                seen += 1
                found = found._replace(group=PlacedGroup(whole(found.group), found.group.end))
            assert found == known
        assert seen > 5
        engine.close()

    def test_pieces_are_small_and_may_be_read_again(self, bench: Bench) -> None:
        size = 5 * FILE_BYTES
        engine = filled(bench, simple(1, size=size))
        append_all(engine, simple(1, first=2))
        engine.sync()
        engine.large_group_bytes = LARGE
        large = engine.read(beginning(engine)).large
        assert large is not None
        assert [sum(map(len, large.pieces())) for _ in range(2)] == [size, size]
        assert max(map(len, large.pieces())) <= FILE_BYTES // 2
        one, other = large.pieces(), large.pieces()
        assert next(one) == next(other)
        assert whole(large) == simple(1, size=size)[0].payload
        engine.close()

    def test_a_batch_ends_in_front_of_it(self, bench: Bench) -> None:
        engine = filled(bench, simple(3))
        end = engine.append(*simple(1, first=4, size=2 * LARGE)[0])
        append_all(engine, simple(1, first=5))
        engine.sync()
        engine.large_group_bytes = LARGE
        first = engine.read(beginning(engine))
        assert (len(first.groups), first.large) == (3, None)
        second = engine.read(first.end)
        assert (second.groups, second.end) == ([], end)
        assert second.large is not None
        assert engine.read(second.end).groups == payloads(simple(1, first=5))
        assert engine.read(Position(*first.end)) == second
        engine.close()
