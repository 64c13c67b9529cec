"""Which files go and which stay: the plan as a table, then on stores."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog import store
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import FIRST_FILE_KEY, StateStore
from binlog_storage.engine import GroupWriter, Position, Xid, purge
from binlog_storage.engine.purge import (
    FileFacts,
    PurgePlan,
    Wanted,
    above_size,
    before_file,
    before_time,
)
from binlog_storage.engine.references import Reason, References
from binlog_storage.errors import DiskError, PositionPurged, UnknownBinlog
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import PageSource, RecordReader
from binlog_storage.log import log_file
from binlog_storage.log.first_file import lost_files_of
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import (
    append_all,
    events,
    group,
    gtid_event,
    gtid_of,
    payloads,
    read_all,
    read_from,
    simple,
)
from tests.storage.sizes import small

FILE = 4 * PAGE_SIZE


def options(**more: int) -> StoreOptions:
    return small(**{"slave_connections_needed_for_purge": 0, **more})


# --- the plan ---

# six files of 100 bytes, written at 0, 10, 20 ..; file 5 is the current one
FILES = [FileFacts(n, 100, 10.0 * n, n) for n in range(6)]


def referring(**refers: int) -> list[FileFacts]:
    return [f._replace(refers_to=refers.get(f"f{f.file_no}", f.file_no)) for f in FILES]


REFERS = (
    "binlog file number {} refers to data in it (the file in active use: its groups would not be whole; "
    "FLUSH BINARY LOGS first)"
)
ACTIVE = "the binlog file is in active use"
DUMP = "it is in use by a binlog dump thread (connected slave)"
OPEN = "it holds data of an active transaction"
XA = "it holds data of a prepared XA transaction (holder; XA COMMIT or XA ROLLBACK ends it)"

# name: (files, wanted, held as (reason, file), missing replicas, deleted, kept, why)
Row = tuple[list[FileFacts], Wanted, list[tuple[Reason, int]], int, list[int], int | None, str]
PLANS: dict[str, Row] = {
    "none wanted": (FILES, before_file(0), [], 0, [], None, ""),
    "by name": (FILES, before_file(3), [], 0, [0, 1, 2], None, ""),
    "by name, up to the current": (FILES, before_file(5), [], 0, [0, 1, 2, 3, 4], None, ""),
    "by name, beyond the current": (FILES, before_file(9), [], 0, [0, 1, 2, 3, 4], 5, ACTIVE),
    "by time": (FILES, before_time(20.0), [], 0, [0, 1], None, ""),
    "by time, all": (FILES, before_time(99.0), [], 0, [0, 1, 2, 3, 4], 5, ACTIVE),
    "by time, an old one in between": (
        [f._replace(modified=99.0) if f.file_no == 1 else f for f in FILES],
        before_time(50.0),
        [],
        0,
        [0],
        None,
        "",
    ),
    "by size": (FILES, above_size(350), [], 0, [0, 1, 2], None, ""),
    "by size, just enough": (FILES, above_size(600), [], 0, [], None, ""),
    "by size, one byte too much": (FILES, above_size(599), [], 0, [0], None, ""),
    "by size, the current alone is too large": (
        FILES,
        above_size(50),
        [],
        0,
        [0, 1, 2, 3, 4],
        5,
        ACTIVE,
    ),
    "a dump": (FILES, before_file(5), [(Reason.DUMP, 2)], 0, [0, 1], 2, DUMP),
    "a dump behind what is wanted": (
        FILES,
        before_file(2),
        [(Reason.DUMP, 2)],
        0,
        [0, 1],
        None,
        "",
    ),
    "an open group": (FILES, before_file(5), [(Reason.ACTIVE_TRANSACTION, 1)], 0, [0], 1, OPEN),
    "prepared": (FILES, before_file(5), [(Reason.PREPARED_XA, 0)], 0, [], 0, XA),
    "named": (FILES, before_file(5), [(Reason.NAMED, 3)], 0, [0, 1, 2], 3, "it is held by holder"),
    "the lowest of several": (
        FILES,
        before_file(5),
        [(Reason.NAMED, 1), (Reason.DUMP, 2), (Reason.PREPARED_XA, 4)],
        0,
        [0],
        1,
        "it is held by holder",
    ),
    "a dump reads a file that refers back": (
        referring(f3=1),
        before_file(5),
        [(Reason.DUMP, 3)],
        0,
        [0],
        1,
        DUMP,
    ),
    "the current file refers back": (
        referring(f5=2),
        before_file(5),
        [],
        0,
        [0, 1],
        2,
        REFERS.format(5),
    ),
    "the current file refers to what has gone": (
        referring(f5=2)[5:],
        before_file(9),
        [],
        0,
        [],
        5,
        ACTIVE,
    ),
    "a file in between that refers back and nobody reads": (
        referring(f4=1),
        before_file(5),
        [],
        0,
        [0, 1, 2, 3, 4],
        None,
        "",
    ),
    "too few replicas": (
        FILES,
        before_file(3),
        [],
        2,
        [],
        0,
        "2 more slave connections are needed (slave_connections_needed_for_purge)",
    ),
    "too few replicas, nothing wanted": (FILES, before_file(0), [], 2, [], None, ""),
    "more replicas than needed": (FILES, before_file(1), [], -1, [0], None, ""),
    "purged before": (FILES[3:], before_file(5), [], 0, [3, 4], None, ""),
    "a hold on what has gone": (FILES[3:], before_file(5), [(Reason.NAMED, 1)], 0, [], 3, "it is held by holder"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_plan(name: str) -> None:
    files, wanted, held, missing, delete, kept, why = PLANS[name]
    references = References()
    for reason, file_no in held:
        references.hold(reason, "holder", file_no)
    fates = purge.fates(
        files, wanted, first_open=5, holds=references.holds(), replicas_missing=missing
    )
    assert purge.plan(fates) == PurgePlan(delete, kept, why)


# --- on a store ---


def five_files(disk: MemoryDisk, **more: int) -> IbbEngine:
    """Files 0 to 4, each ended by FLUSH, with two groups in each."""
    engine = IbbEngine(disk, options(**more))
    for number in range(5):
        append_all(engine, simple(2, first=2 * number + 1, size=500))
        if number < 4:
            engine.flush()
    engine.sync()
    return engine


def numbers(engine: IbbEngine) -> list[int]:
    return [file.number for file in engine.files()]


def left(engine: IbbEngine, first: int) -> list[int]:
    """seq_nos of the groups that are read from file `first` on."""
    found = read_from(engine, Position(first, PAGE_SIZE))
    return [g.seq_no for p in found if (g := gtid_of(p)) is not None]


def test_purge_to() -> None:
    disk = MemoryDisk()
    engine = five_files(disk)
    assert engine.purge_to(2).delete == [0, 1]
    assert numbers(engine) == [2, 3, 4]
    assert engine.purge_to(1) == PurgePlan([])  # merely gone already
    assert engine.purge_to(2) == PurgePlan([])
    with pytest.raises(UnknownBinlog):
        engine.purge_to(5)
    engine.keeper.caretaker.step()
    plan = engine.purge_to(5)  # made ahead: it is there
    assert plan == PurgePlan([2, 3], 4, ACTIVE)
    assert left(engine, 4) == [9, 10]
    engine.close()
    engine = IbbEngine(disk, options())
    assert numbers(engine)[0] == 4
    assert str(engine.binlog_state()) == "0-1-10"
    engine.close()


def test_purge_before() -> None:
    disk = MemoryDisk()
    engine = five_files(disk)
    disk.times = {file_name(n): 1000.0 + n for n in range(5)}
    assert engine.purge_before(1000.0) == PurgePlan([])
    assert engine.purge_before(1002.0) == PurgePlan([0, 1])
    assert engine.purge_before(9999.0) == PurgePlan([2, 3], 4, ACTIVE)
    engine.close()


def test_expiry_by_an_injected_clock() -> None:
    disk = MemoryDisk()
    five_files(disk).close()
    now = [1500.0]
    engine = IbbEngine(disk, options(binlog_expire_logs_seconds=500), clock=lambda: now[0])
    disk.times = {file_name(n): 1000.0 + n for n in range(5)}
    engine.keeper.caretaker.step()
    assert numbers(engine) == [0, 1, 2, 3, 4, 5]
    now[0] = 1502.5
    engine.keeper.caretaker.step()
    assert numbers(engine) == [3, 4, 5]
    engine.close()


def test_total_size(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    engine = five_files(disk, max_binlog_total_size=FILE + 2 * 2 * PAGE_SIZE)
    with caplog.at_level(logging.WARNING):
        engine.keeper.caretaker.step()
        assert numbers(engine) == [2, 3, 4, 5]  # two of two pages, one of four; 5 is made ahead
        hold = engine.hold("archive")
        engine.flush()
        for _ in range(3):
            engine.keeper.caretaker.step()
    assert numbers(engine) == [2, 3, 4, 5, 6]
    told = "InnoDB: Binlog file binlog-000002.ibb could not be purged because it is held by archive"
    assert [r.message for r in caplog.records] == [told], "told once"
    hold.release()
    engine.keeper.caretaker.step()
    assert numbers(engine)[0] > 2
    engine.close()


@pytest.mark.parametrize(
    "option", [{"binlog_expire_logs_seconds": 500}, {"max_binlog_total_size": FILE * 2}]
)
def test_the_log_says_which_option_has_purged(
    option: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = MemoryDisk()
    five_files(disk).close()
    engine = IbbEngine(disk, options(**option), clock=lambda: 1502.5)
    disk.times = {file_name(n): 1000.0 + n for n in range(5)}
    engine.keeper.caretaker.step()
    gone = numbers(engine)[0]
    assert gone > 0
    [(name, value)] = option.items()
    assert f"purged {gone} binlog files, up to {file_name(gone - 1)}: {name}={value}" in caplog.text
    engine.close()


# --- who holds ---


def open_group(engine: IbbEngine) -> Callable[[], object]:
    writer = engine.begin()
    writer.spill(b"data")
    return writer.rollback


def prepared(engine: IbbEngine) -> Callable[[], object]:
    writer = engine.begin()
    writer.spill(b"data")
    writer.prepare(Xid(1, b"x"))
    return lambda: engine.rollback_prepared(Xid(1, b"x"))


HOLDERS: dict[str, tuple[Callable[[IbbEngine], Callable[[], object]], str]] = {
    "dump": (lambda e: e.hold("5", dump=True).release, DUMP),
    "named": (lambda e: e.hold("lease 7").release, "it is held by lease 7"),
    "open group": (open_group, OPEN),
    "prepared": (prepared, XA.replace("holder", "'x'")),
}


@pytest.mark.parametrize("who", HOLDERS)
def test_holders(who: str) -> None:
    take, why = HOLDERS[who]
    engine = IbbEngine(MemoryDisk(), options())
    let_go = take(engine)
    append_all(engine, simple(2))
    for _ in range(3):
        engine.flush()
    assert engine.purge_to(2) == PurgePlan([], 0, why)
    let_go()
    engine.flush()  # the header of the file before tells of open and prepared groups still
    assert engine.purge_to(2) == PurgePlan([0, 1])
    engine.close()


def test_a_hold_that_moves() -> None:
    engine = five_files(MemoryDisk())
    hold = engine.hold("9", Position(1, PAGE_SIZE), dump=True)
    assert engine.purge_to(4) == PurgePlan([0], 1, DUMP)
    hold.move(3)
    hold.move(2)  # never back
    assert engine.purge_to(4) == PurgePlan([1, 2], 3, DUMP)
    hold.release()
    assert engine.purge_to(4) == PurgePlan([3])
    engine.close()


def test_replicas_are_counted() -> None:
    engine = five_files(MemoryDisk(), slave_connections_needed_for_purge=2)
    one = engine.hold("1", engine.durable_end, dump=True)
    engine.hold("no replica", engine.durable_end)
    words = "1 more slave connections are needed (slave_connections_needed_for_purge)"
    assert engine.purge_to(4) == PurgePlan([], 0, words)
    two = engine.hold("2", engine.durable_end, dump=True)
    assert engine.purge_to(4).delete == [0, 1, 2, 3]
    one.release()
    two.release()
    engine.close()


def test_references_of_headers_hold_after_a_restart() -> None:
    """Committed, but from out-of-band data in file 1, in the current file 3: a replica that comes needs file 1."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, options())
    engine.append(*group(Gtid(0, 1, 1)))
    engine.flush()
    writer = engine.begin()
    writer.spill(events(500, "far"))
    engine.flush()
    engine.flush()
    writer.commit(gtid_event(Gtid(0, 1, 2)), Gtid(0, 1, 2))
    engine.close()
    engine = IbbEngine(disk, options())
    why = REFERS.format(3)
    assert engine.purge_to(3) == PurgePlan([0], 1, why)
    assert read_from(engine, Position(3, PAGE_SIZE)) == [
        gtid_event(Gtid(0, 1, 2)) + events(500, "far")
    ]
    engine.flush()
    assert engine.purge_to(4).delete == [1, 2, 3]
    engine.close()


