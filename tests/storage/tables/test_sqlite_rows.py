"""Rows that a SQLite file keeps: whatever is killed where, the next start makes it agree with the binlog."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import Xid
from binlog_storage.errors import CorruptTables, DiskError, DiskFull, LockWaitTimeout, StorageError
from binlog_storage.tables.rows import ELSEWHERE
from binlog_storage.tables.sqlite_rows import SQLITE_NAME, SqliteRows
from binlog_storage.tables.store import TableTransaction

from tests.storage.crash.tables import CLASSIC, AnyEngine
from tests.storage.groups import events, gtid_event

HERE = 5
THERE = 6 | ELSEWHERE
TABLES = (HERE, THERE)
OPTIONS = StoreOptions(max_binlog_size=1 << 17, innodb_log_file_size=1 << 20)
Rows = dict[int, dict[bytes, bytes]]


class Kind:
    """The engine of a test: each runs over both."""

    is_ibb = True


@pytest.fixture(autouse=True, params=[True, False], ids=["ibb", "traditional"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kind, "is_ibb", request.param)


class Store:
    """One life of a store in a directory."""

    def __init__(self, path: Path, keeper: SqliteRows | None = None) -> None:
        self.closed = False
        self.keeper = keeper or SqliteRows(path / SQLITE_NAME)
        disk = OsDisk(path)
        self.engine: AnyEngine
        if Kind.is_ibb:
            self.engine = IbbEngine(disk, OPTIONS, row_keeper=self.keeper)
        else:
            facts = StateStore(disk)
            self.engine = ClassicEngine(disk, CLASSIC, facts=facts, row_keeper=self.keeper)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.engine.close()

    def make_tables(self) -> None:
        self.engine.make_row_keeper()
        trx = self.engine.tables.begin()
        for number in TABLES:
            trx.create_table(number, b"definition")
        trx.commit()
        self.engine.sync()

    def rows(self) -> Rows:
        return {n: dict(self.engine.tables.scan(n)) for n in TABLES}

    def commit(self, trx: TableTransaction, number: int) -> None:
        gtid = Gtid(0, 1, number)
        group = Transaction(self.engine.writer_of(trx))
        group.write(events(200, "data"))
        if not trx.is_elsewhere:
            group.commit(gtid_event(gtid), gtid)
            return
        decision = self.engine.begin_two_phase(trx)
        try:
            group.decide(decision, gtid_event(gtid), gtid)
        finally:
            self.engine.finish_two_phase(decision)

    def prepare(self, xid: Xid, changes: dict[tuple[int, bytes], bytes | None]) -> None:
        trx = self.changed(changes)
        group = Transaction(self.engine.writer_of(trx))
        group.write(events(200, "data"))
        if not trx.is_elsewhere:
            group.prepare(xid)
            return
        decision = self.engine.begin_two_phase(trx, is_xa=True)
        try:
            group.prepare(xid, 2)
        except BaseException:
            self.engine.finish_two_phase(decision)
            raise

    def changed(self, changes: dict[tuple[int, bytes], bytes | None]) -> TableTransaction:
        trx = self.engine.tables.begin()
        for (table, key), row in changes.items():
            if row is None:
                trx.delete(table, key)
            else:
                trx.put(table, key, row)
        return trx

    def put(self, number: int, changes: dict[tuple[int, bytes], bytes | None]) -> None:
        trx = self.changed(changes)
        try:
            self.commit(trx, number)
        except StorageError:
            trx.rollback()
            raise


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    store.make_tables()
    yield store
    store.close()


def again(store: Store, path: Path) -> Store:
    store.close()
    return Store(path)


def test_rows_of_both_are_there_behind_a_start(store: Store, tmp_path: Path) -> None:
    store.put(1, {(HERE, b"a"): b"1", (THERE, b"a"): b"2", (THERE, b"b"): b"3"})
    store.put(2, {(THERE, b"a"): None, (THERE, b"b"): b"4"})
    store.engine._snapshots.make()
    store.put(3, {(THERE, b"c"): b"5"})
    expected = {HERE: {b"a": b"1"}, THERE: {b"b": b"4", b"c": b"5"}}
    assert store.rows() == expected
    store = again(store, tmp_path)
    assert store.rows() == expected
    assert store.keeper.recover() == []
    store.close()


def test_what_was_rolled_back_is_not(store: Store, tmp_path: Path) -> None:
    """Savepoints and rollbacks among changes of both: the log and the chain in memory agree."""
    rng = random.Random(3)
    for number in range(1, 60):
        trx = store.engine.tables.begin()
        marks = [0]
        for _ in range(rng.randrange(12)):
            table, key = rng.choice(TABLES), b"%d" % rng.randrange(9)
            if rng.random() < 0.2:
                trx.rollback_to(rng.choice(marks))
                marks = [mark for mark in marks if mark <= trx.savepoint()]
            elif rng.random() < 0.2:
                marks.append(trx.savepoint())
            elif rng.random() < 0.3:
                trx.delete(table, key)
            else:
                trx.put(table, key, rng.randbytes(5))
        if rng.random() < 0.5:
            store.commit(trx, number)
        else:
            trx.rollback()
        if number % 20 == 0:
            if rng.random() < 0.5:
                store.engine._snapshots.make()
            expected = store.rows()
            store = again(store, tmp_path)
            assert store.rows() == expected
    store.close()


def test_a_long_transaction_in_a_snapshot(store: Store, tmp_path: Path) -> None:
    """The snapshot has its chain, but for what is kept elsewhere; a kill then undoes both."""
    store.put(1, {(HERE, b"a"): b"1", (THERE, b"a"): b"2"})
    expected = store.rows()
    trx = store.engine.tables.begin()
    for i in range(600):
        trx.put(TABLES[i % 2], b"a", b"%d" % i)
    trx.rollback_to(500)
    store.engine._snapshots.make()
    trx.put(HERE, b"b", b"late")
    store.engine.sync()
    copy = tmp_path.with_name(f"{tmp_path.name}-copy")
    shutil.copytree(tmp_path, copy)
    after = Store(copy)
    while after.engine.step():
        pass
    assert after.rows() == expected
    after.close()


def test_it_commits_by_two_phases_alone(store: Store) -> None:
    trx = store.engine.tables.begin()
    trx.put(THERE, b"a", b"1")
    with pytest.raises(StorageError, match="two phases"):
        trx.commit()
    group = Transaction(store.engine.writer_of(trx))
    group.write(events(200, "data"))
    with pytest.raises(StorageError, match="two phases"):
        group.commit(gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
    with pytest.raises(StorageError, match="two phases"):
        Transaction(store.engine.writer_of(trx)).prepare(Xid(1, b"q"))
    decision = store.engine.begin_two_phase(trx)
    trx.put(THERE, b"b", b"1")
    with pytest.raises(StorageError, match="two phases"):  # this one is not prepared there
        trx.commit()
    store.engine.finish_two_phase(decision)
    assert store.keeper.recover() == []
    trx.rollback()


@pytest.mark.parametrize("commit", [True, False])
def test_xa_waits_over_restarts(store: Store, tmp_path: Path, commit: bool) -> None:
    """Rows there stay locked and unseen, as those here; they come, or are forgotten, with the end."""
    store.put(1, {(HERE, b"a"): b"1", (THERE, b"a"): b"1", (THERE, b"b"): b"1"})
    before = store.rows()
    for xid in (Xid(1, b"q"), Xid(1, b"there alone")):
        tables = TABLES if xid.gtrid == b"q" else (THERE,)
        store.prepare(xid, {(table, xid.gtrid): b"new" for table in tables})
    store.prepare(Xid(1, b"here alone"), {(HERE, b"alone"): b"new"})
    store.prepare(Xid(1, b"changes"), {(THERE, b"a"): None, (THERE, b"b"): b"2"})
    for _ in range(2):
        store = again(store, tmp_path)
        store.engine._snapshots.make()
        assert store.rows() == before
        trx = store.engine.tables.begin()
        trx.lock_wait_s = 0.0
        for key in (b"a", b"q", b"there alone"):
            with pytest.raises(LockWaitTimeout):
                trx.put(THERE, key, b"2")
        with pytest.raises(LockWaitTimeout):
            trx.drop_table(THERE)
        trx.rollback()
    for number, xid in enumerate(store.engine.prepared(), 2):
        if commit:
            gtid = Gtid(0, 1, number)
            store.engine.commit_prepared(xid, gtid_event(gtid), gtid)
        else:
            store.engine.rollback_prepared(xid)
    expected = before
    if commit:
        expected = {
            HERE: {b"a": b"1", b"q": b"new", b"alone": b"new"},
            THERE: {b"b": b"2", b"q": b"new", b"there alone": b"new"},
        }
    store.engine.sync()
    for _ in range(2):
        assert store.rows() == expected
        assert store.keeper.recover() == []
        store = again(store, tmp_path)
    store.put(9, {(THERE, b"a"): b"9", (THERE, b"q"): b"9"})
    store.close()


def test_the_same_name_is_another_transaction(store: Store, tmp_path: Path) -> None:
    """A commit of the same XID, long ago, decides nothing about what is prepared here alone."""
    for number in (1, 2):
        gtid = Gtid(0, 1, number)
        store.prepare(Xid(1, b"q"), {(THERE, b"a"): b"%d" % number})
        store.engine.commit_prepared(Xid(1, b"q"), gtid_event(gtid), gtid)
    trx = store.engine.tables.begin()
    trx.put(THERE, b"a", b"never")
    store.engine.begin_two_phase(trx, is_xa=True)
    assert len(store.keeper.recover()) == 1
    store.keeper.close()  # and it is killed before the binlog has it
    copy = tmp_path.with_name(f"{tmp_path.name}-copy")
    shutil.copytree(tmp_path, copy)
    after = Store(copy)
    assert after.rows()[THERE] == {b"a": b"2"}
    assert after.keeper.recover() == []
    after.close()
    trx.rollback()


def test_what_is_not_prepared_everywhere_is_rolled_back(store: Store, tmp_path: Path) -> None:
    """As of a file that was restored from an older copy."""
    store.prepare(Xid(1, b"q"), {(HERE, b"a"): b"1", (THERE, b"a"): b"1"})
    (name,) = store.keeper.recover()
    store.keeper.rollback(name)
    (tmp_path / SQLITE_NAME).rename(tmp_path / "away")
    store.close()
    with pytest.raises(CorruptTables, match="is missing"):  # and nothing is decided
        Store(tmp_path)
    (tmp_path / "away").rename(tmp_path / SQLITE_NAME)
    store = Store(tmp_path)
    assert store.engine.prepared() == []
    while store.engine.rows_to_undo:
        store.engine._rows.undo_step()
    store.put(1, {(HERE, b"b"): b"1", (THERE, b"a"): b"1"})
    assert store.rows() == {HERE: {b"b": b"1"}, THERE: {b"a": b"1"}}
    store.close()


def test_dropped_tables_leave_no_rows(store: Store, tmp_path: Path) -> None:
    store.put(1, {(THERE, b"a"): b"1"})
    trx = store.engine.tables.begin()
    trx.drop_table(THERE)
    trx.commit()
    store = again(store, tmp_path)
    assert list(store.keeper.rows()) == []
    store.close()


def test_the_file_of_another_store(store: Store, tmp_path: Path) -> None:
    store.put(1, {(THERE, b"a"): b"1"})
    store.close()
    other = tmp_path.with_name(f"{tmp_path.name}-other")
    other.mkdir()
    shutil.copy(tmp_path / SQLITE_NAME, other)
    with pytest.raises(CorruptTables, match="that of another store"):
        Store(other)
    (tmp_path / SQLITE_NAME).rename(tmp_path / "away")
    with pytest.raises(CorruptTables, match="is missing"):
        Store(tmp_path)
    (tmp_path / SQLITE_NAME).write_bytes(b"no database" * 100)
    with pytest.raises(CorruptTables, match="Restore it"):
        Store(tmp_path)
    (tmp_path / "away").rename(tmp_path / SQLITE_NAME)
    store = Store(tmp_path)
    assert store.rows()[THERE] == {b"a": b"1"}
    store.close()


@pytest.mark.parametrize("kind", [True], indirect=True)
def test_a_binlog_deleted_by_hand_rolls_back(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(1, {(THERE, b"a"): b"1"})
    store.engine._snapshots.make()
    store.keeper.part({(THERE, b"b"): b"2"}).prepare(Xid(1, b"under way"))
    store.close()
    for path in tmp_path.iterdir():
        if path.suffix in (".ibb", ".redo"):
            path.unlink()
    store = Store(tmp_path)
    assert store.keeper.recover() == []
    assert store.rows()[THERE] == {b"a": b"1"}
    assert "Rolled back transaction with xid" in caplog.text
    assert "the redo log that it was written with is lost" in caplog.text
    store.put(2, {(THERE, b"c"): b"3"})
    store = again(store, tmp_path)
    assert store.rows()[THERE] == {b"a": b"1", b"c": b"3"}
    store.close()


class Failing:
    """A file that cannot be written at some step."""

    def __init__(self) -> None:
        self.at = ""

    def before(self, step: str) -> None:
        if step == self.at:
            raise sqlite3.OperationalError("disk I/O error")


def test_a_file_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing()
    store = Store(tmp_path, SqliteRows(tmp_path / SQLITE_NAME, failing.before))
    store.make_tables()
    failing.at = "prepare: written"
    with pytest.raises(DiskError):
        store.put(1, {(THERE, b"a"): b"1"})
    assert store.keeper.recover() == []
    failing.at = "commit: written"
    store.put(2, {(THERE, b"b"): b"2"})
    assert "the next start does it there" in caplog.text
    assert store.engine.binlog_state().has(Gtid(0, 1, 2)), "it is decided"
    with pytest.raises(DiskError):  # or it would be in the file before that one
        store.put(3, {(THERE, b"b"): b"3"})
    failing.at = ""
    store.put(4, {(THERE, b"b"): b"4"})
    assert store.keeper.recover() == []
    store = again(store, tmp_path)
    assert store.rows()[THERE] == {b"b": b"4"}
    store.close()


def test_a_full_disk_is_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.make_tables()
    with store.keeper._reading() as connection:
        connection.execute("PRAGMA max_page_count = 16")
    with pytest.raises(DiskFull):
        store.put(1, {(THERE, b"%d" % i): bytes(4000) for i in range(99)})
    store.put(2, {(THERE, b"a"): b"1"})
    store.close()


def test_a_copy_whose_name_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told as any error of the disk, so that the backup says it."""
    store = Store(tmp_path)

    def fails(path: object, **_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fails)
        with pytest.raises(DiskError, match=r"cannot remove .*: Read-only file system"):
            store.keeper.copy_of(b"u" * 16, [], [])
    store.close()
