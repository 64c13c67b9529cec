"""Backups of stores in memory: taken piece by piece while the store goes on, and prepared."""

from __future__ import annotations

from collections.abc import Callable

from binlog_storage.backup.prepare import prepare
from binlog_storage.backup.target import BackupTarget
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine.backup import BackupEngine, BackupRequest, Manifest
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.check import look
from tests.storage.crash.model import Found
from tests.storage.crash.tables import Options, open_engine

ALL = BackupRequest()


def open_store(disk: Disk, options: StoreOptions) -> IbbEngine:
    return IbbEngine(disk, options, facts=StateStore(disk), clock=lambda: 0.0)


def copy(
    engine: BackupEngine,
    target: Disk,
    wanted: BackupRequest = ALL,
    between: Callable[[], object] = lambda: None,
) -> Manifest:
    """A backup as a whole. `between` is called behind the point, and behind each piece."""
    backup = engine.backup(wanted)
    taking = BackupTarget(target, "the target")
    try:
        taking.begin(backup.begin())
        between()
        for piece in backup.pieces():
            taking.take(piece)
            between()
        manifest = backup.finish()
        taking.finish(manifest)
        return manifest
    finally:
        taking.close()
        backup.close()


def make_ready(
    target: Disk,
    options: Options,
    *,
    skip_binlog: bool = False,
    incremental: MemoryDisk | None = None,
) -> Manifest:
    return prepare(
        target,
        "the target",
        lambda manifest: open_engine(target, options),
        skip_binlog=skip_binlog,
        incremental=incremental,
    )


def restored(target: Disk, options: StoreOptions) -> tuple[IbbEngine, Found]:
    """The store of a prepared backup, open, and what it holds."""
    engine = open_store(target, options)
    return engine, look(engine)
