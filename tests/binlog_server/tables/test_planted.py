"""Bugs put into SQL on tables: the histories must find each of them, by most seeds."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from binlog_protocol.gtid import Gtid
from binlog_protocol.tables.row_group import RowStatement, TableChange
from binlog_storage.binlog.appender import Appender
from binlog_storage.errors import StorageError
from binlog_storage.ibb import commit
from binlog_storage.ibb.chunk import RecordType
from binlog_storage.tables.locks import LockTable, Mode
from binlog_storage.tables.store import TableStep, TableTransaction

from binlog_server.sql_commit.held_statements import ChangeJob, DdlJob, RowSide
from binlog_server.sql_commit.open_transaction import Mark, OpenTransaction
from binlog_server.sql_commit.session_transaction import SessionTransaction
from binlog_server.tables import indexed
from binlog_server.tables.changes import Changer
from binlog_server.tables.held import FIRST_TABLE, HeldTable, HeldTables
from tests.binlog_server.lab import within
from tests.binlog_server.tables.histories import History, SqlChecker
from tests.storage.crash.check import Violation, quiet

STEPS = 80
STATES = 60
SEEDS = range(20)
TRIES = 5


@dataclass(frozen=True, slots=True)
class Plant:
    """One bug. `by`: of the seeds 0 to 19 one that finds it. `least`: so many of them do."""

    name: str
    planted: Callable[[], AbstractContextManager[object]]
    by: int
    least: int
    needs_crash: bool = False


def replaced(owner: object, name: str, by: object) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch.object(owner, name, by)


def _undo_events_alone(job: ChangeJob) -> None:
    job.events.rollback_to(job._in_events)
    job.events.release(job._in_events)


def _undo_rows_alone(job: ChangeJob) -> None:
    job.events.release(job._in_events)
    if not job.trx.ended:
        job.trx.rollback_to(job._in_rows)


def _goes_on_in_the_middle(job: ChangeJob, wait: Any) -> None:
    wait.result()


def _undo_to_without_rows(opened: OpenTransaction, mark: Mark) -> None:
    opened.events.rollback_to(mark.events)
    opened.changes = mark.changes


def _undo_to_without_events(opened: OpenTransaction, mark: Mark) -> None:
    opened.changes = mark.changes
    if opened.rows is not None and opened.rows.is_used and not opened.rows.trx.ended:
        opened.rows.trx.rollback_to(mark.rows)


_undo_to = OpenTransaction.undo


def _undo_to_forgets_changes(opened: OpenTransaction, mark: Mark) -> None:
    _undo_to(opened, mark)
    opened.changes = 0


_deleted = Changer.deleted
_updated = Changer.updated


def _last_delete_undone(changer: Changer) -> Iterator[TableChange]:
    mark = changer.trx.savepoint()
    for number, change in enumerate(_deleted(changer)):
        yield change
        if not number:
            mark = changer.trx.savepoint()
    changer.trx.rollback_to(mark)


def _last_update_untold(changer: Changer) -> Iterator[TableChange]:
    changes = list(_updated(changer))
    yield from changes[:-1] if len(changes) > 1 else changes


def _of_the_first_look(changer: Changer) -> Iterator[TableChange]:
    """The image before is the committed one, whatever the transaction has made of it."""
    for change in _updated(changer):
        table = changer.table
        assert change.before is not None
        key = table.format.key(table.format.split(change.before), table.key)
        committed = changer.trx.store.get(table.number, key)
        yield change if committed is None else change._replace(before=committed)


def _taken_without_looking(trx: TableTransaction, table: int, key: bytes, row: bytes) -> None:
    trx.put(table, key, row)


_events = RowStatement.events


def _backwards(statement: RowStatement, *args: Any) -> Iterator[bytes]:
    changes = list(statement.changes)[::-1]
    turned = RowStatement(changes, statement.tables, statement.text, statement.timestamp)
    return _events(turned, *args)


def _highest_row(
    tables: HeldTables, table: HeldTable, count: int, step: int = 1, offset: int = 1
) -> int:
    highest = 0
    for _, row in tables.store.scan(table.number):
        highest = max(highest, int(table.format.values(row)[0]))  # type: ignore[arg-type]
    return highest + 1


_counts: dict[int, int] = {}


def _counted_in_memory(
    tables: HeldTables, table: HeldTable, count: int, step: int = 1, offset: int = 1
) -> int:
    key = id(tables) ^ table.number
    first = max(_counts.get(key, 1), tables.peek_number(table))
    _counts[key] = first + count
    return first


def _commit_without_end(appender: Appender, payload: bytes, gtid: Gtid, step: TableStep) -> None:
    appender.writer.write(RecordType.COMMIT, commit.encode(payload), gtid)
    appender.writer.end_mtr()


_ddl_run = DdlJob.run


def _ddl_untold(job: DdlJob, trx: TableTransaction) -> Any:
    found = _ddl_run(job, trx)
    if job.text.startswith("TRUNCATE"):
        job.done()
        trx.commit()
        job.text = ""
    return found


def _view_of_each_look(rows: RowSide) -> Any:
    if rows.view is not None:
        rows.view.close()
    rows.view = rows._tables.store.view()
    return rows.view


def _answered_at_once(session: SessionTransaction, answer: Any, *, go_on: Any = None) -> None:
    session.quick_way.prepare()
    if go_on is None:
        session.answer(answer)
    else:
        go_on()


_add_entries = indexed._add_entries


def _duplicate_is_put(trx: TableTransaction, table: HeldTable, row: Any, *more: Any) -> None:
    """An entry that is there is overwritten."""
    try:
        _add_entries(trx, table, row, *more)
    except indexed.KeyTaken:
        for index in table.indexes:
            trx.put(index.number, table.entry(index, row.values, row.key), row.key)


_job = SessionTransaction._job


def _direct_alone(session: SessionTransaction, *args: Any) -> Any:
    around, session._around = session._around, None
    try:
        return _job(session, *args)
    finally:
        session._around = around


_take = LockTable.take


def _never_asked_for(locks: LockTable, trx: Any, resource: Any, mode: Any, **more: Any) -> Any:
    more["implicit"] = resource[1] is not None
    return _take(locks, trx, resource, mode, **more)


def _never_shared(locks: LockTable, trx: Any, resource: Any, mode: Any, **more: Any) -> Any:
    return _take(locks, trx, resource, mode if resource[1] is None else Mode.EXCLUSIVE, **more)


def _tables_are_free(locks: LockTable, trx: Any, resource: Any, mode: Any, **more: Any) -> Any:
    is_table = resource[1] is None and resource[0] >= FIRST_TABLE
    return _take(locks, trx, resource, Mode.SHARED if is_table else mode, **more)


_grant = LockTable._grant


def _nobody_is_woken(locks: LockTable, resource: Any, lock: Any) -> None:
    if not lock.queue:
        _grant(locks, resource, lock)


_preparing = TableTransaction.preparing


def _frees_locks(trx: TableTransaction, *args: Any) -> TableStep:
    step = _preparing(trx, *args)

    def done() -> None:
        step.done()
        with trx.store.latch:
            trx.store.locks.release_all(trx._trx)

    return step._replace(done=done)


@contextlib.contextmanager
def _undone_by_half(of_statement: Any, of_transaction: Any) -> Iterator[None]:
    """A statement is undone by its job and by its transaction."""
    with (
        mock.patch.object(ChangeJob, "_undo", of_statement),
        mock.patch.object(OpenTransaction, "undo", of_transaction),
    ):
        yield


@contextlib.contextmanager
def _without_locks() -> Iterator[None]:
    """Rows of others are changed as if nobody had them."""
    take = LockTable.take

    def took(locks: LockTable, trx: Any, resource: Any, mode: Any, **more: Any) -> Any:
        return None if resource[1] is not None else take(locks, trx, resource, mode, **more)

    with mock.patch.object(LockTable, "take", took):
        yield


PLANTS = [
    Plant(
        "a statement that fails leaves its rows",
        lambda: _undone_by_half(_undo_events_alone, _undo_to_without_rows),
        0,
        14,
    ),
    Plant(
        "a statement that fails leaves its events",
        lambda: _undone_by_half(_undo_rows_alone, _undo_to_without_events),
        0,
        11,
    ),
    Plant(
        "a statement that has waited is not begun anew",
        replaced(ChangeJob, "waited", _goes_on_in_the_middle),
        0,
        10,
    ),
    Plant(
        "ROLLBACK TO leaves the rows",
        replaced(OpenTransaction, "undo", _undo_to_without_rows),
        0,
        13,
    ),
    Plant(
        "ROLLBACK TO leaves the events",
        replaced(OpenTransaction, "undo", _undo_to_without_events),
        1,
        10,
    ),
    Plant(
        "ROLLBACK TO forgets what was before",
        replaced(OpenTransaction, "undo", _undo_to_forgets_changes),
        0,
        14,
    ),
    Plant("an event without a row", replaced(Changer, "deleted", _last_delete_undone), 0, 10),
    Plant("a row without an event", replaced(Changer, "updated", _last_update_untold), 0, 14),
    Plant(
        "the image before is a stale row", replaced(Changer, "updated", _of_the_first_look), 0, 8
    ),
    Plant(
        "a second row of the same key",
        replaced(TableTransaction, "insert", _taken_without_looking),
        0,
        14,
    ),
    Plant("events of a statement backwards", replaced(RowStatement, "events", _backwards), 1, 10),
    Plant(
        "AUTO_INCREMENT behind the highest row",
        replaced(HeldTables, "next_numbers", _highest_row),
        0,
        10,
    ),
    Plant(
        "AUTO_INCREMENT in memory alone",
        replaced(HeldTables, "next_numbers", _counted_in_memory),
        0,
        12,
        needs_crash=True,
    ),
    Plant(
        "COMMIT without END",
        replaced(Appender, "_append_step", _commit_without_end),
        0,
        14,
        needs_crash=True,
    ),
    Plant("TRUNCATE is not logged", replaced(DdlJob, "run", _ddl_untold), 0, 6),
    Plant("REPEATABLE READ is not", replaced(RowSide, "kept_view", _view_of_each_look), 0, 7),
    Plant("nobody waits for a row", _without_locks, 0, 10),
    Plant("UNIQUE is not", replaced(indexed, "_add_entries", _duplicate_is_put), 0, 5),
    Plant(
        "a direct statement does not see its transaction",
        replaced(SessionTransaction, "_job", _direct_alone),
        0,
        5,
    ),
    Plant("FOR UPDATE has no lock", replaced(LockTable, "take", _never_asked_for), 0, 5),
    Plant("all locks are exclusive", replaced(LockTable, "take", _never_shared), 0, 5),
    Plant("DDL waits for nobody", replaced(LockTable, "take", _tables_are_free), 0, 5),
    Plant("who waits is forgotten", replaced(LockTable, "_grant", _nobody_is_woken), 0, 8),
    Plant(
        "what is prepared is not locked",
        replaced(TableTransaction, "preparing", _frees_locks),
        0,
        5,
    ),
    Plant(
        "OK before it is durable",
        replaced(SessionTransaction, "_answer_when_committed", _answered_at_once),
        0,
        14,
        needs_crash=True,
    ),
]


async def found(plant: Plant, seed: int) -> str | None:
    """What is found first."""
    rng = random.Random(seed)
    with plant.planted(), quiet():
        try:
            async with History(rng) as history:
                await within(history.play(STEPS))
            if plant.needs_crash:
                SqlChecker(history, rng).run(STATES)
        except Violation as violation:
            return str(violation)
        except (StorageError, AssertionError, LookupError, TimeoutError) as error:
            return repr(error)
    return None


@pytest.mark.by_turns(6)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
async def test_is_found(plant: Plant) -> None:
    """By its seed, or one of those behind it: other statements than today's may be given to each."""
    for seed in range(plant.by, plant.by + TRIES):
        told = await found(plant, seed)
        if told is not None:
            print(f"{plant.name}: by seed {seed}: {told[:300]}")
            return
    pytest.fail(f"nothing was found by {TRIES} seeds")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
async def test_is_found_by_most_seeds(plant: Plant) -> None:
    finding = [seed for seed in SEEDS if await found(plant, seed) is not None]
    print(f"{plant.name}: found by {len(finding)} of {len(SEEDS)} seeds: {finding}")
    assert len(finding) >= plant.least
