"""The promises of `binlog_storage.engine.GroupWriter`, and of XA transactions: a part of `EngineContract`."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.engine import BinlogEngine, GroupWriter, Xid
from binlog_storage.errors import DiskError, StoreFailed, XaStateError

from tests.storage.contract.bench import FILE_BYTES, Bench, filled, pieces_of
from tests.storage.groups import (
    COMMIT_EVENT,
    GTID_EVENT_BYTES,
    begin_event,
    events,
    filler,
    group,
    gtid_event,
    payloads,
    read_all,
    simple,
    state_after,
)

ONE, TWO = Gtid(0, 1, 1), Gtid(1, 1, 1)
NAME, OTHER = Xid(1, b"one", b"branch"), Xid(7, b"\0\xffother")

# sizes of the pieces of the statement list, and of the transactional list
TWO_LISTS = {
    "statement only": ([19, 2000], []),
    "both small": ([19], [20]),
    "both of several pieces": ([100, 7000, 19, 30_000], [25, 20_000, 25]),
    "both larger than a file": ([90_000], [90_000]),
}


def spilled_group(engine: BinlogEngine, data: bytes) -> GroupWriter:
    writer = engine.begin()
    writer.spill(data)
    return writer


class GroupContract:
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
        writer.commit(group(gtid, 300).payload, gtid)  # all of it with its first event
        engine.sync()
        assert read_all(engine) == [group(gtid, 300).payload]
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

    # --- two lists ---

    @pytest.mark.parametrize(
        ("statement", "transactional"), [pytest.param(*v, id=k) for k, v in TWO_LISTS.items()]
    )
    def test_statement_events_come_first(
        self, bench: Bench, statement: list[int], transactional: list[int]
    ) -> None:
        engine = bench.open()
        writer = engine.begin()
        expected = [b"", b""]
        for turn in range(max(len(statement), len(transactional))):
            for number, sizes in enumerate((transactional, statement)):
                if turn < len(sizes):
                    piece = events(sizes[turn], f"{number} {turn}")
                    writer.spill(piece, statement=bool(number))
                    expected[number] += piece
        writer.spill(COMMIT_EVENT, statement=not transactional)
        expected[not transactional] += COMMIT_EVENT
        writer.commit(begin_event(ONE), ONE)
        engine.sync()
        whole = [begin_event(ONE) + expected[1] + expected[0]]
        assert read_all(engine) == whole
        engine.close()
        engine = bench.open()
        assert read_all(engine) == whole
        engine.close()

    # --- marks ---

    def test_going_back_to_any_mark(self, bench: Bench, rng: random.Random) -> None:
        engine = bench.open()
        expected = []
        for number in range(1, 26):
            writer = engine.begin()
            statement, data = b"", b""
            marks = [(writer.mark(), b"")]
            for turn in range(rng.randrange(1, 14)):
                piece = events(rng.choice((19, 30, 700, 9000)), f"{number} {turn}")
                what = rng.random()
                if what < 0.2:
                    writer.spill(piece, statement=True)
                    statement += piece
                elif what < 0.6:
                    writer.spill(piece)
                    data += piece
                elif what < 0.8:
                    marks.append((writer.mark(), data))
                else:
                    mark, data = rng.choice(marks)
                    writer.rewind(mark)
                assert writer.spilled == bool(statement or data)
            gtid = Gtid(0, 1, number)
            writer.spill(COMMIT_EVENT)
            writer.commit(begin_event(gtid), gtid)
            expected.append(begin_event(gtid) + statement + data + COMMIT_EVENT)
        engine.sync()
        assert read_all(engine) == expected
        engine.close()

    def test_a_mark_is_used_again(self, bench: Bench) -> None:
        engine = bench.open()
        writer = spilled_group(engine, events(40, "kept"))
        mark = writer.mark()
        for turn in range(9):
            writer.spill(events(1000 * turn, f"lost {turn}"))
            writer.rewind(mark)
        writer.spill(events(50, "more") + COMMIT_EVENT)
        writer.commit(begin_event(ONE), ONE)
        engine.sync()
        whole = begin_event(ONE) + events(40, "kept") + events(50, "more") + COMMIT_EVENT
        assert read_all(engine) == [whole]
        engine.close()

    # --- XA ---

    @pytest.mark.parametrize("size", [0, 19, 500, FILE_BYTES, 3 * FILE_BYTES])
    @pytest.mark.parametrize("reopen", [False, True], ids=["at once", "after a restart"])
    def test_prepared_then_committed(self, bench: Bench, size: int, reopen: bool) -> None:
        engine = filled(bench, simple(2))
        data = events(size, "xa") + COMMIT_EVENT
        end = spilled_group(engine, data).prepare(NAME, 2)
        engine.sync()
        assert engine.durable_end >= end
        assert engine.prepared() == [NAME]
        assert read_all(engine) == payloads(simple(2))
        assert engine.binlog_state() == state_after(simple(2))
        if reopen:
            engine.close()
            engine = bench.open()
            assert engine.prepared() == [NAME]
        engine.commit_prepared(NAME, begin_event(TWO), TWO)
        assert engine.prepared() == []
        assert engine.last_marker is None
        engine.append(*group(Gtid(0, 1, 3), 200))
        engine.sync()
        expected = [
            *payloads(simple(2)),
            begin_event(TWO) + data,
            group(Gtid(0, 1, 3), 200).payload,
        ]
        for _ in range(2):
            assert read_all(engine) == expected
            assert engine.prepared() == []
            assert engine.binlog_state().last(1) == TWO
            engine.close()
            engine = bench.open()
        engine.close()

    def test_prepared_then_rolled_back(self, bench: Bench) -> None:
        engine = filled(bench, simple(1))
        spilled_group(engine, events(FILE_BYTES, "xa")).prepare(NAME)
        end = engine.rollback_prepared(NAME)
        assert engine.prepared() == []
        engine.sync()
        assert engine.durable_end >= end
        for _ in range(2):
            assert read_all(engine) == payloads(simple(1))
            assert engine.prepared() == []
            assert engine.binlog_state() == state_after(simple(1))
            engine.close()
            engine = bench.open()
        engine.close()

    def test_many_prepared_in_any_order(self, bench: Bench, rng: random.Random) -> None:
        engine = bench.open()
        names = [Xid(number % 3, f"gtrid {number}".encode()) for number in range(30)]
        data = {name: events(rng.choice((0, 40, 5000)), str(name)) + COMMIT_EVENT for name in names}
        for name in names:
            spilled_group(engine, data[name]).prepare(name)
        engine.close()
        engine = bench.open()
        assert engine.prepared() == names
        waiting, expected = list(names), []
        for seq_no in range(1, 31):
            name = waiting.pop(rng.randrange(len(waiting)))
            if rng.random() < 0.4:
                engine.rollback_prepared(name)
            else:
                gtid = Gtid(0, 1, seq_no)
                engine.commit_prepared(name, begin_event(gtid), gtid)
                expected.append(begin_event(gtid) + data[name])
            if seq_no % 10 == 0:
                engine.close()
                engine = bench.open()
                assert engine.prepared() == waiting
        assert read_all(engine) == expected
        engine.close()

    def test_names_of_prepared_transactions(self, bench: Bench) -> None:
        engine = bench.open()
        spilled_group(engine, b"first").prepare(NAME)
        second = spilled_group(engine, b"second")
        with pytest.raises(XaStateError, match="is prepared already"):
            second.prepare(NAME)
        second.prepare(Xid(NAME.format_id, NAME.gtrid))  # without the branch: another name
        for name in (OTHER, Xid(2, NAME.gtrid, NAME.bqual)):
            with pytest.raises(XaStateError, match="is not prepared"):
                engine.commit_prepared(name, gtid_event(ONE), ONE)
            with pytest.raises(XaStateError, match="is not prepared"):
                engine.rollback_prepared(name)
        assert len(engine.binlog_state()) == 0
        engine.rollback_prepared(NAME)
        with pytest.raises(XaStateError):
            engine.rollback_prepared(NAME)
        spilled_group(engine, events(30, "again")).prepare(NAME)
        engine.commit_prepared(NAME, gtid_event(ONE), ONE)
        with pytest.raises(XaStateError):
            engine.commit_prepared(NAME, gtid_event(TWO), TWO)
        engine.sync()
        assert read_all(engine) == [gtid_event(ONE) + events(30, "again")]
        assert engine.prepared() == [Xid(NAME.format_id, NAME.gtrid)]
        engine.close()

    def test_a_group_is_open_until_it_is_prepared(self, bench: Bench) -> None:
        engine = bench.open()
        writer = spilled_group(engine, COMMIT_EVENT)
        writer.spill(events(30, "s"), statement=True)
        with pytest.raises(ValueError, match="no statement list"):
            writer.prepare(NAME)
        writer.commit(begin_event(ONE), ONE)
        assert engine.prepared() == []
        writer = spilled_group(engine, b"y")
        writer.prepare(NAME)
        uses: list[Callable[[], object]] = [
            lambda: writer.spill(b"z"),
            lambda: writer.prepare(OTHER),
            lambda: writer.commit(gtid_event(TWO), TWO),
        ]
        for use in uses:
            with pytest.raises(RuntimeError):
                use()
        writer.rollback()
        assert engine.prepared() == [NAME], "a rollback of the writer is too late"
        engine.close()

    def test_a_crash_leaves_it_prepared_or_committed(self, bench: Bench) -> None:
        engine = bench.open()
        data = events(30, "data")
        spilled_group(engine, data).prepare(NAME)
        engine.sync()
        spilled_group(engine, events(30, "not durable")).prepare(OTHER)
        engine.commit_prepared(NAME, gtid_event(ONE), ONE)
        bench.crash()
        engine = bench.open()
        committed = read_all(engine) == [gtid_event(ONE) + data]
        assert (NAME in engine.prepared()) != committed
        if not committed:
            engine.commit_prepared(NAME, gtid_event(ONE), ONE)
        engine.sync()
        assert read_all(engine) == [gtid_event(ONE) + data]
        engine.close()

    def test_prepared_on_a_broken_disk(self, bench: Bench) -> None:
        engine = bench.open()
        spilled_group(engine, b"data").prepare(NAME)
        writer = spilled_group(engine, b"more")
        engine.sync()
        bench.break_disk()
        engine.append(*simple(1)[0])
        with pytest.raises(DiskError):
            engine.sync()
        uses: list[Callable[[], object]] = [
            lambda: writer.prepare(OTHER),
            lambda: engine.commit_prepared(NAME, gtid_event(ONE), ONE),
            lambda: engine.rollback_prepared(NAME),
        ]
        for use in uses:
            with pytest.raises(StoreFailed):
                use()
        assert engine.prepared() == [NAME]
        engine.close()
