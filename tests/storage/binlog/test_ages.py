"""RESET MASTER beside everybody else: what was found in the old binlog is not taken for one of the new one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.groups.event_group import StartMarker
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_protocol.limits import ERROR_TEXT_BYTES_MAX
from binlog_storage.binlog import store
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.engine import Stalled
from binlog_storage.engine.references import Pin
from binlog_storage.errors import (
    BinlogBegunAnew,
    BinlogHasGtids,
    BinlogInUse,
    DiskError,
    StoreFailed,
)
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log import halves, search
from binlog_storage.log.publication import read_published
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import (
    append_all,
    group,
    opens_with,
    payloads,
    read_all,
    read_from,
    run_dry,
    settle,
    simple,
)
from tests.storage.sizes import small

A_MOMENT = 0.2  # in which a thread that need not wait has long done its work
TIME_OUT = 20.0


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def engine(disk: MemoryDisk) -> IbbEngine:
    """Three files, all of them on disk, and a group that is not durable yet."""
    engine = IbbEngine(disk, small())
    append_all(engine, simple(400, size=200))
    engine.checkpoint()
    engine.purge_to(engine.files()[-2].number)
    append_all(engine, simple(1, first=401))
    return engine


def once(what: Callable[[], object]) -> Callable[[], None]:
    """Calls it the first time, and never again: what it does may come to the same place."""
    calls = [what]

    def call() -> None:
        if calls:
            calls.pop()()

    return call


# --- who comes while RESET MASTER is at work ---

STEPS: dict[str, Callable[[str, str], bool]] = {
    "the log is synced": lambda kind, name: kind == "sync" and not name.endswith(".ibb"),
    "a file is deleted": lambda kind, name: kind == "unlink" and name.endswith(".ibb"),
    "all are deleted": lambda kind, name: kind == "sync directory",
}
COMERS: dict[str, Callable[[IbbEngine], object]] = {
    "a dump": lambda engine: engine.hold("server_id 7", dump=True),
    "a dump, which searches": lambda engine: engine.find_start(SlavePosition()).position,
    "SHOW BINLOG EVENTS": lambda engine: sum(1 for _ in engine.groups_of_file()),
    "a look at the begin": lambda engine: engine.first_start(),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("comer", COMERS)
def test_who_comes_waits_for_its_end(
    engine: IbbEngine, disk: MemoryDisk, step: str, comer: str
) -> None:
    found: list[object] = []
    processor_s: list[float] = []

    def come() -> None:
        before = time.thread_time()
        try:
            found.append(COMERS[comer](engine))
        except Exception as error:  # noqa: BLE001 - told by the test
            found.append(error)
        processor_s.append(time.thread_time() - before)

    thread = threading.Thread(target=come)
    found_then: list[object] = []

    def arrives() -> None:
        thread.start()
        thread.join(A_MOMENT)
        found_then.extend(found)

    arrive = once(arrives)

    def fault(kind: str, name: str) -> None:
        if STEPS[step](kind, name):
            arrive()

    disk.fault = fault
    engine.reset()
    disk.fault = None
    thread.join(TIME_OUT)
    assert found_then == [], "it did not wait"
    match comer:
        case "a dump":
            (hold,) = found
            assert isinstance(hold, Pin)
            assert hold.file_no == 0, "of the new binlog"
            append_all(engine, simple(400, size=200))
            engine.checkpoint()
            assert engine.purge_to(engine.files()[-1].number).delete == []
            with pytest.raises(BinlogInUse):
                engine.reset()
        case "a dump, which searches":
            assert found == [engine.durable_end]
            assert processor_s[0] < A_MOMENT / 4, "it waits, and does not look again and again"
        case "SHOW BINLOG EVENTS":
            assert found == [0]
        case _:
            assert found == [engine.first_start()]
    engine.close()


def test_a_reset_that_is_refused_lets_others_in(engine: IbbEngine) -> None:
    age, hold = engine.age, engine.hold("server_id 7", dump=True)
    for _ in range(2):
        with pytest.raises(BinlogInUse):
            engine.reset()
    engine.hold("server_id 8", dump=True).release()
    hold.release()
    engine.reset()
    assert engine.age != age
    engine.hold("server_id 9", dump=True).release()
    engine.close()


def test_it_is_told_while_it_is_at_work(engine: IbbEngine, disk: MemoryDisk) -> None:
    """Since when, as commits and dumps wait for it."""
    found: list[Stalled] = []

    look = once(lambda: found.extend(engine.stalled()))

    def fault(kind: str, name: str) -> None:
        if STEPS["a file is deleted"](kind, name):
            look()

    disk.fault = fault
    began = time.monotonic()
    engine.reset()
    disk.fault = None
    (told,) = found
    assert (told.what, told.why) == (
        "reset",
        "RESET MASTER is at work: commits and dumps wait for its end",
    )
    assert 0 <= told.seconds <= time.monotonic() - began
    assert engine.stalled() == []


def test_who_may_not_wait_is_told_and_woken(engine: IbbEngine, disk: MemoryDisk) -> None:
    found: list[object] = []

    def comes() -> None:
        with pytest.raises(BinlogBegunAnew):
            engine.hold("server_id 7", dump=True, wait=False)
        engine.subscribe(lambda: found.append(engine.hold("server_id 7", dump=True, wait=False)))

    come = once(comes)

    def fault(kind: str, name: str) -> None:
        if STEPS["a file is deleted"](kind, name):
            come()

    disk.fault = fault
    engine.reset()
    disk.fault = None
    assert found
    assert all(isinstance(hold, Pin) and hold.file_no == 0 for hold in found)
    engine.close()


def test_a_hold_on_an_empty_binlog_that_begins_anew_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name holds nothing there, so RESET MASTER goes on beside it; what it took first is not left behind."""
    engine = IbbEngine(MemoryDisk(), small())
    real = engine.references.hold
    reset = once(lambda: engine.reset())

    def hold(*args: Any) -> Pin:
        found = real(*args)
        reset()
        return found

    monkeypatch.setattr(engine.references, "hold", hold)
    taken = engine.hold("the lease 'etl'")
    assert engine.references.holds() == [taken]
    engine.close()


