"""Back-pressure: who appends waits, goes on when there is room, and never waits for nothing."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog import room
from binlog_storage.binlog.limits import largest_step
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import DiskError, DiskFull, StorageError, StoreFailed, WaitGivenUp
from binlog_storage.ibb.file_names import file_name
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import append_all, group, opens_with, read_all, simple
from tests.storage.sizes import small

LARGE = small(1024, 128, innodb_log_file_size=2 << 20)
DEADLINE = 20.0


def test_the_log_is_never_overfull() -> None:
    """Without syncs, files or threads: appending makes room itself, whatever the sizes."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, LARGE)
    redo = engine._redo
    total = 0
    for number in range(1, 60):
        size = (100, 5000, 200_000, 512 * 1024)[number % 4]
        engine.append(*group(Gtid(0, 1, number), size))
        total += size
        assert redo.lsn - redo.checkpoint_lsn <= redo.capacity
    assert total > 4 * redo.capacity
    assert engine.counters()["Innodb_log_waits"] > 3
    engine.sync()
    disk.crash()
    engine = IbbEngine(disk, LARGE)
    assert str(engine.binlog_state()) == "0-1-59"
    engine.close()


def test_has_room() -> None:
    engine = IbbEngine(MemoryDisk(), LARGE)
    redo = engine._redo
    assert engine.has_room
    number = 0
    while engine.has_room:
        number += 1
        engine.append(*group(Gtid(0, 1, number), 9000))
    assert redo.room() < engine._writer.redo_bytes(largest_step(engine.cache_bytes))
    assert redo.room() > 300_000 // 8, "there is still some for those who do not ask"
    assert engine.wait_for_room(0.0) in (True, False)
    assert engine.wait_for_room()
    assert engine.has_room
    engine.close()


@pytest.mark.long
def test_room_holds_for_the_largest_group_in_one_piece() -> None:
    """With a small log, too: a thread that must not block asks, and does not wait then."""
    engine = IbbEngine(MemoryDisk(), LARGE)
    asked = refused = 0
    for number in range(1, 400):
        if engine.has_room:
            asked += 1
            engine.append(*group(Gtid(0, 1, number), (9000, 9000, engine.cache_bytes)[number % 3]))
        else:
            refused += 1
            engine.wait_for_room()
    assert asked > 300
    assert refused > 20
    assert engine.counters()["Innodb_log_waits"] == 0
    engine.close()


@pytest.mark.long
def test_a_group_that_needs_most_of_the_log_gets_it() -> None:
    """The state records that may come with it count. A checkpoint was due with half of the log in use only: the group
    waited for it, and it for more groups."""
    options = small(64, 128, innodb_log_file_size=2 << 20)
    engine = IbbEngine(MemoryDisk(), options, background=True)
    engine.reset(BinlogState(Gtid(domain, 1, 1 << 40) for domain in range(60_000)))
    redo = engine._redo
    assert redo.capacity // 2 < engine._writer.redo_bytes(2000) < redo.room_when_empty

    def append() -> None:
        for number in range(1, 1200):
            engine.append(*group(Gtid(60_000, 1, number), 2000))
            engine.sync()

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    thread.join(2 * DEADLINE)
    assert not thread.is_alive()
    assert engine.counters()["Binlog_commits"] == 1199
    assert engine.counters()["Innodb_log_waits"] > 0
    engine.close()


def test_the_buffer_is_bounded() -> None:
    options = small(64, innodb_log_buffer_size=20_000, innodb_log_file_size=4 << 20)
    engine = IbbEngine(MemoryDisk(), options)
    for number in range(1, 100):
        engine.append(*group(Gtid(0, 1, number), 3000))
        assert engine._redo.lsn - engine._redo.written_lsn < 20_000 + 4000
    engine.close()


def test_pages_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binlog_storage.binlog.bounds.FIFO_PAGES_MAX", 10)
    engine = IbbEngine(MemoryDisk(), LARGE)
    for number in range(1, 100):
        engine.append(*group(Gtid(0, 1, number), 12_000))
        assert engine._pages.waiting <= 11
    assert engine.counters()["Binlog_page_waits"] > 3
    engine.close()