@pytest.mark.parametrize("crash", [False, True])
def test_a_completion_that_is_not_durable(crash: bool) -> None:
    """Prepared in file 0, committed in memory only: a crash makes it prepared again, and its data must be there."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, options())
    writer = engine.begin()
    writer.spill(events(900, "xa"))
    writer.prepare(Xid(1, b"x"))
    engine.flush()
    engine.commit_prepared(Xid(1, b"x"), gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
    assert engine.purge_to(engine.written_end.file_no).delete == []
    if crash:
        disk.crash()
        engine = IbbEngine(disk, options())
        assert engine.prepared() == [Xid(1, b"x")]
        assert engine.purge_to(1).kept == 0
        engine.commit_prepared(Xid(1, b"x"), gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
    engine.sync()
    assert read_all(engine) == [gtid_event(Gtid(0, 1, 1)) + events(900, "xa")]
    engine.close()


# --- groups of which purge has left a half ---


def sequence(state: BinlogState) -> int:
    """The last number of the only server there is."""
    return state.get(0, 1) or 0


@pytest.mark.parametrize("restart", [False, True])
def test_what_can_be_had_begins_behind_half_groups(restart: bool) -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, options())
    engine.append(*group(Gtid(0, 1, 1)))
    near, far = engine.begin(), engine.begin()
    near.spill(events(500, "near"))
    far.spill(events(500, "far"))
    engine.flush()
    engine.append(*group(Gtid(0, 1, 2)))
    near.commit(gtid_event(Gtid(0, 1, 3)), Gtid(0, 1, 3))
    engine.append(*group(Gtid(0, 1, 4)))
    engine.flush()
    engine.append(*group(Gtid(0, 1, 5)))
    far.commit(gtid_event(Gtid(0, 1, 6)), Gtid(0, 1, 6))
    for number in (7, 8):
        engine.append(*group(Gtid(0, 1, number)))
    engine.flush()
    engine.append(*group(Gtid(0, 1, 9)))
    engine.sync()
    for purged_to, begins in ((0, 0), (1, 6), (2, 6), (3, 8)):
        engine.purge_to(purged_to)
        if restart:
            engine.close()
            engine = IbbEngine(disk, options())
        first = engine.first_start()
        assert sequence(first.state) == begins
        for number in range(1, 10):
            at = SlavePosition([Gtid(0, 1, number)])
            if number < begins:  # at once, and not only where the half group is
                with pytest.raises(PositionPurged):
                    engine.find_start(at)
                continue
            start = engine.find_start(at)
            assert len(read_from(engine, start.position)) == 9 - sequence(start.state)
            assert start.position >= first.position
    engine.close()


@pytest.mark.parametrize("seed", range(10))
def test_everything_is_whole_from_where_the_binlog_begins(seed: int) -> None:
    rng = random.Random(seed)
    disk = MemoryDisk()
    engine = IbbEngine(disk, options(interval=rng.choice([2, 4])))
    logged: list[bytes] = []
    waiting: list[tuple[GroupWriter, bytes]] = []
    for _ in range(120):
        gtid = Gtid(0, 1, len(logged) + 1)
        if waiting and rng.random() < 0.4:
            writer, data = waiting.pop(rng.randrange(len(waiting)))
            writer.commit(gtid_event(gtid), gtid)
            logged.append(gtid_event(gtid) + data)
        elif len(waiting) < 3 and rng.random() < 0.5:
            data = events(rng.randint(100, 30_000), "large")
            waiting.append((engine.begin(), data))
            waiting[-1][0].spill(data)
        else:
            payload, _ = group(gtid)
            engine.append(payload, gtid)
            logged.append(payload)
        if rng.random() < 0.1:
            engine.sync()
            engine.checkpoint()
            engine.purge_to(engine.written_end.file_no)
            first = engine.first_start()
            assert read_from(engine, first.position) == logged[sequence(first.state) :]
            behind = rng.randint(sequence(first.state), len(logged))
            start = engine.find_start(SlavePosition([Gtid(0, 1, behind)] if behind else []))
            assert read_from(engine, start.position) == logged[sequence(start.state) :]
    for writer, _ in waiting:
        writer.rollback()
    engine.close()


# --- readers of what has gone ---


@pytest.mark.parametrize("restart", [False, True])
def test_a_reader_of_a_purged_file_is_told(restart: bool) -> None:
    disk = MemoryDisk()
    engine = five_files(disk)
    places = [Position(0, PAGE_SIZE), Position(1, PAGE_SIZE), Position(1, 2 * PAGE_SIZE)]
    reader = RecordReader(engine._pages, places[0])
    assert reader.next() is not None
    reader.next()
    engine.purge_to(2)
    if restart:
        engine.close()
        engine = IbbEngine(disk, options())
    else:
        with pytest.raises(PositionPurged):
            list(iter(reader.next, None))
    for place in places:
        with pytest.raises(PositionPurged):
            engine.read(place)
    with pytest.raises(PositionPurged):
        engine._pages.page(0, 1)
    with pytest.raises(PositionPurged):
        engine.find_start(SlavePosition([Gtid(0, 1, 3)]))
    assert engine.find_start(SlavePosition([Gtid(0, 1, 4)])).position >= Position(2, PAGE_SIZE)
    engine.close()


def test_concurrent_readers_during_a_purge(tmp_path: Path, rng: random.Random) -> None:
    """Each gets whole groups in order, or `PositionPurged`: never bytes of another file by a reused descriptor."""
    engine = IbbEngine(OsDisk(tmp_path), options())
    groups = simple(400, size=3000)
    append_all(engine, groups)
    engine.sync()
    expected = payloads(groups)
    starts = {Position(n, PAGE_SIZE) for n in range(len(engine.files()))}
    first_of = {
        start: engine.read(place).groups[0]
        for start in starts
        if (place := _first_group(engine, start)) is not None
    }
    failures: list[str] = []
    done = threading.Event()

    def read(seed: int) -> None:
        mine = random.Random(seed)
        while not done.is_set():
            start = mine.choice(sorted(first_of))
            try:
                place = _first_group(engine, start)
                found = [] if place is None else engine.read(place).groups
            except PositionPurged:
                continue
            except Exception as error:  # noqa: BLE001 - told by the test
                failures.append(f"{start}: {type(error).__name__}: {error}")
                return
            at = expected.index(first_of[start])
            if found != expected[at : at + len(found)] or not found:
                failures.append(f"{start}: other groups than before")
                return

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, len(engine.files())):
        engine.purge_to(number)
        (tmp_path / f"other-{number}").write_bytes(b"x" * 100_000)  # takes the free descriptors
        done.wait(0.01)
    done.set()
    for thread in threads:
        thread.join(20)
    assert failures == []
    assert numbers(engine)[0] > 10
    engine.close()


def _first_group(engine: IbbEngine, start: Position) -> Position | None:
    """The first record in a file that is no rest of another and no state."""
    reader = RecordReader(engine._pages, start, engine.durable_end, skip_partial=True)
    reader.next()
    record = reader.next()
    return None if record is None else record.start


@pytest.mark.parametrize("named", [True, False], ids=["by a name", "all files"])
def test_who_comes_while_files_are_deleted(named: bool) -> None:
    """That may take long. What he finds stays, and PURGE tells of him."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, options(), facts=StateStore(disk))
    append_all(engine, simple(60, size=5000))
    engine.checkpoint()
    files = [file.number for file in engine.files()]
    assert len(files) > 4
    found: list[int] = []

    def comes(kind: str, name: str) -> None:
        if kind == "sync directory" and not found and file_name(files[0]) not in disk.names():
            hold = engine.hold("the lease 'etl'", Position(2, PAGE_SIZE) if named else None)
            found.append(hold.file_no)

    disk.fault = comes
    plan = engine.purge_to(files[-1])
    assert found == [files[2 if named else 1]]
    assert [file.number for file in engine.files()] == files[files.index(found[0]) :]
    assert plan.delete == list(range(files.index(found[0])))
    assert (plan.kept, plan.why) == (found[0], "it is held by the lease 'etl'")
    engine.close()


