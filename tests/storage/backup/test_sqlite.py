"""Rows that a SQLite file keeps, in a backup: those of its point, wherever the two phases of a commit stand there."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.backup.prepare import prepare
from binlog_storage.backup.target import BackupTarget
from binlog_storage.disk.disk import OsDisk
from binlog_storage.engine import EngineAdmin, Xid
from binlog_storage.engine.backup import BackupRequest, Manifest
from binlog_storage.tables.sqlite_rows import SQLITE_NAME, SqliteRows

from tests.storage.backup.copying import ALL
from tests.storage.groups import gtid_event
from tests.storage.tables.test_sqlite_rows import HERE, TABLES, THERE, Rows, Store, kind

__all__ = ["kind"]


def backup(store: Store, path: Path, wanted: BackupRequest = ALL) -> Manifest:
    path.mkdir()
    return copied(store, path, wanted)


def copied(store: Store, path: Path, wanted: BackupRequest, *, drops: bool = False) -> Manifest:
    one = store.engine.backup(wanted)
    disk = OsDisk(path)
    target = BackupTarget(disk, str(path))
    try:
        target.begin(one.begin())
        if drops:
            trx = store.engine.tables.begin()
            trx.drop_table(THERE)
            trx.commit()
            store.keeper.forget({THERE})
        for piece in one.pieces():
            target.take(piece)
        return target.finish(one.finish())
    finally:
        one.close()
        target.close()
        disk.close()


def made_ready(path: Path, later: Path | None = None, *, skip_binlog: bool = False) -> None:
    disk = OsDisk(path)
    incremental = None if later is None else OsDisk(later)

    def opened(manifest: Manifest) -> EngineAdmin:
        return Store(path).engine

    prepare(disk, str(path), opened, skip_binlog=skip_binlog, incremental=incremental)
    disk.close()


def prepared(path: Path, *, skip_binlog: bool = False) -> Store:
    made_ready(path, skip_binlog=skip_binlog)
    return Store(path)


def put(store: Store, number: int) -> Rows:
    """A transaction in both. Returns all rows behind it."""
    value = b"%d" % number
    store.put(
        number,
        {
            (HERE, b"same"): value,
            (THERE, b"same"): value,
            (THERE, value): value,
            (THERE, b"%d" % (number - 1)): None,
        },
    )
    return store.rows()


def test_at_each_step_of_a_commit(tmp_path: Path) -> None:
    """Prepared there and not in the binlog: it is not in the backup. In the binlog, and not committed there: it is."""
    made: list[tuple[Path, int]] = []
    wanted = False

    def before(step: str) -> None:
        nonlocal wanted
        if wanted:
            wanted = False  # it has steps of its own
            path = tmp_path / f"backup {len(made)}"
            last = max((g.seq_no for g in store.engine.binlog_state().entries()), default=0)
            backup(store, path)
            made.append((path, last))
            wanted = True

    (tmp_path / "store").mkdir()
    store = Store(tmp_path / "store", SqliteRows(tmp_path / "store" / SQLITE_NAME, before))
    store.make_tables()
    truth = [store.rows(), put(store, 1)]
    wanted = True
    truth.append(put(store, 2))
    wanted = False
    assert [last for _, last in made] == [1] * 3 + [2] * 3, "prepare, then commit"
    for path, last in made:
        restored = prepared(path)
        assert restored.rows() == truth[last]
        assert not restored.keeper.recover()
        while restored.engine.step():  # what was open at the point is rolled back
            pass
        put(restored, 9)
        restored.close()
    store.close()


@pytest.mark.parametrize("end", ["commit", "rollback", "skip binlog"])
def test_what_waits_for_its_end(tmp_path: Path, end: str) -> None:
    """XA PREPARE is in it; without the binlog it is rolled back. What is dropped or committed meanwhile is there."""
    (tmp_path / "store").mkdir()
    store = Store(tmp_path / "store")
    store.make_tables()
    truth = put(store, 1)
    xid = Xid(1, b"q")
    store.prepare(xid, {(HERE, b"x"): b"y", (THERE, b"x"): b"y", (THERE, b"same"): None})
    store.engine.sync()
    path, skip_binlog = tmp_path / "backup", end == "skip binlog"
    backup(store, path, BackupRequest(skip_binlog=skip_binlog))
    restored = prepared(path, skip_binlog=skip_binlog)
    if end == "commit":
        gtid = Gtid(0, 1, 2)
        restored.engine.commit_prepared(xid, gtid_event(gtid), gtid)
        truth = {HERE: {**truth[HERE], b"x": b"y"}, THERE: {b"1": b"1", b"x": b"y"}}
    elif end == "rollback":
        restored.engine.rollback_prepared(xid)
    else:
        assert not restored.engine.prepared()
        while restored.engine.step():
            pass
    assert restored.rows() == truth
    restored.close()
    again = Store(path)
    assert again.rows() == truth
    again.close()
    store.close()


def test_a_table_that_is_dropped_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "backup").mkdir()
    store = Store(tmp_path / "store")
    store.make_tables()
    truth = put(store, 1)
    copied(store, tmp_path / "backup", ALL, drops=True)
    assert THERE not in store.engine.tables.tables()
    restored = prepared(tmp_path / "backup")
    assert restored.rows() == truth
    assert set(TABLES) <= set(restored.engine.tables.tables())
    restored.close()
    store.close()


def test_an_incremental_one(tmp_path: Path) -> None:
    """The whole file comes with it, and no log of the earlier one is applied to it."""
    (tmp_path / "store").mkdir()
    store = Store(tmp_path / "store")
    store.make_tables()
    put(store, 1)
    base, later = tmp_path / "base", tmp_path / "later"
    manifest = backup(store, base)
    made_ready(base)
    log = base / f"{SQLITE_NAME}-wal"
    log.write_bytes(b"as a kill in the middle of it leaves one")
    truth = put(store, 2)
    backup(store, later, BackupRequest(since=manifest.end))
    made_ready(base, later)
    assert not log.exists()
    restored = Store(base)
    assert restored.rows() == truth
    restored.close()
    store.close()
