"""The promises of `storage.engine.BinlogEngine`, as tests that any engine must pass.

To hold a new engine to them, write a `Bench` for it and a class:

    class TestMyEngine(EngineContract):
        @pytest.fixture
        def bench(self) -> Bench: ...
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from typing import Protocol

import pytest

from protocol.gtid import Gtid, SlavePosition
from storage.engine import BinlogEngine, Position
from storage.errors import DiskError, PositionPurged, StoreFailed
from tests.storage.groups import (
    GTID_EVENT_BYTES,
    Group,
    append_all,
    beginning,
    filler,
    group,
    gtid_event,
    gtid_of,
    history,
    marker,
    payloads,
    read_all,
    read_from,
    simple,
    state_after,
    wanted,
)

FILE_BYTES = 4 * 16384  # of the smallest file there may be; engines under test should use it


class Bench(Protocol):
    """A place where one store lives, and what happens to it from outside."""

    def open(self) -> BinlogEngine:
        """Open the store, or begin it. The engine before was closed or crashed."""

    def crash(self) -> None:
        """The process of the open engine dies. Only what was durable is sure to stay."""

    def break_disk(self) -> None:
        """From now on every sync of the open engine fails."""

    def purge(self) -> None:
        """Remove the oldest part of the closed store, of a store of more than `3 * FILE_BYTES`."""


def position(*gtids: Gtid) -> SlavePosition:
    return SlavePosition(gtids)


def received(engine: BinlogEngine, at: SlavePosition) -> list[bytes]:
    """What a replica at that position gets."""
    start = engine.find_start(at)
    return list(wanted(read_from(engine, start.position), at, start.state))


def expected(groups: Sequence[Group], at: SlavePosition) -> list[bytes]:
    """The same by a plain walk over what was appended."""
    return list(wanted(payloads(groups), at, state_after(())))


def pieces_of(data: bytes, count: int) -> list[bytes]:
    """`data` in that many pieces, of rising size."""
    cuts = [len(data) * n * n // (count * count) for n in range(count + 1)]
    return [data[a:b] for a, b in itertools.pairwise(cuts)]


def filled(bench: Bench, groups: Sequence[Group]) -> BinlogEngine:
    engine = bench.open()
    append_all(engine, groups)
    engine.sync()
    return engine


class EngineContract:
    """Every test gets a `bench` with an empty place."""

    # --- order, wholeness, visibility ---

    def test_an_empty_store(self, bench: Bench) -> None:
        engine = bench.open()
        assert engine.durable_end == engine.written_end
        assert len(engine.binlog_state()) == 0
        assert engine.last_marker is None
        start = engine.find_start(SlavePosition())
        assert len(start.state) == 0
        batch = engine.read(start.position)
        assert batch.groups == []
        assert batch.start == start.position
        assert len(engine.files()) == 1
        engine.close()

    def test_groups_come_back_in_order_and_whole(self, bench: Bench, rng: random.Random) -> None:
        groups = history(rng, 120, size_max=3 * FILE_BYTES)
        engine = filled(bench, groups)
        assert read_all(engine) == payloads(groups)
        assert engine.binlog_state() == state_after(groups)
        engine.close()

    def test_ends_of_groups_rise(self, bench: Bench) -> None:
        engine = bench.open()
        ends = [engine.written_end]
        for payload, gtid in simple(300, size=900):
            ends.append(engine.append(payload, gtid))
            assert engine.written_end == ends[-1]
        assert ends == sorted(set(ends))
        engine.close()

    def test_nothing_is_visible_before_a_sync(self, bench: Bench) -> None:
        engine = filled(bench, simple(3))
        durable = engine.durable_end
        start = beginning(engine)
        append_all(engine, simple(200, first=4, size=2000))
        big = group(Gtid(0, 1, 999), 2 * FILE_BYTES)
        engine.append(*big)
        assert engine.durable_end == durable
        assert read_from(engine, start) == payloads(simple(3))
        assert engine.read(durable).groups == []
        assert engine.written_end > durable
        engine.sync()
        assert engine.durable_end == engine.written_end
        assert len(read_from(engine, start)) == 204
        engine.close()

    def test_the_state_runs_ahead_of_the_sync(self, bench: Bench) -> None:
        engine = bench.open()
        append_all(engine, simple(2))
        state = engine.binlog_state()
        assert state == state_after(simple(2))
        state.update(Gtid(9, 9, 9))
        assert engine.binlog_state() == state_after(simple(2)), "the state is not a copy"
        engine.close()

    def test_listeners_wake_after_the_mark_moved(self, bench: Bench) -> None:
        engine = bench.open()
        seen: list[Position] = []
        stop = engine.subscribe(lambda: seen.append(engine.durable_end))
        end = engine.append(*simple(1)[0])
        assert seen == []
        engine.sync()
        assert seen == [end]
        stop()
        engine.append(*simple(1, first=2)[0])
        engine.sync()
        assert seen == [end]
        engine.close()

    def test_a_listener_can_read_what_it_was_woken_for(self, bench: Bench) -> None:
        engine = bench.open()
        start = beginning(engine)
        got: list[list[bytes]] = []
        engine.subscribe(lambda: got.append(read_from(engine, start)))
        append_all(engine, simple(2))
        engine.sync()
        assert got[0] == payloads(simple(2))
        engine.close()

    def test_sync_from_many_threads(self, bench: Bench) -> None:
        engine = bench.open()
        failures: list[str] = []

        def work(domain: int) -> None:
            for payload, gtid in simple(20, domain=domain):
                end = engine.append(payload, gtid)
                engine.sync()
                if engine.durable_end < end:
                    failures.append(f"{gtid} is not durable after its sync")

        threads = [threading.Thread(target=work, args=(domain,)) for domain in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not failures
        found = read_all(engine)
        assert len(found) == 80
        for domain in range(4):
            mine = [p for p in found if (g := gtid_of(p)) is not None and g.domain_id == domain]
            assert mine == payloads(simple(20, domain=domain))
        engine.close()

    # --- batches ---

    def test_batches_from_the_same_start_are_equal(self, bench: Bench, rng: random.Random) -> None:
        engine = filled(bench, history(rng, 150, size_max=FILE_BYTES))
        start = beginning(engine)
        while (batch := engine.read(start)).groups:
            assert engine.read(start) == batch
            start = batch.end
        assert start == engine.durable_end
        engine.close()

    def test_batches_stay_the_same_when_more_is_appended(
        self, bench: Bench, rng: random.Random
    ) -> None:
        groups = history(rng, 150, size_max=FILE_BYTES)
        engine = filled(bench, groups[:100])
        start = beginning(engine)
        early = []
        while (batch := engine.read(start)).groups:
            early.append(batch)
            start = batch.end
        append_all(engine, groups[100:])
        engine.sync()
        for batch in early[:-1]:
            assert engine.read(batch.start) == batch
        engine.close()

    def test_readers_that_started_differently_meet(self, bench: Bench) -> None:
        groups = simple(1500, size=700)
        engine = bench.open()
        ends = [engine.append(*g) for g in groups]
        engine.sync()

        def cuts(start: Position) -> list[Position]:
            found = [start]
            while (batch := engine.read(start)).groups:
                start = batch.end
                found.append(start)
            return found

        reference = cuts(beginning(engine))
        for start in ends[3:400:37]:
            mine = cuts(start)
            meeting = [place for place in mine[1:] if place in reference]
            assert meeting, "never at the same place"
            tail = mine[mine.index(meeting[0]) :]
            assert tail == reference[reference.index(meeting[0]) :], "met, and parted again"
            # one batch may be needed to get to a common place, and one more if it began in the last one
            assert mine.index(meeting[0]) <= 2
        engine.close()

    # --- sizes ---

    @pytest.mark.parametrize("extra", [-1, 0, 1, 2])
    def test_sizes_around_the_piece_limit(self, bench: Bench, extra: int) -> None:
        engine = bench.open()
        groups = [
            group(Gtid(0, 1, 1)),
            group(Gtid(0, 1, 2), engine.cache_bytes + extra),
            group(Gtid(0, 1, 3), engine.cache_bytes + GTID_EVENT_BYTES + extra),
            group(Gtid(0, 1, 4)),
        ]
        append_all(engine, groups)
        engine.sync()
        assert read_all(engine) == payloads(groups)
        engine.close()

    def test_groups_of_up_to_three_files(self, bench: Bench) -> None:
        groups = [
            group(Gtid(0, 1, seq_no), size)
            for seq_no, size in enumerate(
                (200, FILE_BYTES // 2, FILE_BYTES - 100, 2 * FILE_BYTES, 300, 3 * FILE_BYTES), 1
            )
        ]
        engine = filled(bench, groups)
        assert read_all(engine) == payloads(groups)
        engine.close()
        again = bench.open()
        assert read_all(again) == payloads(groups)
        assert again.binlog_state() == state_after(groups)
        again.close()

    # --- groups that are still open ---

    def test_open_groups_interleave(self, bench: Bench) -> None:
        engine = bench.open()
        one, two = Gtid(0, 1, 1), Gtid(1, 1, 1)
        large = [group(two, 900), group(one, 150_000)]
        pieces = [
            pieces_of(large[1].payload[GTID_EVENT_BYTES:], 12),
            pieces_of(large[0].payload[GTID_EVENT_BYTES:], 12),
        ]
        first, second, third = engine.begin(), engine.begin(), engine.begin()
        for number in range(12):
            first.spill(pieces[0][number])
            third.spill(filler(2500, f"never {number}"))
            second.spill(memoryview(pieces[1][number]))
            engine.append(*group(Gtid(2, 1, number + 1), 150))
            if number % 4 == 0:
                engine.sync()
        assert len(engine.binlog_state()) == 1, "an open group is no part of the state"
        second.commit(gtid_event(two), two)
        third.rollback()
        first.commit(gtid_event(one), one)
        engine.sync()
        small = [group(Gtid(2, 1, number + 1), 150) for number in range(12)]
        assert read_all(engine) == payloads(small + large)
        assert engine.binlog_state().last(0) == one
        engine.close()
        again = bench.open()
        assert read_all(again) == payloads(small + large)
        again.close()

    def test_a_group_that_spilled_nothing(self, bench: Bench) -> None:
        engine = bench.open()
        gtid = Gtid(0, 1, 1)
        writer = engine.begin()
        writer.spill(b"")
        writer.commit(gtid_event(gtid), gtid)
        engine.sync()
        assert read_all(engine) == [gtid_event(gtid)]
        engine.close()

    def test_no_use_after_the_end(self, bench: Bench) -> None:
        engine = bench.open()
        writer = engine.begin()
        writer.spill(b"lost")
        writer.rollback()
        writer.rollback()
        with pytest.raises(RuntimeError):
            writer.spill(b"more")
        with pytest.raises(RuntimeError):
            writer.commit(gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
        engine.sync()
        assert read_all(engine) == []
        assert len(engine.binlog_state()) == 0
        engine.close()

    def test_an_open_group_is_not_visible(self, bench: Bench) -> None:
        engine = filled(bench, simple(2))
        writer = engine.begin()
        writer.spill(filler(2 * FILE_BYTES, "open"))
        engine.sync()
        assert read_all(engine) == payloads(simple(2))
        writer.rollback()
        engine.append(*simple(1, first=3)[0])
        engine.sync()
        assert read_all(engine) == payloads(simple(3))
        engine.close()

    # --- searching ---

    def test_find_start_for_known_positions(self, bench: Bench) -> None:
        groups = simple(400, size=900)
        engine = filled(bench, groups)
        for seq_no in (1, 2, 57, 58, 59, 200, 399, 400):
            at = position(Gtid(0, 1, seq_no))
            assert received(engine, at) == payloads(groups[seq_no:])
        assert received(engine, SlavePosition()) == payloads(groups)
        engine.close()

    def test_find_start_with_large_groups(self, bench: Bench, rng: random.Random) -> None:
        """Large groups, so that the state records lie inside of records."""
        groups = [group(Gtid(0, 1, seq_no), rng.randrange(8000, 32000)) for seq_no in range(1, 90)]
        engine = filled(bench, groups)
        for seq_no in range(1, 90):
            at = position(Gtid(0, 1, seq_no))
            assert received(engine, at) == payloads(groups[seq_no:])
        engine.close()

    def test_find_start_with_several_domains(self, bench: Bench, rng: random.Random) -> None:
        groups = history(rng, 400, size_max=FILE_BYTES, domains=3, servers=2)
        engine = filled(bench, groups)
        for count in (0, 1, 5, 50, 199, 300, 400):
            at = state_after(groups[:count]).position()
            assert received(engine, at) == expected(groups, at)
            assert received(engine, at) == [p for p, g in groups[count:] if g is not None]
        engine.close()

    def test_find_start_for_uneven_positions(self, bench: Bench, rng: random.Random) -> None:
        """Positions that were never a point of this history: each domain somewhere else, or left out."""
        groups = history(rng, 300, size_max=2000, domains=4, servers=1)
        engine = filled(bench, groups)
        for _ in range(25):
            gtids: dict[int, Gtid] = {}
            for _, gtid in rng.sample(groups, 12):
                if gtid is not None and rng.random() < 0.7:
                    gtids[gtid.domain_id] = gtid
            at = SlavePosition(gtids.values())
            assert received(engine, at) == expected(groups, at)
        engine.close()

    def test_find_start_for_a_domain_of_later(self, bench: Bench) -> None:
        groups = simple(300, size=900)
        engine = filled(bench, groups)
        later = Gtid(7, 1, 5)
        assert received(engine, position(Gtid(0, 1, 250), later)) == payloads(groups[250:])
        assert received(engine, position(later)) == payloads(groups)
        engine.close()

    def test_find_start_sees_only_what_is_durable(self, bench: Bench) -> None:
        engine = filled(bench, simple(100, size=900))
        append_all(engine, simple(300, first=101, size=900))
        start = engine.find_start(position(Gtid(0, 1, 400)))
        assert start.position <= engine.durable_end
        assert received(engine, position(Gtid(0, 1, 400))) == []
        assert received(engine, position(Gtid(0, 1, 99))) == payloads(
            simple(1, first=100, size=900)
        )
        engine.close()

    def test_the_state_at_the_start_is_what_was_logged_before(
        self, bench: Bench, rng: random.Random
    ) -> None:
        groups = history(rng, 300, size_max=20000)
        engine = filled(bench, groups)
        for count in (0, 40, 150, 290):
            start = engine.find_start(state_after(groups[:count]).position())
            left = len(read_from(engine, start.position))
            gone = groups[: len(groups) - left]
            # A lone first GTID with number 1 is left out of the state, so that a replica may begin with it.
            assert start.state == state_after(gone) or len(state_after(gone)) == 1
        engine.close()

    def test_purged(self, bench: Bench) -> None:
        groups = simple(400, size=1000)
        filled(bench, groups).close()
        bench.purge()
        engine = bench.open()
        with pytest.raises(PositionPurged):
            engine.find_start(SlavePosition())
        with pytest.raises(PositionPurged):
            engine.find_start(position(Gtid(0, 1, 1)))
        assert received(engine, position(Gtid(0, 1, 390))) == payloads(groups[390:])
        assert engine.binlog_state() == state_after(groups)
        engine.append(*simple(1, first=401)[0])
        engine.sync()
        assert received(engine, position(Gtid(0, 1, 400))) == payloads(simple(1, first=401))
        engine.close()

    # --- start markers ---

    def test_last_marker(self, bench: Bench) -> None:
        engine = bench.open()
        engine.append(*marker(1))
        assert engine.last_marker == marker(1).payload
        engine.append(*marker(2))
        assert engine.last_marker == marker(2).payload
        engine.sync()
        assert engine.last_marker == marker(2).payload
        engine.close()
        engine = bench.open()
        assert engine.last_marker == marker(2).payload
        engine.append(*simple(1)[0])
        assert engine.last_marker is None
        engine.sync()
        engine.close()
        engine = bench.open()
        assert engine.last_marker is None
        engine.append(*marker(3))
        writer = engine.begin()
        writer.spill(b"open")
        assert engine.last_marker == marker(3).payload
        writer.commit(gtid_event(Gtid(0, 1, 2)), Gtid(0, 1, 2))
        assert engine.last_marker is None
        engine.close()

    def test_markers_are_no_part_of_the_state(self, bench: Bench) -> None:
        groups = [marker(0), *simple(2), marker(1), marker(2)]
        engine = filled(bench, groups)
        assert engine.binlog_state() == state_after(simple(2))
        assert read_all(engine) == payloads(groups)
        engine.close()

    # --- reopening ---

    def test_reopening_continues_where_it_was(self, bench: Bench, rng: random.Random) -> None:
        groups = history(rng, 200, size_max=30000)
        at = 0
        while at < len(groups):
            engine = bench.open()
            assert engine.durable_end == engine.written_end
            assert read_all(engine) == payloads(groups[:at])
            assert engine.binlog_state() == state_after(groups[:at])
            assert str(engine.binlog_state().position()) == str(state_after(groups[:at]).position())
            step = rng.randrange(1, 40)
            append_all(engine, groups[at : at + step])
            at += step
            engine.close()

    def test_reopening_changes_nothing(self, bench: Bench) -> None:
        engine = filled(bench, simple(30))
        files, status = engine.files(), engine.status()
        engine.close()
        for _ in range(3):
            engine = bench.open()
            assert engine.files() == files
            assert engine.status() == status
            engine.close()

    def test_several_reopenings_stay_in_the_same_file(self, bench: Bench) -> None:
        for seq_no in range(1, 8):
            engine = bench.open()
            engine.append(*simple(1, first=seq_no)[0])
            assert len(engine.files()) == 1
            engine.close()
        engine = bench.open()
        assert read_all(engine) == payloads(simple(7))
        assert received(engine, position(Gtid(0, 1, 3))) == payloads(simple(4, first=4))
        engine.close()

    # --- what goes wrong ---

    def test_a_crash_keeps_what_was_synced(self, bench: Bench) -> None:
        engine = filled(bench, simple(50, size=3000))
        append_all(engine, simple(70, first=51, size=3000))
        bench.crash()
        again = bench.open()
        found = read_all(again)
        assert len(found) >= 50
        assert found == payloads(simple(120, size=3000))[: len(found)]
        assert again.binlog_state() == state_after(simple(len(found), size=3000))
        again.close()

    def test_a_broken_disk_is_not_written_again(self, bench: Bench) -> None:
        engine = filled(bench, simple(10))
        durable = engine.durable_end
        writer = engine.begin()
        writer.spill(b"before")
        bench.break_disk()
        engine.append(*simple(1, first=11)[0])
        with pytest.raises(DiskError):
            engine.sync()
        with pytest.raises(StoreFailed):
            engine.append(*simple(1, first=12)[0])
        with pytest.raises(StoreFailed):
            engine.append(*group(Gtid(0, 1, 12), 2 * FILE_BYTES))
        with pytest.raises(StoreFailed):
            writer.spill(b"after")
        with pytest.raises(StoreFailed):
            writer.commit(gtid_event(Gtid(0, 1, 12)), Gtid(0, 1, 12))
        with pytest.raises(StoreFailed):
            engine.sync()
        assert engine.durable_end == durable
        assert read_all(engine) == payloads(simple(10)), "what is durable is still served"
        engine.close()

    def test_what_it_says_of_its_files(self, bench: Bench) -> None:
        engine = filled(bench, simple(300, size=1000))
        files = engine.files()
        name, offset = engine.status()
        assert files[-1].name == name
        assert offset > 0
        assert all(file.size > 0 for file in files)
        assert [file.name for file in files] == sorted(file.name for file in files)
        assert isinstance(engine.is_recent(engine.durable_end), bool)
        engine.close()