def test_the_first_place_is_the_first_whole_record() -> None:
    """Files begin anywhere in a group; behind a purge the rest of one is there, and nobody can read it."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, options(), facts=StateStore(disk))
    groups = simple(30, size=5000)
    append_all(engine, groups)
    engine.checkpoint()
    for file in engine.files()[1:-1]:
        engine.purge_to(file.number)
        start = engine.first_start()
        left = read_from(engine, start.position)
        assert left == payloads(groups)[-len(left) :]
        (last,) = start.state.entries()
        assert last.seq_no == len(groups) - len(left)
    engine.close()


def test_a_list_of_files_while_one_is_deleted() -> None:
    """It is still in the directory, and has gone for everybody."""
    engine = IbbEngine(MemoryDisk(), options())
    append_all(engine, simple(30, size=5000))
    engine.checkpoint()
    files = engine.files()
    engine._pages.files.going(0)
    assert engine.files() == files[1:]
    engine.close()


def test_a_domain_is_deleted_while_the_first_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, options(), facts=StateStore(disk))
    append_all(engine, simple(2, domain=7))
    engine.flush()
    append_all(engine, simple(2))
    engine.flush()

    def goes(pages: PageSource, file_no: int, page_no: int) -> list[Gtid] | None:
        if file_no == 0:
            engine._pages.files.going(0)
            engine._pages.forget(0)
        return log_file.read_state(pages, file_no, page_no)

    monkeypatch.setattr(store, "read_state", goes)
    engine.flush([7])
    assert engine.binlog_state() == BinlogState([Gtid(0, 1, 2)])
    engine.close()


# --- behind a purge ---


def test_who_waits_for_room_tries_at_once_behind_a_purge() -> None:
    """Also behind one that an error has ended: what was deleted is room."""
    disk = MemoryDisk()
    engine = five_files(disk)
    tries = engine._full.tries
    assert engine.purge_to(1).delete == [0]
    assert engine._full.tries == tries + 1

    def fault(kind: str, name: str) -> None:
        if kind == "unlink" and name == file_name(2):
            raise DiskError(f"cannot {kind} {name}: Input/output error (injected)")

    disk.fault = fault
    with pytest.raises(DiskError):
        engine.purge_to(4)
    disk.fault = None
    assert engine._full.tries == tries + 2
    assert numbers(engine) == [2, 3, 4]
    assert left(engine, 2) == [5, 6, 7, 8, 9, 10]
    assert engine.purge_to(4).delete == [2, 3]
    engine.close()


def test_where_the_store_begins_when_somebody_came_in_between() -> None:
    """What stays is missed if it goes by another hand."""
    disk = MemoryDisk()
    facts = StateStore(disk)
    engine = IbbEngine(disk, options(), facts=facts)
    for number in range(4):
        append_all(engine, simple(2, first=2 * number + 1, size=500))
        engine.flush()
    engine.sync()

    def fault(kind: str, name: str) -> None:
        if kind == "unlink" and name == file_name(0):
            engine.hold("archive", Position(2, PAGE_SIZE))

    disk.fault = fault
    assert engine.keeper.purge(before_file(4), "a limit").kept == 2
    disk.fault = None
    assert numbers(engine)[0] == 2
    assert facts.get(FIRST_FILE_KEY) == 2
    engine.close()


def test_a_purge_by_hand_says_that_what_is_missing_may_be() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, options(), facts=StateStore(disk))
    for number in range(4):
        append_all(engine, simple(2, first=2 * number + 1, size=500))
        engine.flush()
    engine.close()
    for number in (0, 1):
        disk.unlink(file_name(number))
    engine = IbbEngine(disk, options(), facts=StateStore(disk))
    assert lost_files_of(disk, [2, 3])
    assert engine.purge_to(2) == PurgePlan([])
    assert not lost_files_of(disk, [2, 3])
    engine.close()