class Waiting:
    """An engine whose disk is full for files: background threads wait for room."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.engine = IbbEngine(self.disk, small(8), background=True)
        self.engine.keeper.caretaker.stop()
        for name in self.disk.names():
            if name > file_name(0) and name.endswith(".ibb"):
                self.disk.unlink(name)
        self.engine._pages.files._made_ahead.clear()
        self.disk.file_bytes_max = 0

    def room(self) -> None:
        self.disk.file_bytes_max = 1 << 40
        self.engine._full.freed()  # as a purge says it


def test_commits_go_on_while_there_is_no_room_for_a_file() -> None:
    """Until the bounds are met; then who asks is told, who does not waits, and all goes on when there is room."""
    waiting = Waiting()
    engine = waiting.engine
    number = 0
    deadline = time.monotonic() + DEADLINE
    while engine.has_room and time.monotonic() < deadline:
        number += 1
        engine.append(*group(Gtid(0, 1, number), 3000))
        engine.sync()
        assert engine.durable_end == engine.written_end
    assert not engine.has_room
    assert number > 30
    assert engine.written_end.file_no == 1
    assert len(read_all(engine)) == number
    assert not engine.wait_for_room(0.1)
    done = threading.Event()

    def append() -> None:
        append_all(engine, simple(100, first=number + 1, size=3000))
        engine.sync()
        done.set()

    thread = threading.Thread(target=append)
    thread.start()
    assert not done.wait(0.2)
    engine.sync()  # that is never in the way
    assert engine.written_end.file_no == 1, "a third file would not be found by recovery"
    waiting.room()
    assert engine.wait_for_room(DEADLINE)
    assert done.wait(DEADLINE)
    thread.join(DEADLINE)
    assert len(read_all(engine)) == number + 100
    engine.close()
    assert len(read_all(IbbEngine(waiting.disk, small(8)))) == number + 100


def test_who_must_not_block_is_not_refused_for_a_pause_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It found the moment over, in which nobody could make room: a commit was refused for nothing."""
    waiting = Waiting()
    engine = waiting.engine
    engine.never_wait_in(threading.get_ident())
    monkeypatch.setattr(room, "MOMENT_S", 0.0)
    groups = (simple(1, first=number, size=3000) for number in itertools.count(1))
    with pytest.raises(WaitGivenUp):
        append_all(engine, itertools.chain.from_iterable(groups))
    appended = len(engine.binlog_state()) and next(iter(engine.binlog_state().entries())).seq_no
    wait_once, waits = engine._room._wait_once, 0

    def others_have_their_turn() -> None:
        nonlocal waits
        waits += 1
        if waits == 2:
            waiting.room()
        wait_once()

    monkeypatch.setattr(engine._room, "_wait_once", others_have_their_turn)
    monkeypatch.setattr(room, "MOMENT_S", -3.0)  # it stood still for so long
    append_all(engine, simple(1, first=appended + 1, size=3000))
    assert waits >= 2
    engine.never_wait_in(0)
    engine.sync()
    assert len(read_all(engine)) == appended + 1
    engine.close()


def test_nobody_waits_for_a_store_that_failed() -> None:
    waiting = Waiting()
    engine = waiting.engine
    errors: list[StorageError] = []

    def append() -> None:
        try:
            append_all(engine, simple(1000, size=3000))
        except StorageError as error:
            errors.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    deadline = time.monotonic() + DEADLINE
    while engine.has_room and time.monotonic() < deadline:
        time.sleep(0.001)
    engine._durability.fail(DiskError("as another thread would tell"))
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert isinstance(errors[0], StoreFailed)
    assert engine.wait_for_room()
    waiting.room()
    engine.close()


def test_closing_while_the_disk_is_full() -> None:
    """Nobody is kept waiting, and all that was durable is found again."""
    waiting = Waiting()
    engine = waiting.engine
    append_all(engine, simple(45, size=3000))
    engine.sync()
    engine.close()
    waiting.disk.crash()
    waiting.disk.file_bytes_max = 1 << 40
    opens_with(waiting.disk, small(8), simple(45, size=3000))


def test_a_log_too_small_for_the_state_says_so() -> None:
    """Before anything was written; and with a larger one the store goes on."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(8))

    def append_many() -> None:
        for domain in range(100_000):
            engine.append(*group(Gtid(domain, 1, 1 << 40)))

    with pytest.raises(StorageError, match=r"larger innodb_log_file_size than 262144"):
        append_many()
    count = len(engine.binlog_state())
    assert count > 1000
    engine.sync()
    engine.close()
    larger = small(8, innodb_log_file_size=16 << 20)
    engine = IbbEngine(disk, larger)
    assert engine.binlog_state() == BinlogState(Gtid(n, 1, 1 << 40) for n in range(count))
    engine.append(*group(Gtid(count, 1, 1)))
    engine.close()


def test_a_full_disk_at_the_redo_log_cannot_be() -> None:
    """All of it was written when it was made."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(8))
    disk.capacity = disk.used()
    append_all(engine, simple(30, size=2000))
    engine.sync()
    assert len(disk.contents()[REDO_NAME]) == small(8).innodb_log_file_size
    assert len(read_all(engine)) == 30
    disk = MemoryDisk()
    disk.capacity = 200_000
    with pytest.raises(DiskFull):
        IbbEngine(disk, small(8))
