"""The snapshot file: what it holds, when it is made, and that the log is free behind it."""

from __future__ import annotations

import itertools
import random
import threading
from functools import partial
from unittest import mock

import pytest
from binlog_storage.binlog.options import UNDO_NEVER
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.engine import Xid
from binlog_storage.errors import (
    CorruptRedo,
    CorruptTables,
    DiskError,
    DiskFull,
    LockWaitTimeout,
)
from binlog_storage.redo.format import CHECKPOINT_AT, REDO_NAME, RING_AT, Checkpoint
from binlog_storage.tables import snapshot
from binlog_storage.tables.snapshot import TABLES_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.disks import fails_to_sync
from tests.storage.groups import simple
from tests.storage.tables.test_take_changes import chain_of, versions_of
from tests.storage.tables.test_transactions import (
    T,
    commit,
    crashed,
    engine_with,
    opened,
    rows,
    until,
)


def contents(disk: MemoryDisk) -> dict[str, bytes]:
    """All files as they are now."""
    found = {}
    for name in disk.names():
        file = disk.open(name)
        found[name] = file.pread(file.size(), 0)
        file.close()
    return found


def test_a_transaction_larger_than_the_log() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"kept": b"1"})
    t = engine.tables.begin()
    t.delete(T, b"kept")
    mark = t.savepoint()
    size = 0
    while size < 5 * engine._redo.capacity:
        t.put(T, b"%07d" % size, b"x" * 3000)
        size += 3000
    assert engine._snapshots.made >= 5
    engine.sync()
    changes = t.changes
    engine = crashed(engine, disk)
    assert engine.rows_to_undo == changes
    assert rows(engine) == {b"kept": b"1"}
    while engine.step():
        pass
    assert rows(engine) == {b"kept": b"1"}
    t = engine.tables.begin()
    t.delete(T, b"kept")
    mark = t.savepoint()
    for n in range(1500):
        t.put(T, b"%07d" % n, b"y" * 1000)
    t.rollback_to(mark)
    commit(engine, t)
    engine.sync()
    engine = crashed(engine, disk)
    assert rows(engine) == {}
    assert len(engine.binlog_state().entries()) == 1


@pytest.mark.long
def test_many_starts_with_a_full_log() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)
    t = engine.tables.begin()
    redo = engine._redo
    engine._snapshots._due_from = 1 << 60
    engine._room.admit = lambda *_: None  # type: ignore[method-assign]
    row = 0
    while redo.room() > 6000:
        t.put(T, b"%d" % row, b"z" * 700)
        row += 1
    engine.sync()
    for _ in range(200):
        disk.crash()
        engine = opened(disk)
        assert engine.rows_to_undo == row
    assert len(engine.tables.memory.tables[T]) == row


