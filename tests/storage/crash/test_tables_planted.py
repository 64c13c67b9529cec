"""Bugs put into the tables are found by the histories of `tables.py`: a test of that test."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.appender import Appender
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.table_snapshots import TableSnapshots
from binlog_storage.disk.disk import Disk
from binlog_storage.engine import Xid
from binlog_storage.errors import StorageError
from binlog_storage.ibb import commit
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.redo.format import TablesFrom
from binlog_storage.redo.log import RedoLog
from binlog_storage.tables import records, snapshot, store, take_records
from binlog_storage.tables.rows import Trx
from binlog_storage.tables.snapshot import Begin
from binlog_storage.tables.store import TableStep, TableStore

from tests.storage.crash.check import Violation, quiet
from tests.storage.crash.plants import Careless
from tests.storage.crash.tables import TableChecker, commits_and_snapshots, played

HISTORIES = 12
STATES = 150


@dataclass(frozen=True, slots=True)
class Plant:
    """One bug: see `plants.Plant`."""

    name: str
    planted: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    wrap: Callable[[Disk], Disk] | None = None
    short: bool = False  # found in a short history, by many of its states


def replaced(owner: object, name: str, by: object) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch.object(owner, name, by)


def _end_alone(appender: Appender, payload: bytes, gtid: Gtid, step: TableStep) -> None:
    if step.record:
        appender.log_tables(step.record)
    appender.writer.write(RecordType.COMMIT, commit.encode(payload), gtid)
    appender.writer.end_mtr()


def _not_synced(snapshots: TableSnapshots) -> tuple[int, int]:
    return 0, snapshots._tables.next_trx


_write = snapshot.write


def _without_chains(disk: Disk, begin: Begin, *more: object) -> int:
    return _write(disk, begin._replace(open=[]), *more)  # type: ignore[arg-type]


_checkpoint = RedoLog.write_tables_checkpoint


def _too_far(redo: RedoLog, tables: TablesFrom) -> None:
    _checkpoint(redo, tables._replace(lsn=redo.lsn, epoch=redo.epoch))


def _checkpoint_first(snapshots: TableSnapshots) -> None:
    redo = snapshots._redo
    with snapshots._log.lock:
        redo.note_tables()
        assert redo.tables is not None
        begin = TablesFrom(redo.lsn, redo.epoch, redo.tables.snapshot + 1)
    _checkpoint(redo, begin)
    _make(snapshots)


_make = TableSnapshots._make


def _begin_without_begun(redo: RedoLog, end: Position | None) -> None:
    redo.epoch += 1
    redo.write_checkpoint(redo.lsn, end)


def _only_in_memory(self: TableStore, trx: Trx, top: int, **_: object) -> bool:
    with self.latch:
        while trx.top is not None and trx.top.no > top:
            self.memory.undo_top(trx)
    return True


def _one_too_few(body: bytes, places: bytes, *more: Any) -> None:
    take_records.take_nodes(body, places[:-4], *more)


def _nothing_below(trx: int, top: int) -> bytes:
    return _undone(trx, max(0, top - 1))


_undone = records.encode_undone


def _of_the_binlog_alone(engine: IbbEngine, xid: Xid) -> Position:
    return engine._appender.rollback_prepared(xid)


PLANTS = [
    Plant(
        "END comes before COMMIT, by itself",
        replaced(Appender, "_append_step", _end_alone),
        short=True,
    ),
    Plant(
        "a snapshot has what the log may lose",
        replaced(TableSnapshots, "_durable_end", _not_synced),
    ),
    Plant("a snapshot has no chains", replaced(snapshot, "write", _without_chains)),
    Plant(
        "a chain of the snapshot is restored without its end",
        replaced(snapshot, "take_nodes", _one_too_few),
    ),
    Plant(
        "the tables' LSN is that of the snapshot's end",
        replaced(RedoLog, "write_tables_checkpoint", _too_far),
        short=True,
    ),
    Plant(
        "the checkpoint comes before its snapshot",
        replaced(TableSnapshots, "_make", _checkpoint_first),
    ),
    Plant(
        "a snapshot is renamed before it is synced",
        wrap=lambda disk: Careless(disk, file=lambda name: not name.endswith(".new")),
        short=True,
    ),
    Plant("nothing leads to the next epoch", replaced(RedoLog, "begin", _begin_without_begun)),
    Plant("undoing is not logged", replaced(TableStore, "undo", _only_in_memory)),
    Plant("UNDONE says one too many", replaced(store, "encode_undone", _nothing_below), short=True),
    Plant(
        "XA ROLLBACK leaves the rows",
        replaced(IbbEngine, "rollback_prepared", _of_the_binlog_alone),
    ),
]


def first_violation(plant: Plant, rng: random.Random) -> str | None:
    """What is found first."""
    with plant.planted(), quiet():
        for number in range(HISTORIES):
            try:
                if plant.short:
                    history = commits_and_snapshots(rng, wrap=plant.wrap)
                else:
                    history = played(rng, 100, wrap=plant.wrap)
                TableChecker(history, rng).run(4 * STATES if plant.short else STATES)
            except Violation as violation:
                return f"in history {number}: {violation}"
            except (StorageError, AssertionError, LookupError) as error:
                return f"while playing history {number}: {error!r}"
    return None


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_is_found(plant: Plant, rng: random.Random) -> None:
    found = first_violation(plant, rng)
    assert found is not None, "nothing was found"
    print(f"{plant.name}: {found[:300]}")
