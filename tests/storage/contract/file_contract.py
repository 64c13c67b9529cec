"""The promises about files, of `BinlogEngine`: FLUSH, RESET MASTER, PURGE, holds. A part of
`EngineContract`; an engine of a single file keeps them too.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.engine import BinlogEngine, Position, Xid
from binlog_storage.errors import (
    BinlogInUse,
    BinlogInUseByTransaction,
    DiskError,
    DomainInUse,
    PositionPurged,
    StorageError,
    StoreFailed,
    UnknownBinlog,
)

from tests.storage.contract.bench import Bench, filled, position, received
from tests.storage.groups import (
    COMMIT_EVENT,
    append_all,
    begin_event,
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

NAME = Xid(1, b"waiting")


def spilling(engine: BinlogEngine) -> Callable[[], None]:
    writer = engine.begin()
    writer.spill(b"open")
    return writer.rollback


def preparing(engine: BinlogEngine) -> Callable[[], None]:
    writer = engine.begin()
    writer.spill(b"open")
    writer.prepare(NAME)
    return lambda: (engine.rollback_prepared(NAME), None)[1]


# name: (takes hold and returns the way to let go, what RESET MASTER says)
IN_USE: dict[str, tuple[Callable[[BinlogEngine], Callable[[], None]], type[StorageError], str]] = {
    "dump": (lambda e: e.hold("5", dump=True).release, BinlogInUse, "in use by a connected slave"),
    "named": (lambda e: e.hold("archive").release, BinlogInUse, "or binlog reader"),
    "open group": (spilling, BinlogInUseByTransaction, "in use by an active transaction"),
    "prepared": (preparing, BinlogInUseByTransaction, "in use by an active transaction"),
}


class FileContract:
    # --- FLUSH BINARY LOGS ---

    def test_the_file_being_written_is_listed(self, bench: Bench) -> None:
        """Also before anything of it is on disk."""
        engine = bench.open()
        for payload, gtid in simple(60, size=8000):
            engine.append(payload, gtid)
            assert engine.written_end.file_no in [file.number for file in engine.files()]
        engine.close()

    def test_names_and_beginnings(self, bench: Bench) -> None:
        """Each name leads back to its number; in front of a file's beginning lies what its state says."""
        engine = bench.open()
        states: dict[int, BinlogState] = {}
        for gtid in (Gtid(0, 1, 1), Gtid(0, 1, 2), Gtid(1, 1, 1)):
            states.setdefault(engine.written_end.file_no, engine.binlog_state())
            engine.append(group(gtid).payload, gtid)
            engine.flush()
        for number, state in states.items():
            assert engine.file_number(engine.file_name(number)) == number
            place = Position(number, engine.file_start)
            assert engine.state_at(place) == state
            assert engine.locate(place).border
        names = [engine.file_name(number) for number, _ in engine.files()]
        assert names == sorted(set(names))
        for other in ("", "x", f"{names[0]}0x", names[0].upper(), f"./{names[0]}"):
            assert engine.file_number(other) is None
        engine.close()

    def test_flush_makes_everything_durable(self, bench: Bench) -> None:
        engine = bench.open()
        append_all(engine, simple(3))
        woken: list[bool] = []
        engine.subscribe(lambda: woken.append(engine.durable_end == engine.written_end))
        engine.flush()
        assert engine.durable_end == engine.written_end
        assert woken
        assert woken[-1]
        assert read_all(engine) == payloads(simple(3))
        bench.crash()
        engine = bench.open()
        assert read_all(engine) == payloads(simple(3))
        assert engine.binlog_state() == state_after(simple(3))
        engine.close()

    def test_flushes_among_groups(self, bench: Bench, rng: random.Random) -> None:
        groups = history(rng, 80, size_max=40_000)
        engine = bench.open()
        start = engine.durable_end
        for number, (payload, gtid) in enumerate(groups):
            engine.append(payload, gtid)
            while rng.random() < 0.15:
                engine.flush()
            if number % 23 == 22:
                engine.close()
                engine = bench.open()
        engine.sync()
        assert read_all(engine) == payloads(groups)
        found: list[bytes] = []
        while start < engine.durable_end:
            batch = engine.read(start)
            assert batch.end > start, "a reader must come on, with nothing between two files too"
            found += batch.groups
            start = batch.end
        assert found == payloads(groups)
        for count in (0, 7, 40, 79, 80):
            at = state_after(groups[:count]).position()
            assert received(engine, at) == [p for p, g in groups[count:] if g is not None]
        engine.close()

    def test_flush_with_nothing_in_it(self, bench: Bench) -> None:
        engine = bench.open()
        for _ in range(5):
            engine.flush()
        engine.close()
        engine = bench.open()
        assert read_all(engine) == []
        append_all(engine, simple(2))
        for _ in range(3):
            engine.flush()
        assert read_all(engine) == payloads(simple(2))
        assert received(engine, position(Gtid(0, 1, 2))) == []
        engine.close()

    def test_open_groups_go_on_over_a_flush(self, bench: Bench) -> None:
        engine = bench.open()
        one, two = engine.begin(), engine.begin()
        one.spill(events(1000, "1"))
        mark = one.mark()
        engine.flush()
        one.spill(b"lost" * 1000)
        two.spill(events(30_000, "2"), statement=True)
        engine.flush()
        one.rewind(mark)
        one.spill(COMMIT_EVENT)
        two.commit(gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
        one.commit(begin_event(Gtid(0, 1, 2)), Gtid(0, 1, 2))
        engine.flush()
        expected = [
            gtid_event(Gtid(0, 1, 1)) + events(30_000, "2"),
            begin_event(Gtid(0, 1, 2)) + events(1000, "1") + COMMIT_EVENT,
        ]
        assert read_all(engine) == expected
        engine.close()
        engine = bench.open()
        assert read_all(engine) == expected
        engine.close()

    def test_a_marker_is_still_the_last_after_a_flush(self, bench: Bench) -> None:
        engine = filled(bench, [*simple(1), marker(1)])
        engine.flush()
        assert engine.last_marker == marker(1).payload
        engine.close()
        engine = bench.open()
        assert engine.last_marker == marker(1).payload
        engine.close()

    # --- DELETE_DOMAIN_ID ---

    def test_a_domain_in_use_is_not_deleted(self, bench: Bench) -> None:
        groups = [*simple(2), *simple(2, domain=5)]
        engine = filled(bench, groups)
        for _ in range(2):
            for domains in ([5], [0, 5], [9, 0]):
                with pytest.raises(DomainInUse, match=r"domain [05] cannot be deleted"):
                    engine.flush(delete_domains=domains)
            assert engine.binlog_state() == state_after(groups)
            engine.close()
            engine = bench.open()
        engine.flush(delete_domains=[9])  # nothing to delete, and nothing wrong
        assert engine.binlog_state() == state_after(groups)
        engine.close()

    def test_a_domain_of_the_past_is_deleted(self, bench: Bench) -> None:
        engine = filled(bench, simple(5))
        past = [Gtid(7, 1, 5), Gtid(7, 2, 3), Gtid(8, 1, 9)]
        engine.reset(BinlogState(past))
        append_all(engine, simple(3))
        engine.flush(delete_domains=[7])
        kept = BinlogState([Gtid(8, 1, 9), Gtid(0, 1, 3)])
        assert engine.binlog_state() == kept
        engine.close()
        engine = bench.open()
        assert engine.binlog_state() == kept
        # A replica that never saw the domain is served from here on.
        assert received(engine, position(Gtid(0, 1, 3), Gtid(8, 1, 9))) == []
        append_all(engine, simple(2, first=4))
        engine.sync()
        at = position(Gtid(0, 1, 3), Gtid(8, 1, 9))
        assert received(engine, at) == payloads(simple(2, first=4))
        engine.close()

    # --- RESET MASTER ---

    @pytest.mark.parametrize(
        "past", [[Gtid(0, 1, 1)], [Gtid(0, 1, 2)], [Gtid(0, 1, 1), Gtid(3, 2, 1)]], ids=str
    )
    def test_reset_keeps_the_state_that_it_was_given(self, bench: Bench, past: list[Gtid]) -> None:
        engine = filled(bench, simple(5))
        engine.reset(BinlogState(past))
        for _ in range(2):
            assert engine.binlog_state() == BinlogState(past)
            assert engine.first_start().state == BinlogState(past)
            with pytest.raises(PositionPurged):
                engine.find_start(SlavePosition())
            engine.close()
            engine = bench.open()
        engine.close()

    @pytest.mark.parametrize("reopen", [False, True], ids=["at once", "after a restart"])
    def test_reset(self, bench: Bench, reopen: bool) -> None:
        engine = filled(bench, [*simple(300, size=1000), marker(1)])
        engine.reset()
        for _ in range(2):
            assert len(engine.binlog_state()) == 0
            assert engine.last_marker is None
            assert engine.durable_end == engine.written_end
            assert read_all(engine) == []
            assert len(engine.files()) == 1
            if reopen:
                engine.close()
                engine = bench.open()
        groups = simple(200, size=1500, domain=3)
        append_all(engine, groups)
        engine.sync()
        assert read_all(engine) == payloads(groups)
        assert received(engine, position(Gtid(3, 1, 77))) == payloads(groups[77:])
        engine.close()

    def test_reset_to_a_state(self, bench: Bench) -> None:
        engine = filled(bench, simple(100, size=1000))
        state = BinlogState([Gtid(0, 2, 50), Gtid(0, 1, 80), Gtid(4, 1, 1)])
        engine.reset(state)
        state.update(Gtid(9, 9, 9))
        expected = BinlogState([Gtid(0, 2, 50), Gtid(0, 1, 80), Gtid(4, 1, 1)])
        assert engine.binlog_state() == expected
        engine.close()
        engine = bench.open()
        assert engine.binlog_state() == expected
        append_all(engine, simple(3, first=81))
        engine.sync()
        at = position(Gtid(0, 1, 80), Gtid(4, 1, 1))
        assert received(engine, at) == payloads(simple(3, first=81))
        engine.close()

    @pytest.mark.parametrize("who", IN_USE)
    def test_reset_of_a_binlog_in_use(self, bench: Bench, who: str) -> None:
        take, error, words = IN_USE[who]
        engine = filled(bench, simple(3))
        let_go = take(engine)
        with pytest.raises(error, match=words):
            engine.reset()
        assert read_all(engine) == payloads(simple(3))
        let_go()
        engine.reset()
        assert len(engine.binlog_state()) == 0
        engine.close()

    def test_a_group_that_spilled_nothing_is_no_obstacle(self, bench: Bench) -> None:
        engine = filled(bench, simple(3))
        writer = engine.begin()
        engine.reset()
        writer.spill(events(30, "after it"))
        writer.commit(gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
        engine.sync()
        assert [gtid_of(p) for p in read_all(engine)] == [Gtid(0, 1, 1)]
        engine.close()

    # --- PURGE and holds ---

    def test_purge_of_the_only_file(self, bench: Bench) -> None:
        engine = filled(bench, simple(3))
        last = engine.written_end.file_no
        for plan in (engine.purge_to(last), engine.purge_before(0.0)):
            assert plan.delete == []
            assert plan.kept is None
        with pytest.raises(UnknownBinlog):
            engine.purge_to(99)
        assert read_all(engine) == payloads(simple(3))
        engine.close()

    def test_holds_are_let_go(self, bench: Bench) -> None:
        engine = filled(bench, simple(3))
        holds = [engine.hold("a"), engine.hold("a", beginning(engine)), engine.hold("b", dump=True)]
        for hold in holds:
            hold.move(0)
            hold.release()
            hold.release()
        engine.reset()
        engine.close()

    def test_files_on_a_broken_disk(self, bench: Bench) -> None:
        engine = filled(bench, simple(3))
        bench.break_disk()
        engine.append(*group(Gtid(0, 1, 4)))
        with pytest.raises(DiskError):
            engine.flush()
        for use in (engine.flush, engine.reset):
            with pytest.raises(StoreFailed):
                use()
        assert read_from(engine, engine.find_start(SlavePosition()).position) == payloads(simple(3))
        engine.close()