@pytest.mark.parametrize("seed", range(6))
def test_a_snapshot_while_rows_change(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two rows of the snapshot others change, commit and undo; what it holds and the log agree."""
    rng = random.Random(seed)
    monkeypatch.setattr(snapshot, "STEP_ROWS", 1)
    disk = MemoryDisk()
    model: dict[bytes, bytes | None] = {b"%d" % n: b"old" for n in range(30)}
    engine = engine_with(disk, {b"%d" % n: b"old" for n in range(30)})
    held = engine.tables.begin()  # open all the time
    for n in range(30, 34):
        held.put(T, b"%d" % n, b"held")
    held.put(T, b"3", b"held")
    held.put(T, b"3", b"held more")
    other = engine.tables.begin()  # open at the beginning
    other.put(T, b"4", b"other")
    other.delete(T, b"5")
    marks = [held.savepoint()]

    def change() -> None:
        for key in rng.sample(range(6, 30), 2):
            t = engine.tables.begin()
            name = b"%d" % key
            if rng.random() < 0.3:
                t.delete(T, name)
                row = None
            else:
                row = b"new %d" % rng.randrange(1000)
                t.put(T, name, row)
            if rng.random() < 0.3:
                t.rollback()
            else:
                t.commit()
                model[name] = row
        if rng.random() < 0.3:
            held.put(T, b"%d" % rng.choice([3, 30, 31, 35, 36]), b"%d" % rng.randrange(99))
        elif rng.random() < 0.3:
            held.rollback_to(marks[0])
        if rng.random() < 0.1 and not other.ended:
            if rng.random() < 0.5:
                other.commit()
                model.update({b"4": b"other", b"5": None})
            else:
                other.rollback()

    write = snapshot.write
    monkeypatch.setattr(snapshot, "write", partial(write, pause=change))
    engine._snapshots.make()
    for _ in range(3):
        change()
    engine.sync()
    nodes = chain_of(held._trx)
    expected = {key: row for key, row in model.items() if row is not None}
    assert rows(engine) == expected
    newest = {
        key: version.row
        for key, version in versions_of(engine.tables.memory.tables[T]).items()
        if version.row is not None
    }
    engine = crashed(engine, disk)
    assert rows(engine) == expected
    found = versions_of(engine.tables.memory.tables[T])
    assert {k: v.row for k, v in found.items() if v.row is not None} == newest
    assert chain_of(engine.tables.open[held.id]) == nodes
    while engine.step():
        pass
    assert rows(engine) == expected


def test_a_snapshot_never_has_more_than_the_log() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"a", b"2")
    engine._snapshots.make()
    t.commit()
    engine = crashed(engine, disk)
    assert rows(engine) == {b"a": b"1"}
    assert engine.rows_to_undo == 1


@pytest.mark.parametrize(
    "what", ["torn", "missing", "older", "of another store", "the log is older"]
)
def test_a_snapshot_that_does_not_fit_is_refused(what: str) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    engine._snapshots.make()
    older = contents(disk)
    t = engine.tables.begin()
    t.put(T, b"a", b"2" * 9000)
    t.commit()
    engine._snapshots.make()
    engine.close()
    files = contents(disk)
    if what == "torn":
        data = bytearray(files[TABLES_NAME])
        data[random.Random(what).randrange(len(data))] ^= 1
        files[TABLES_NAME] = bytes(data)
    elif what == "missing":
        del files[TABLES_NAME]
    elif what == "older":
        files[TABLES_NAME] = older[TABLES_NAME]
    elif what == "of another store":
        other = MemoryDisk()
        engine = engine_with(other)
        for _ in range(3):
            engine._snapshots.make()
        files[TABLES_NAME] = contents(other)[TABLES_NAME]
    else:
        files[REDO_NAME] = older[REDO_NAME]
    disk = MemoryDisk(files)
    with pytest.raises((CorruptTables, CorruptRedo)):
        opened(disk)
    assert contents(disk) == files, "a start that was refused has changed something"


@pytest.mark.parametrize("byte", range(0, 200, 7))
def test_any_torn_byte_is_seen(byte: int) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"b", b"2")
    engine._snapshots.make()
    engine.close()
    files = contents(disk)
    data = bytearray(files[TABLES_NAME])
    data[byte % len(data)] ^= 0x10
    with pytest.raises(CorruptTables):
        opened(MemoryDisk(files | {TABLES_NAME: bytes(data)}))


def test_another_size_of_the_log() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"a", b"2")
    engine.sync()
    engine = crashed(engine, disk, innodb_log_file_size=1 << 20)
    assert engine.rows_to_undo == 1
    assert rows(engine) == {b"a": b"1"}
    engine = crashed(engine, disk)
    assert engine.rows_to_undo == 1


def test_groups_alone_write_no_snapshot() -> None:
    """They fill the log of a store with tables as any other; where no row has changed, the last snapshot goes on."""
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"b", b"open")
    engine._snapshots.make()
    groups = simple(400, size=3000)
    for life in range(2):
        begun = engine._redo.lsn
        for one in groups[life * 200 : life * 200 + 200]:
            engine.append(*one)
            engine.sync()
            engine.step()
        assert engine._redo.lsn - begun > 2 * engine._redo.capacity
        assert engine._snapshots.made == (life == 0)
        assert engine._redo.checkpoint.tables is not None
        assert engine._redo.checkpoint.tables.snapshot == 1
        assert engine._redo.checkpoint.tables.lsn > begun
        engine = crashed(engine, disk, undo_at_start=UNDO_NEVER)
        assert rows(engine) == {b"a": b"1"}
        assert engine.rows_to_undo == 1
    t = engine.tables.begin()
    t.put(T, b"a", b"2")
    t.commit()
    engine._snapshots.make()
    engine._snapshots.make()
    assert engine._snapshots.made == 1
    engine = crashed(engine, disk)
    assert rows(engine) == {b"a": b"2"}


def test_a_binlog_that_was_deleted_by_hand(caplog: pytest.LogCaptureFixture) -> None:
    """Its files alone: a start is refused. With innodb_force_recovery=6 the rows are those of the redo log."""
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"b", b"prepared")
    Transaction(engine.writer_of(t)).prepare(Xid(1, b"xa"))
    engine.tables.begin().put(T, b"c", b"open")
    t = engine.tables.begin()
    t.put(T, b"a", b"2")
    commit(engine, t)
    engine.sync()
    disk.crash()
    for name in disk.names():
        if name.endswith(".ibb"):
            disk.unlink(name)
    with pytest.raises(CorruptRedo, match="is missing"):
        opened(disk)
    engine = opened(disk, innodb_force_recovery=6)
    assert rows(engine) == {b"a": b"2"}
    assert not engine.prepared()
    assert not engine.binlog_state().entries()
    assert "the binlog does not know the prepared XA transaction" in caplog.text
    for _ in range(2):
        while engine.step():
            pass
        assert rows(engine) == {b"a": b"2"}
        assert not engine.tables.open
        t = engine.tables.begin()
        t.lock_wait_s = 0.0
        for key in (b"b", b"c"):
            t.lock(T, key)
        t.rollback()
        engine.sync()
        engine = crashed(engine, disk)


@pytest.mark.parametrize("torn", ["in front of its rows", "behind some"])
def test_as_much_of_the_log_as_can_be_read(torn: str) -> None:
    """With innodb_force_recovery=6."""
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    engine._snapshots.make()
    places = []
    for n in range(2, 20):
        places.append(engine._redo.lsn)
        t = engine.tables.begin()
        t.put(T, b"a", b"%d" % n)
        t.commit()
        engine.sync()
    disk.crash()
    files = contents(disk)
    redo = bytearray(files[REDO_NAME])
    redo[RING_AT + places[0 if torn == "in front of its rows" else 9] + 30] ^= 1
    disk = MemoryDisk(files | {REDO_NAME: bytes(redo)})
    with pytest.raises(CorruptRedo):
        opened(disk)
    engine = opened(disk, innodb_force_recovery=6)
    assert rows(engine) == {b"a": b"1" if torn == "in front of its rows" else b"10"}


def test_without_the_log() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    open_one = engine.tables.begin()
    open_one.put(T, b"b", b"2")
    engine._snapshots.make()
    engine.close()
    disk.unlink(REDO_NAME)
    for _ in range(2):
        engine = opened(disk, innodb_force_recovery=6)
        assert rows(engine) == {b"a": b"1"}
        engine.close()
        disk.unlink(REDO_NAME)
    engine = opened(disk)
    assert rows(engine) == {b"a": b"1"}
    assert not engine.tables.open


def test_reset_master_keeps_rows() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"b", b"2")
    commit(engine, t)
    open_one = engine.tables.begin()
    open_one.put(T, b"c", b"3")
    engine.reset()
    engine = crashed(engine, disk)
    assert rows(engine) == {b"a": b"1", b"b": b"2"}
    assert engine.rows_to_undo == 1
    assert not engine.binlog_state().entries()
    t = engine.tables.begin()
    t.put(T, b"d", b"4")
    commit(engine, t)
    engine.sync()
    engine = crashed(engine, disk)
    assert rows(engine)[b"d"] == b"4"


def test_rows_behind_a_sync_that_failed_outlive_the_next_start() -> None:
    """A start that has read them says that they are durable: they are in the log alone, and the kernel has given up."""
    disk = MemoryDisk()
    disk.failed_sync_forgets = True
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"b", b"2")
    commit(engine, t)
    disk.fault = fails_to_sync
    with pytest.raises(DiskError):
        engine.sync()
    disk.fault = None
    disk.kill()
    engine = opened(disk)
    assert rows(engine) == {b"a": b"1", b"b": b"2"}
    for _ in range(2):  # of the two checkpoint blocks neither is from before
        t = engine.tables.begin()
        t.put(T, b"c", b"3")
        commit(engine, t)
        engine.checkpoint()
    assert engine._redo.tables_hold
    engine = crashed(engine, disk)
    assert rows(engine) == {b"a": b"1", b"b": b"2", b"c": b"3"}


def left_by_a_reset_that_failed() -> MemoryDisk:
    """The process is dead: the kernel shows a checkpoint that says there is no binlog, and will never write it."""
    disk = MemoryDisk()
    disk.failed_sync_forgets = True
    engine = engine_with(disk, {b"a": b"1"})
    t = engine.tables.begin()
    t.put(T, b"b", b"2")
    commit(engine, t)
    engine.checkpoint()

    def fault(kind: str, name: str) -> None:
        log = disk.contents()[REDO_NAME]
        checkpoints = [Checkpoint.parse(log[at:]) for at in CHECKPOINT_AT]
        if any(found is not None and found.end is None for found in checkpoints):
            fails_to_sync(kind, name)

    disk.fault = fault
    with pytest.raises(DiskError):
        engine.reset()
    disk.fault = None
    disk.kill()
    return disk


def test_a_power_cut_in_the_start_behind_a_reset_that_failed() -> None:
    """The start removes files, which the checkpoint that is on the disk needs."""
    for stop in itertools.count(1):
        disk = left_by_a_reset_that_failed()
        disk.fail_at = disk.operations + stop
        try:
            engine = opened(disk)
        except DiskError:
            disk.crash()
            engine = opened(disk)
            assert rows(engine) == {b"a": b"1", b"b": b"2"}
        else:
            break
    assert stop > 5


def test_a_full_disk_leaves_the_snapshot_before() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"%d" % n: b"x" * 1000 for n in range(50)})
    engine._snapshots.make()
    made = contents(disk)[TABLES_NAME]

    def full(what: str, name: str) -> None:
        if name == f"{TABLES_NAME}.new" and what == "write":
            raise DiskFull("no space")

    disk.fault = full
    t = engine.tables.begin()
    t.put(T, b"0", b"2")
    commit(engine, t)  # there is room in the log
    with pytest.raises(DiskFull):
        engine._snapshots.make()
    assert contents(disk)[TABLES_NAME] == made
    engine._snapshots._due_from = 0
    engine.step()
    assert [s.what for s in engine.stalled()] == ["tables"]
    disk.fault = None
    engine.step()
    assert not engine.stalled()
    engine.sync()
    engine = crashed(engine, disk)
    assert rows(engine)[b"0"] == b"2"


def test_writers_wait_for_the_snapshot_and_go_on() -> None:
    disk = MemoryDisk()
    IbbEngine(disk, opened(MemoryDisk())._options).close()
    engine = IbbEngine(disk, opened(MemoryDisk())._options, background=True)
    t = engine.tables.begin()
    t.create_table(T, b"")
    t.commit()
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for n in range(150):
                t = engine.tables.begin()
                t.put(T, b"%d %d" % (number, n), b"x" * 2000)
                t.put(T, b"all", b"%d" % number)
                if n % 7 == 0:
                    t.rollback()
                else:
                    commit(engine, t)
        except (DiskError, LockWaitTimeout) as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert engine._snapshots.made >= 4
    expected = rows(engine)
    assert len(expected) == 4 * (150 - 22) + 1
    assert not len(engine.tables.locks)
    engine.close()
    engine = opened(disk)
    assert rows(engine) == expected


def test_a_full_disk_is_not_tried_by_each_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """They say so ten times a second; the thread tries again after its pause, and at once when files are purged."""
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    snapshots = engine._snapshots
    worker, tries = snapshots.worker, 0

    def full(what: str, name: str) -> None:
        nonlocal tries
        if name == f"{TABLES_NAME}.new" and what == "write":
            tries += 1
            raise DiskFull("no space")

    disk.fault = full
    snapshots._due_from = 0
    engine.tables.begin().put(T, b"a", b"2")
    assert snapshots.due
    worker.start()
    try:
        until(lambda: bool(worker.failure))
        until(lambda: not worker._poked.is_set())  # one who has come while it tried
        poke, before = mock.Mock(), tries
        with monkeypatch.context() as patch:
            patch.setattr(worker, "poke", poke)
            for _ in range(20):
                assert not snapshots.relieve()
                snapshots.look()
                snapshots.logged()
            assert not poke.called
        assert tries == before
        disk.fault = None
        engine._full.freed()
        until(lambda: not worker.failure)
        assert not snapshots.due
    finally:
        worker.stop()


def test_a_number_that_is_used_again() -> None:
    """Rows of a table that a large transaction has dropped do not come back with the next one of its number."""
    disk = MemoryDisk()
    engine = engine_with(disk)
    t = engine.tables.begin()
    t.create_table(T + 1, b"old")
    for n in range(100):
        t.put(T + 1, b"%d" % n, b"old")
    t.commit()
    t = engine.tables.begin()
    t.drop_table(T + 1)
    for n in range(500):
        t.put(T, b"%d" % n, b"new")
    engine.sync()
    engine._snapshots.make()  # with its chain, which a start leaves packed
    t.commit()
    t = engine.tables.begin()
    t.create_table(T + 1, b"new")
    t.put(T + 1, b"1", b"new")
    t.commit()
    engine.sync()
    assert dict(engine.tables.scan(T + 1)) == {b"1": b"new"}
    for _ in range(2):
        engine = crashed(engine, disk)
        assert dict(engine.tables.scan(T + 1)) == {b"1": b"new"}
        assert len(rows(engine)) == 500
        engine._snapshots.make()


def test_who_waits_for_a_snapshot_that_cannot_be_written_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    snapshots = engine._snapshots

    def read_only(what: str, name: str) -> None:
        if name == f"{TABLES_NAME}.new":
            raise DiskError("Read-only file system")

    disk.fault = read_only
    snapshots._due_from = 0
    engine.tables.begin().put(T, b"a", b"2")
    said = f"wait until {TABLES_NAME} can be written"
    snapshots.worker.step()
    assert said not in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(type(snapshots), "is_wanted", True)
        for _ in range(3):
            snapshots.worker.step()
    assert caplog.text.count(said) == 1
    disk.fault = None
    snapshots.worker.step()
    assert not snapshots.worker.failure