HOLDERS: dict[str, tuple[list[tuple[str, bool, str]], str]] = {
    "a lease": (
        [("the lease 'etl' up to 9 bytes", False, "DROP BINLOG LEASE 'etl'")],
        "Files are held by the lease 'etl' up to 9 bytes: DROP BINLOG LEASE 'etl'",
    ),
    "two of them": (
        [("b", False, "end b"), ("a", False, "end a")],
        "Files are held by a and 1 more: end a",
    ),
    "what ends by itself": ([("SHOW BINLOG EVENTS", False, "")], "EVENTS: it ends by itself"),
    "a replica": (
        [("server_id 7", True, "")],
        'Check SHOW PROCESSLIST for "Binlog Dump" commands and use KILL to stop such readers: server_id 7',
    ),
    "a replica and a lease": (
        [("server_id 7", True, ""), ("server_id 8", True, ""), ("a", False, "end a")],
        "stop such readers: server_id 7 and 1 more. Files are held by a: end a",
    ),
    "a long name": ([("x" * 3000, False, "end it")], f"held by {'x' * 160}...: end it"),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_refusal_names_who_is_in_the_way(engine: IbbEngine, name: str) -> None:
    holders, said = HOLDERS[name]
    holds = [engine.hold(who, dump=dump, ended_by=end) for who, dump, end in holders]
    with pytest.raises(BinlogInUse) as refused:
        engine.reset()
    text = str(refused.value)
    assert text.startswith(
        "Cannot execute RESET MASTER as the binlog is in use by a connected slave"
    )
    assert text.endswith(said)
    assert len(text) < ERROR_TEXT_BYTES_MAX
    for hold in holds:
        hold.release()
    engine.reset()
    engine.close()


# --- RESET MASTER while somebody looks ---


def test_a_search_looks_again(engine: IbbEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    past = BinlogState([Gtid(0, 1, 300)])
    reset = once(lambda: engine.reset(past))
    real = search.find_start

    def find_start(*args: Any) -> Any:
        found = real(*args)
        reset()
        return found

    monkeypatch.setattr(search, "find_start", find_start)
    found = engine.find_start(SlavePosition([Gtid(0, 1, 390)]))
    assert found == (engine.durable_end, past)
    engine.close()


def test_a_search_that_failed_looks_again(
    engine: IbbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset = once(lambda: engine.reset())
    real = search.find_start

    def find_start(*args: Any) -> Any:
        reset()
        return real(*args)

    monkeypatch.setattr(search, "find_start", find_start)
    assert engine.find_start(SlavePosition()).state == BinlogState()  # and not that it was purged
    engine.close()


def test_a_hold_is_one_of_the_new_binlog(
    engine: IbbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = engine._pages.first_number
    reset = once(lambda: engine.reset())

    def first_number() -> int:
        found = real()
        reset()
        return found

    monkeypatch.setattr(engine._pages, "first_number", first_number)
    assert engine.hold("server_id 7", dump=True).file_no == 0
    assert len(engine.references.holds()) == 1
    engine.close()


def test_groups_of_a_file_that_was_reset(engine: IbbEngine) -> None:
    groups = engine.groups_of_file()
    engine.reset()
    append_all(engine, simple(3))
    engine.sync()
    with pytest.raises(BinlogBegunAnew):
        next(groups)
    engine.close()


@pytest.mark.parametrize("domains", [1, 4000])
def test_where_the_new_binlog_is_whole(monkeypatch: pytest.MonkeyPatch, domains: int) -> None:
    engine = IbbEngine(MemoryDisk(), small(pages=16))
    engine.reset(BinlogState([Gtid(d, 1, 7) for d in range(domains)]))  # a state of several pages
    append_all(engine, simple(20, first=8))
    engine.sync()
    real = halves.behind_halves
    reset = once(lambda: engine.reset())

    def behind_halves(*args: Any) -> Any:
        found = real(*args)
        reset()
        return found

    monkeypatch.setattr(store, "behind_halves", behind_halves)
    engine.first_start()
    groups = simple(2000)
    append_all(engine, groups)
    engine.sync()
    assert engine.first_start().state == BinlogState()
    assert read_from(engine, engine.first_start().position) == payloads(groups)
    engine.close()


def test_what_was_known_of_whole_files_is_forgotten() -> None:
    engine = IbbEngine(MemoryDisk(), small(pages=16))
    engine.reset(BinlogState([Gtid(d, 1, 7) for d in range(4000)]))
    append_all(engine, simple(20, first=8))
    engine.sync()
    assert engine.first_start().position.offset > PAGE_SIZE + 100
    engine.reset()
    append_all(engine, simple(20))
    engine.sync()
    assert read_from(engine, engine.first_start().position) == payloads(simple(20))
    engine.close()


def test_files_of_another_size_are_searched_to_their_end() -> None:
    disk = MemoryDisk()
    options = small(pages=8, innodb_log_file_size=1 << 20)
    engine = IbbEngine(disk, options)
    append_all(engine, simple(50, size=1000))
    engine.sync()
    engine.find_start(SlavePosition([Gtid(0, 1, 40)]))
    engine.set_option("max_binlog_size", 32 * PAGE_SIZE)
    engine.reset()
    append_all(engine, simple(400, size=1000))
    engine.checkpoint()
    at = SlavePosition([Gtid(0, 1, 390)])
    found = engine.find_start(at)
    engine.close()
    again = IbbEngine(disk, options)
    assert found == again.find_start(at)
    again.close()


def test_a_page_that_was_being_read(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not kept for the page of that number in the new binlog."""
    # State records are far apart: pages of a large group go to the file together, and are not kept themselves.
    engine = IbbEngine(disk, small(pages=64, interval=32, page_cache_bytes=1))
    append_all(engine, simple(4000, size=200))
    engine.checkpoint()
    groups = [*simple(1), group(Gtid(0, 1, 2), 20 * PAGE_SIZE), *simple(9, first=3)]

    def begin_anew() -> None:
        engine.reset()
        append_all(engine, groups)
        engine.checkpoint()

    real = engine._pages._read

    def read(*args: Any, **more: Any) -> Any:
        monkeypatch.undo()
        file, *rest = args
        pread = file.pread

        def pread_and_begin_anew(size: int, offset: int) -> bytes:
            data: bytes = pread(size, offset)
            begin_anew()
            return data

        file.pread = pread_and_begin_anew
        return real(file, *rest, **more)

    monkeypatch.setattr(engine._pages, "_read", read)
    engine._pages.page(0, 8)
    assert read_all(engine) == payloads(groups)
    engine.close()


# --- RESET MASTER between a number and its group ---

COMMITS: dict[str, Callable[[IbbEngine, int], object]] = {
    "a marker": lambda engine, age: engine.append(group(Gtid(0, 1, 1)).payload, None, age),
    "a group": lambda engine, age: engine.append(*group(Gtid(0, 1, 402)), age),
    "a large group": lambda engine, age: engine.append(
        *group(Gtid(0, 1, 402), engine.cache_bytes + 1), age
    ),
    "groups of an upstream": lambda engine, age: one_run(engine, age),
    "a transaction": lambda engine, age: transaction(engine, 100, age),
    "one that spills at its end": lambda engine, age: transaction(engine, 32 * 1024, age),
}


def one_run(engine: IbbEngine, age: int) -> object:
    run = GroupRun.of([group(Gtid(0, 1, 402)).payload], [Gtid(0, 1, 402)])
    return engine.append_run(run, 0, age)


def transaction(engine: IbbEngine, size: int, age: int) -> object:
    gtid = Gtid(0, 1, 402)
    event = group(gtid).payload
    made = Transaction(engine)
    made.write(event * (size // len(event)))
    try:
        return made.commit(event, gtid, age)
    except BinlogBegunAnew:
        made.rollback()
        raise


@pytest.mark.parametrize("commit", COMMITS)
def test_a_number_of_another_age_is_not_stored(engine: IbbEngine, commit: str) -> None:
    COMMITS[commit](engine, engine.age)
    age = engine.age
    engine.reset()
    with pytest.raises(BinlogBegunAnew):
        COMMITS[commit](engine, age)
    assert not engine.binlog_state()
    assert engine.references.holds() == []
    COMMITS[commit](engine, engine.age)
    engine.close()


# --- a state for an empty binlog ---


def test_only_an_empty_binlog_is_given_a_state() -> None:
    """A commit that came while it waited for a checkpoint was acknowledged, and stays."""
    engine = IbbEngine(MemoryDisk(), small())
    told: list[BaseException] = []

    def give() -> None:
        try:
            engine.reset(BinlogState([Gtid(0, 9, 100)]), only_if_empty=True)
        except BinlogHasGtids as error:
            told.append(error)

    giving = threading.Thread(target=give)
    with engine._flusher.working:
        giving.start()
        giving.join(A_MOMENT)
        assert giving.is_alive()
        engine.append(*group(Gtid(1, 1, 1)))
        engine.sync()
    giving.join(TIME_OUT)
    assert len(told) == 1
    assert read_all(engine) == payloads([group(Gtid(1, 1, 1))])
    engine.reset()
    give()
    assert engine.binlog_state() == BinlogState([Gtid(0, 9, 100)])
    engine.close()


# --- what is left of the old binlog ---


def test_who_appends_meanwhile_writes_into_the_new_binlog(
    engine: IbbEngine, disk: MemoryDisk
) -> None:
    """An upstream's group, say, for which no age is given: it waits, and is not lost with the old files."""
    ((payload, gtid),) = simple(1, first=402)
    appending = threading.Thread(target=lambda: engine.append(payload, gtid))

    def arrives() -> None:
        appending.start()
        appending.join(A_MOMENT)
        assert appending.is_alive(), "it did not wait"

    arrive = once(arrives)

    def fault(kind: str, name: str) -> None:
        if STEPS["a file is deleted"](kind, name):
            arrive()

    disk.fault = fault
    engine.reset()
    disk.fault = None
    appending.join(TIME_OUT)
    assert engine.binlog_state().entries() == [gtid]
    engine.sync()
    assert read_all(engine) == [payload]
    engine.close()


@pytest.mark.parametrize("step", STEPS)
def test_an_error_in_the_middle_ends_writing(
    engine: IbbEngine, disk: MemoryDisk, step: str
) -> None:
    """Nobody knows then what there is: nothing is acknowledged that no start would find."""

    def fault(kind: str, name: str) -> None:
        if STEPS[step](kind, name):
            raise DiskError(f"cannot {kind} {name}: Input/output error (injected)")

    disk.fault = fault
    with pytest.raises(DiskError):
        engine.reset()
    disk.fault = None
    with pytest.raises(StoreFailed):
        engine.append(*group(Gtid(0, 1, 402)))
    engine.close()


def test_what_was_about_to_be_published_is_forgotten(disk: MemoryDisk) -> None:
    """Told in the new epoch it would be durable data that nobody has: the next start would refuse the store."""
    engine = IbbEngine(disk, small())
    append_all(engine, simple(400, size=200))
    engine.sync()
    append_all(engine, simple(1, first=401))
    assert not engine._flusher.publish(), "it is noted, and waits to be durable"
    engine.reset()
    run_dry(engine)
    told = read_published(disk)
    assert told is not None
    assert told.end <= engine.durable_end
    append_all(engine, simple(2))
    engine.sync()
    disk.crash()
    opens_with(disk, small(), simple(2))


def test_what_was_published_of_the_old_binlog_says_nothing_of_the_new_one(
    engine: IbbEngine, disk: MemoryDisk
) -> None:
    """A crash before the first publication of the new epoch."""
    settle(engine)
    before = read_published(disk)
    engine.reset()
    append_all(engine, simple(2))
    engine.sync()
    assert read_published(disk) == before
    disk.kill()  # the publication is not synced, and stays
    opens_with(disk, small(), simple(2))


def test_the_new_epoch_is_published_though_it_ends_where_the_old_one_did(disk: MemoryDisk) -> None:
    engine = IbbEngine(disk, small())
    for state in ("0-1-7", "0-1-8"):
        engine.reset(BinlogState.parse(state))
        settle(engine)
        told = read_published(disk)
        assert told is not None
        assert told.state == state
    engine.close()


def test_a_start_marker_is_the_last_thing_of_one_binlog_only(engine: IbbEngine) -> None:
    """An upstream that sends it again is right to: the new binlog has none."""
    marker = StartMarker(FormatDescription("10.11.19-MariaDB-log", 1)).payload
    engine.append(marker, None)
    assert engine.last_marker == marker
    engine.reset()
    assert engine.last_marker is None
    engine.close()


def test_a_name_holds_nothing_of_an_empty_binlog() -> None:
    engine = IbbEngine(MemoryDisk(), small())
    lease = engine.hold("the lease 'x'")
    engine.reset()
    append_all(engine, simple(1))
    with pytest.raises(BinlogInUse):
        engine.reset()
    lease.release()
    engine.reset()
    engine.close()
