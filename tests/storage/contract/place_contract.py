"""Where groups lie, and what lies around a place: for those who tell positions."""

from __future__ import annotations

import random

import pytest
from binlog_storage.engine import BinlogEngine, PlacedBatch, PlacedGroup, Position
from binlog_storage.errors import PositionPurged

from tests.storage.contract.bench import FILE_BYTES, Bench, filled, pieces_of
from tests.storage.groups import (
    Group,
    append_all,
    beginning,
    events,
    gtid_event,
    history,
    payloads,
    simple,
)


def placed(engine: BinlogEngine, start: Position) -> list[PlacedBatch]:
    """All batches from `start` to the durable end."""
    found: list[PlacedBatch] = []
    while start < engine.durable_end:
        batch = engine.read_placed(start)
        assert batch.start == start
        assert batch.end > start
        found.append(batch)
        start = batch.end
    assert start == engine.durable_end
    return found


def groups_of(batches: list[PlacedBatch]) -> list[PlacedGroup]:
    return [group for batch in batches for group in batch.groups]


class PlaceContract:
    """Part of `EngineContract`."""

    def test_placed_groups_are_all_groups_in_order(self, bench: Bench, rng: random.Random) -> None:
        groups = history(rng, 150, size_max=FILE_BYTES)
        engine = filled(bench, groups)
        found = groups_of(placed(engine, beginning(engine)))
        assert [group.payload for group in found] == payloads(groups)
        engine.close()

    def test_places_rise_inside_a_file_and_files_one_after_the_other(
        self, bench: Bench, rng: random.Random
    ) -> None:
        engine = filled(bench, history(rng, 200, size_max=FILE_BYTES))
        last = beginning(engine)
        for batch in placed(engine, last):
            assert last.file_no == batch.start.file_no
            for group in batch.groups:
                assert group.end.file_no == batch.start.file_no, "a batch never leaves its file"
                assert group.end > last
                last = group.end
            assert batch.end >= last
            last = batch.end
        engine.close()

    def test_the_place_of_a_group_is_the_same_for_every_reader(
        self, bench: Bench, rng: random.Random
    ) -> None:
        engine = filled(bench, history(rng, 60, size_max=FILE_BYTES // 2))
        batches = placed(engine, beginning(engine))
        every = groups_of(batches)
        for index in rng.sample(range(len(every) - 1), 20):
            start = every[index].end
            assert groups_of(placed(engine, start)) == every[index + 1 :]
        for batch in batches:
            assert engine.read_placed(batch.start) == batch
        engine.close()

    def test_places_stay_over_a_restart(self, bench: Bench, rng: random.Random) -> None:
        groups = history(rng, 80, size_max=FILE_BYTES // 2)
        engine = filled(bench, groups[:50])
        before = groups_of(placed(engine, beginning(engine)))
        engine.close()
        engine = bench.open()
        append_all(engine, groups[50:])
        engine.sync()
        assert groups_of(placed(engine, beginning(engine)))[: len(before)] == before
        engine.close()

    def test_the_end_of_a_group_is_a_border_before_the_next(
        self, bench: Bench, rng: random.Random
    ) -> None:
        engine = filled(bench, history(rng, 60, size_max=FILE_BYTES // 2))
        every = groups_of(placed(engine, beginning(engine)))
        for group, following in zip(every, [*every[1:], None], strict=True):
            found = engine.locate(group.end)
            assert found.border
            if following is None or following.end.file_no != group.end.file_no:
                assert found.group is None
            else:
                assert found.group == following
                assert (
                    groups_of(placed(engine, found.after))[:1]
                    == groups_of(placed(engine, following.end))[:1]
                )
        engine.close()

    def test_inside_a_group_its_own_end_comes_next(self, bench: Bench, rng: random.Random) -> None:
        engine = filled(bench, history(rng, 60, size_max=FILE_BYTES // 2))
        batches = placed(engine, beginning(engine))
        for batch in batches:
            begin = batch.start
            for group in batch.groups:
                inside = begin._replace(offset=rng.randrange(begin.offset, group.end.offset))
                assert engine.locate(inside).group == group
                begin = group.end
        engine.close()

    def test_spilled_groups_have_the_place_of_their_commit(self, bench: Bench) -> None:
        engine = bench.open()
        append_all(engine, simple(3))
        big = Group(gtid_event(simple(1, first=4)[0].gtid) + events(FILE_BYTES, "big"), None)  # type: ignore[arg-type]
        writer = engine.begin()
        for piece in pieces_of(big.payload[38:], 9):
            writer.spill(piece)
        append_all(engine, simple(2, first=1, domain=7))
        gtid = simple(1, first=4)[0].gtid
        assert gtid is not None
        end = writer.commit(big.payload[:38], gtid)
        engine.sync()
        found = groups_of(placed(engine, beginning(engine)))
        assert [group.payload for group in found[-3:]] == [
            *payloads(simple(2, first=1, domain=7)),
            big.payload,
        ]
        assert found[-1].end <= end
        engine.close()

    def test_nothing_behind_the_durable_end_is_located(self, bench: Bench) -> None:
        engine = filled(bench, simple(3))
        end = engine.durable_end
        append_all(engine, simple(3, first=4))
        found = engine.locate(end)
        assert found.border
        assert found.group is None
        engine.close()

    def test_places_far_beyond_the_end_are_none(self, bench: Bench) -> None:
        engine = filled(bench, simple(300, size=1000))
        for file_no in {beginning(engine).file_no, engine.durable_end.file_no}:
            for offset in (1 << 40, 1 << 70):
                found = engine.locate(Position(file_no, offset))
                assert not found.border
                assert found.group is None
        engine.close()

    def test_a_place_that_is_gone(self, bench: Bench) -> None:
        engine = filled(bench, simple(600, size=1000))
        gone = beginning(engine)
        engine.close()
        bench.purge()
        engine = bench.open()
        with pytest.raises(PositionPurged):
            engine.locate(gone)
        with pytest.raises(PositionPurged):
            engine.locate(Position(4711, gone.offset))
        engine.close()
