"""What `verify` says of a store with tables: of their records in the redo log, and of their snapshot."""

from __future__ import annotations

import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.tables.snapshot import TABLES_NAME
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.verify.verify import Severity

from tests.storage.tables.test_snapshots import contents
from tests.storage.tables.test_transactions import T, commit, engine_with
from tests.storage.verify.test_verify_redo import findings


def change(engine: IbbEngine, row: bytes) -> None:
    t = engine.tables.begin()
    t.put(T, b"a", row)
    commit(engine, t)
    engine.sync()


def store() -> MemoryDisk:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    engine._snapshots.make()
    change(engine, b"2")
    engine.tables.begin().put(T, b"b", b"open")
    engine.close()
    return disk


def errors(disk: MemoryDisk) -> list[str]:
    return [f.reason for f in findings(disk) if f.severity is Severity.ERROR]


def test_nothing_is_wrong() -> None:
    assert not findings(store())


def with_file(name: str, data: bytes | None) -> MemoryDisk:
    files = contents(store())
    if data is None:
        del files[name]
    else:
        files[name] = data
    return MemoryDisk(files)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("torn", "the checksum of the block"),
        ("cut", "is damaged"),
        ("missing", "is missing, which has the tables up to LSN"),
        ("of another store", "is that of another store"),
        ("older", "is an older copy"),
        ("the log is older", "the redo log ends at LSN"),
    ],
)
def test_a_snapshot_that_does_not_fit(what: str, said: str) -> None:
    data = contents(store())[TABLES_NAME]
    if what == "missing":
        disk = with_file(TABLES_NAME, None)
    elif what == "torn":
        disk = with_file(TABLES_NAME, data[:-10] + bytes([data[-10] ^ 1]) + data[-9:])
    elif what == "cut":
        disk = with_file(TABLES_NAME, data[:-10])
    elif what == "of another store":
        other = MemoryDisk()
        engine = engine_with(other)
        engine._snapshots.make()
        disk = with_file(TABLES_NAME, contents(other)[TABLES_NAME])
    else:
        disk = store()
        older = contents(disk)
        engine = IbbEngine(disk)
        change(engine, b"3" * 9000)
        engine._snapshots.make()
        engine.close()
        name = TABLES_NAME if what == "older" else REDO_NAME
        disk = MemoryDisk(contents(disk) | {name: older[name]})
    assert [said in reason for reason in errors(disk)].count(True) == 1
    assert all("was not opened" not in reason for reason in errors(disk)), "nothing was opened"


def test_a_record_that_is_none() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk, {b"a": b"1"})
    with engine._append_lock:
        engine._appender.log_tables(b"\x77 no record")
    engine.sync()
    assert "a record of unknown kind 0x77" in errors(disk)[0]
