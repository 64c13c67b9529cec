"""The promises of `binlog_storage.engine.BinlogEngine`, as tests that any engine must pass.

To hold a new engine to them, write a `Bench` for it and a class:

    class TestMyEngine(EngineContract):
        @pytest.fixture
        def bench(self) -> Bench: ...

Here: order, wholeness, visibility, batches, reopening, failures. Open groups and XA transactions stand in
`group_contract.py`, groups too large for memory in `large_contract.py`, searching in `search_contract.py`, what is done
to files in `file_contract.py`, places in `place_contract.py`; `EngineContract` has them all.
"""

from __future__ import annotations

import contextlib
import random
import threading

import pytest
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.engine import BinlogEngine, Position
from binlog_storage.errors import DiskError, StorageError, StoreFailed

from tests.storage.contract.bench import (
    FILE_BYTES,
    Bench,
    filled,
    position,
    received,
)
from tests.storage.contract.file_contract import FileContract
from tests.storage.contract.group_contract import GroupContract
from tests.storage.contract.large_contract import LargeContract
from tests.storage.contract.place_contract import PlaceContract
from tests.storage.contract.search_contract import SearchContract
from tests.storage.groups import (
    GTID_EVENT_BYTES,
    Group,
    append_all,
    append_run,
    beginning,
    events,
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
)

__all__ = ["FILE_BYTES", "Bench", "EngineContract"]


class EngineContract(GroupContract, FileContract, LargeContract, PlaceContract, SearchContract):
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

    def test_runs_are_groups_in_order(self, bench: Bench) -> None:
        engine = bench.open()
        groups: list[Group] = []
        # In pages and across them, larger than a file, of a server that is new, and once more.
        for count, size, domain in (
            (1, 100, 0),
            (400, 90, 0),
            (30, 9000, 0),
            (3, 300, 7),
            (5, 90, 0),
        ):
            made = simple(count, first=len(groups) + 1, domain=domain, size=size)
            append_run(engine, made)
            groups += made
        large = simple(3, first=len(groups) + 1, size=2 * FILE_BYTES)
        append_run(engine, large)
        groups += large
        engine.sync()
        assert read_all(engine) == payloads(groups)
        assert engine.binlog_state() == state_after(groups)
        engine.close()
        engine = bench.open()
        assert read_all(engine) == payloads(groups)
        engine.close()

    def test_what_a_run_leaves_to_append(self, bench: Bench) -> None:
        """A group larger than `cache_bytes`; groups behind it come when it was appended."""
        engine = bench.open()
        groups = [
            *simple(2, size=200),
            *simple(1, first=3, size=engine.cache_bytes + 1),
            *simple(2, first=4, size=200),
        ]
        run = GroupRun.of([g.payload for g in groups], [g.gtid for g in groups if g.gtid])
        assert as_far_as_it_goes(engine, run) == 2
        assert as_far_as_it_goes(engine, run, 2) == 2
        engine.append(*groups[2])
        assert as_far_as_it_goes(engine, run, 3) == 5
        engine.sync()
        assert read_all(engine) == payloads(groups)
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
        append_all(engine, simple(3, first=4, size=2000))
        assert engine.durable_end == durable
        assert read_from(engine, start) == payloads(simple(3))
        assert engine.read(durable).groups == []
        assert engine.written_end > durable
        engine.sync()
        assert engine.durable_end == engine.written_end
        assert len(read_from(engine, start)) == 6
        engine.close()

    def test_what_is_visible_is_durable(self, bench: Bench) -> None:
        """An engine may make things durable by itself, when it needs the room; readers see no more than that."""
        engine = filled(bench, simple(3))
        start = beginning(engine)
        ends = []
        big = group(Gtid(0, 1, 999), 2 * FILE_BYTES)
        for payload, gtid in [*simple(200, first=4, size=2000), big]:
            ends.append(engine.append(payload, gtid))
            assert engine.durable_end <= engine.written_end
        seen = read_from(engine, start)
        assert seen == payloads([*simple(3), *simple(200, first=4, size=2000)])[: len(seen)]
        assert len(seen) == 3 + sum(end <= engine.durable_end for end in ends)
        bench.crash()
        engine = bench.open()
        assert read_from(engine, start)[: len(seen)] == seen
        engine.close()

    def test_the_state_runs_ahead_of_the_sync(self, bench: Bench) -> None:
        engine = bench.open()
        append_all(engine, simple(2))
        state = engine.binlog_state()
        assert state == state_after(simple(2))
        state.update(Gtid(9, 9, 9))
        assert engine.binlog_state() == state_after(simple(2)), "the state is not a copy"
        for domain_id in (0, 1000):
            alone = engine.binlog_state(domain_id)
            assert alone == engine.binlog_state().of_domain(domain_id)
            alone.update(Gtid(domain_id, 9, 9))
        assert engine.binlog_state() == state_after(simple(2)), "that of a domain is not a copy"
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

    def test_who_waits_for_the_disk_alone_is_told_first(self, bench: Bench) -> None:
        engine = filled(bench, simple(2))
        told: list[str] = []
        engine.subscribe(lambda: told.append("the mark has moved"))
        engine.sync(lambda: told.append("nothing was to be done"))
        assert told == []
        engine.append(*simple(1, first=3)[0])

        def durable() -> None:
            told.append("durable")
            bench.crash()

        with contextlib.suppress(StorageError):  # what is behind it finds no disk any more
            engine.sync(durable)
        assert told[0] == "durable"
        assert told.count("durable") == 1
        again = bench.open()
        assert read_all(again) == payloads(simple(3))
        again.close()

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

    # --- start markers ---

    def test_a_marker_is_no_commit(self, bench: Bench) -> None:
        engine = bench.open()
        for number in (1, 2, 3):
            engine.append(*marker(number))
            engine.append(*simple(number)[-1])
            engine.sync()
            # The one of the tests counts none.
            assert engine.counters().get("Binlog_commits", number) == number

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
        writer.spill(events(30, "open"))
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
        files, status = engine.files(), engine.written_end
        engine.close()
        for _ in range(3):
            engine = bench.open()
            assert engine.files() == files
            assert engine.written_end == status
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
        told: list[str] = []
        with pytest.raises(DiskError):
            engine.sync(lambda: told.append("durable"))
        with pytest.raises(StoreFailed):
            engine.append(*simple(1, first=12)[0])
        with pytest.raises(StoreFailed):
            engine.append(*group(Gtid(0, 1, 12), 2 * FILE_BYTES))
        with pytest.raises(StoreFailed):
            writer.spill(b"after")
        with pytest.raises(StoreFailed):
            writer.commit(gtid_event(Gtid(0, 1, 12)), Gtid(0, 1, 12))
        with pytest.raises(StoreFailed):
            engine.sync(lambda: told.append("durable"))
        assert not told
        assert engine.durable_end == durable
        assert read_all(engine) == payloads(simple(10)), "what is durable is still served"
        engine.close()

    def test_what_it_says_of_its_files(self, bench: Bench) -> None:
        engine = filled(bench, simple(300, size=1000))
        files = engine.files()
        end = engine.written_end
        assert files[-1].number == end.file_no
        assert end.offset > 0
        assert all(file.size > 0 for file in files)
        assert [file.number for file in files] == sorted(file.number for file in files)
        assert isinstance(engine.is_recent(engine.durable_end), bool)
        engine.close()


def as_far_as_it_goes(engine: BinlogEngine, run: GroupRun, index: int = 0) -> int:
    """An engine may end a call early, as it gives others their turn."""
    while (after := engine.append_run(run, index)) > index:
        index = after
    return index
