"""Histories of transactions on tables, several at a time, against a serial model; and what a crash may leave of them.

The model has what is committed, and prepared, after each step. A crash leaves one of these between the last that was
told durable and the last that was begun: rows and binlog of the same step, always.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar
from unittest import mock

from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import Xid
from binlog_storage.errors import DuplicateKey, LockWaitTimeout, StorageError, UnknownTable
from binlog_storage.tables import snapshot
from binlog_storage.tables.rows import CATALOG, table_key
from binlog_storage.tables.store import TableTransaction
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.check import Violation, quiet
from tests.storage.crash.history import OPTIONS
from tests.storage.crash.history import open_engine as open_ibb
from tests.storage.crash.recorder import Mark, RecordingDisk
from tests.storage.crash.states import CrashState, Images, crash_points
from tests.storage.crash.variants import Limits
from tests.storage.groups import events, gtid_event

T = TypeVar("T")
Options = StoreOptions | ClassicOptions
AnyEngine = IbbEngine | ClassicEngine
Rows = dict[tuple[int, bytes], bytes]
DOMAIN = 7
KEYS = [b"key %d" % n for n in range(10)]
MORE = 99  # a table that only the checks use


CLASSIC = ClassicOptions(
    max_binlog_size=16384, innodb_log_file_size=256 << 10, slave_connections_needed_for_purge=0
)


def open_engine(disk: Disk, options: Options) -> AnyEngine:
    """As the server opens it, without threads."""
    if isinstance(options, StoreOptions):
        return open_ibb(disk, options)
    return ClassicEngine(disk, options, facts=StateStore(disk), clock=lambda: 1e9)


def checkpoint(engine: AnyEngine) -> None:
    """Traditional files have one when a new one begins: all is durable then."""
    if isinstance(engine, IbbEngine):
        engine.checkpoint()
    else:
        engine.flush()


class Stand(NamedTuple):
    """What a store holds: rows, the last number in the binlog, prepared transactions with the rows that they bring."""

    rows: Rows
    seq_no: int
    prepared: dict[Xid, list[tuple[int, bytes, bytes | None]]]


@dataclass(eq=False)
class Running:
    """An open transaction: as it is in the store, and what it has changed."""

    store: TableTransaction
    changes: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)
    savepoints: list[tuple[int, int]] = field(default_factory=list)


def applied(rows: Rows, changes: list[tuple[int, bytes, bytes | None]]) -> Rows:
    """The rows after a commit. What DROP takes from the catalog goes with its rows."""
    rows = dict(rows)
    for table, key, row in changes:
        if row is None:
            rows.pop((table, key), None)
        else:
            rows[table, key] = row
    known = {int.from_bytes(key) for table, key in rows if table == CATALOG}
    return {place: row for place, row in rows.items() if place[0] == CATALOG or place[0] in known}


class TableHistory:
    """Plays steps on a store and on the model.

    Attributes:
        stands: after each step that commits or prepares; number 0 is the empty store.
        third: a table that comes and goes; the next one has another number.
    """

    def __init__(
        self,
        options: Options,
        wrap: Callable[[Disk], Disk] | None,
        disk: MemoryDisk | None = None,
    ) -> None:
        self.disk = RecordingDisk(disk or MemoryDisk())
        self.options = options
        self._wrapped = wrap(self.disk) if wrap else self.disk
        self.stands = [Stand({}, 0, {})]
        self.third = 2
        self.seq_no = 0
        self.open: list[Running] = []
        self._xids = 0
        self.engine = open_engine(self._wrapped, options)
        self.counts: dict[str, int] = {}

    def _next(self, stand: Stand) -> None:
        self.stands.append(stand)
        self.disk.mark("begun", len(self.stands) - 1)

    def _ahead(self, stand: Stand) -> None:
        """The step may be durable as soon as it is begun: the log may be written before it returns."""
        self._next(stand)

    def begin(self) -> Running:
        running = Running(self.engine.tables.begin())
        running.store.lock_wait_s = 0.0
        self.open.append(running)
        return running

    def end(self, running: Running) -> None:
        self.open.remove(running)

    def change(self, running: Running, table: int, key: bytes, row: bytes | None) -> bool:
        """Returns False if another one holds the row, or there is no such table."""
        try:
            if row is None:
                before = running.store.delete(table, key)
            else:
                before = running.store.put(table, key, row)
        except (LockWaitTimeout, UnknownTable):
            return False
        if before != row:  # else nothing is logged, and no start knows of the lock
            running.changes.append((table, key, row))
        return True

    def create(self, running: Running, table: int) -> None:
        try:
            running.store.create_table(table, b"table %d" % table)
            running.changes.append((CATALOG, table_key(table), b"table %d" % table))
        except (LockWaitTimeout, DuplicateKey):
            pass

    def drop(self, running: Running, table: int) -> None:
        try:
            running.store.drop_table(table)
            running.changes.append((CATALOG, table_key(table), None))
        except (LockWaitTimeout, UnknownTable):
            pass

    def savepoint(self, running: Running) -> None:
        running.savepoints.append((running.store.savepoint(), len(running.changes)))

    def rollback_to(self, running: Running) -> None:
        if running.savepoints:
            mark, count = running.savepoints[-1]
            running.store.rollback_to(mark)
            del running.changes[count:]

    def rollback(self, running: Running) -> None:
        running.store.rollback()
        self.end(running)

    def commit(self, running: Running, size: int | None) -> None:
        """`size` of the group in the binlog; None for none."""
        last = self.stands[-1]
        rows = applied(last.rows, running.changes)
        self.end(running)
        if size is None:
            self._ahead(last._replace(rows=rows))
            running.store.commit()
            return
        self.seq_no += 1
        gtid = Gtid(DOMAIN, 1, self.seq_no)
        group = Transaction(self.engine.writer_of(running.store))
        group.write(events(size, str(gtid)))
        self._ahead(last._replace(rows=rows, seq_no=self.seq_no))
        group.commit(gtid_event(gtid), gtid)

    def change_at_once(self, table: int, key: bytes, row: bytes | None, size: int) -> None:
        """A change that is a transaction, and its group, in one step; nothing where somebody is in the way."""
        last, store = self.stands[-1], self.engine.tables
        before = last.rows.get((table, key))
        with store.log.lock, store.latch:
            if before == row or store.at_once(table, key, before, row) is None:
                return
        self.seq_no += 1
        gtid = Gtid(DOMAIN, 1, self.seq_no)
        self._ahead(last._replace(rows=applied(last.rows, [(table, key, row)]), seq_no=self.seq_no))
        payload = gtid_event(gtid) + events(size, str(gtid))
        assert self.engine.append_change(table, key, before, row, payload, gtid) is not None

    def prepare(self, running: Running) -> None:
        last = self.stands[-1]
        self._xids += 1
        xid = Xid(1, b"xa %d" % self._xids)
        self.end(running)
        group = Transaction(self.engine.writer_of(running.store))
        group.write(events(300, str(xid)))
        self._ahead(last._replace(prepared={**last.prepared, xid: running.changes}))
        group.prepare(xid)

    def complete(self, xid: Xid, *, commit: bool) -> None:
        last = self.stands[-1]
        left = {x: changes for x, changes in last.prepared.items() if x != xid}
        if not commit:
            self._ahead(last._replace(prepared=left))
            self.engine.rollback_prepared(xid)
            return
        self.seq_no += 1
        gtid = Gtid(DOMAIN, 1, self.seq_no)
        self._ahead(Stand(applied(last.rows, last.prepared[xid]), self.seq_no, left))
        self.engine.commit_prepared(xid, gtid_event(gtid), gtid)

    def sync(self) -> None:
        self.engine.sync()
        self.disk.mark("told", len(self.stands) - 1)

    def snapshot(self, meanwhile: Callable[[], None]) -> None:
        """Make one. `meanwhile` is called behind the rows of each table, while others may change them."""
        write: Any = snapshot.write  # as it is now: it may have a bug planted

        def slowly(*args: Any) -> int:
            return int(write(*args, meanwhile))

        with mock.patch.object(snapshot, "write", slowly):
            self.engine._snapshots.make()

    def go_on(self, engine: IbbEngine, disk: RecordingDisk, number: int) -> None:
        """With the step that was found behind a crash, and nothing behind it."""
        self.engine, self.disk, self._wrapped = engine, disk, disk
        del self.stands[number + 1 :]
        self.open.clear()
        self.seq_no = self.stands[-1].seq_no
        disk.mark("told", number)

    def restart(self) -> None:
        """Clean: what is open is undone by the next start, sooner or later."""
        self.engine.sync()  # a store that failed unseen closes without a word
        self.engine.close()
        self.disk.mark("told", len(self.stands) - 1)
        self.open.clear()
        self.engine = open_engine(self._wrapped, self.options)

    def reset(self) -> None:
        if self.stands[-1].prepared:
            return
        self.seq_no = 0
        self._ahead(self.stands[-1]._replace(seq_no=0))
        self.engine.reset()
        self.disk.mark("told", len(self.stands) - 1)


def played(
    rng: random.Random,
    steps: int,
    *,
    wrap: Callable[[Disk], Disk] | None = None,
    options: Options = OPTIONS,
) -> TableHistory:
    """A random history."""
    history = TableHistory(options, wrap)
    begun(history)
    for _ in range(steps):
        step(history, rng)
    history.sync()
    return history


def begun(history: TableHistory) -> None:
    """Two tables."""
    first = history.begin()
    history.create(first, 1)
    history.create(first, 2)
    history.commit(first, None)
    history.sync()


def commits_and_snapshots(
    rng: random.Random,
    *,
    wrap: Callable[[Disk], Disk] | None = None,
    options: Options = OPTIONS,
) -> TableHistory:
    """A short history, of which nearly all states can be opened."""
    history = TableHistory(options, wrap)
    first = history.begin()
    history.create(first, 1)
    history.commit(first, None)
    for number in range(4):
        _change_and_commit(history, rng, b"%d" % number, 2500)
        history.sync()
        history.snapshot(lambda: _change_and_commit(history, rng, b"meanwhile", 300))
        history.sync()
    return history


def _change_and_commit(history: TableHistory, rng: random.Random, row: bytes, size: int) -> None:
    """Three rows, one of them once more, which is taken back."""
    one = history.begin()
    keys = rng.sample(KEYS, 3)
    for key in keys:
        history.change(one, 1, key, row)
    history.savepoint(one)
    history.change(one, 1, keys[0], b"taken back")
    history.rollback_to(one)
    history.commit(one, size)


def step(history: TableHistory, rng: random.Random) -> None:
    """A random one."""
    if len(history.open) < 3 and rng.random() < 0.4:
        history.begin()
    what = rng.random()
    if what < 0.10:
        history.sync()
    elif what < 0.13:
        checkpoint(history.engine)
    elif what < 0.18:
        history.snapshot(lambda: _change_any(history, rng))
    elif what < 0.20:
        history.engine.step()
    elif what < 0.215:
        history.restart()
    elif what < 0.225:
        history.reset()
    elif what < 0.29 and (prepared := list(history.stands[-1].prepared)):
        history.complete(rng.choice(prepared), commit=rng.random() < 0.5)
    elif history.open:
        step_of(history, rng.choice(history.open), rng)
    else:
        row = None if rng.random() < 0.3 else b"at once %d" % rng.randrange(1000)
        history.change_at_once(rng.choice([1, 2]), rng.choice(KEYS), row, rng.choice([200, 2500]))


def _change_any(history: TableHistory, rng: random.Random) -> None:
    # Without room it would wait for a snapshot, in the thread that makes one.
    if history.open and history.engine.wait_for_room(0):
        history.change(rng.choice(history.open), 1, rng.choice(KEYS), b"meanwhile")


def step_of(history: TableHistory, running: Running, rng: random.Random) -> None:
    what = rng.random()
    table = rng.choice([1, 1, 2, history.third])
    if what < 0.6:
        for _ in range(rng.choice([1, 1, 1, 3, 12])):
            row = None if rng.random() < 0.3 else b"%d" % rng.randrange(1000) * rng.choice([1, 300])
            if not history.change(running, table, rng.choice(KEYS), row):
                break
    elif what < 0.63:
        history.third += 1  # a number is used once in the life of a store
        history.create(running, history.third)
    elif what < 0.65:
        history.drop(running, history.third)
    elif what < 0.72:
        history.savepoint(running)
    elif what < 0.78:
        history.rollback_to(running)
    elif what < 0.84:
        history.rollback(running)
    elif what < 0.88:
        history.prepare(running)
    else:
        history.commit(running, rng.choice([None, 200, 200, 2000, 60_000]))


class StatesChecker(ABC, Generic[T]):
    """Opens what a crash leaves of a recorded disk, and asks whether it is right; what is in equal files, once.

    A mark `begun` says that step n may be found from here on, `told` that none before it may.
    """

    def __init__(self, disk: RecordingDisk, options: Options, rng: random.Random) -> None:
        self._disk = disk
        self._options = options
        self._rng = rng
        self._limits = Limits()
        self._seen: dict[int, T] = {}
        self.states = 0
        self.in_recovery = 0

    @abstractmethod
    def _open(self, files: Images) -> T:
        """What the store on these files holds."""

    @abstractmethod
    def _require(self, found: T, least: int, most: int, place: str) -> None:
        """Raises `Violation` if it is of none of these steps."""

    def run(self, wanted: int, recovery_every: int = 25) -> None:
        """Open about so many distinct states, spread over the history. Raises `Violation`."""
        disk = self._disk
        least = most = 0
        points = len(disk.trace) + 1
        with quiet():
            for number, states in enumerate(crash_points(disk, self._limits, self._rng)):
                operation = disk.trace[number - 1] if number else None
                if isinstance(operation, Mark) and isinstance(operation.value, int):
                    if operation.what == "told":
                        least = operation.value
                    else:
                        most = operation.value
                share = max(1, -(-(wanted - self.states) // (points - number)))
                if len(states) > share:
                    states = [states[0], *self._rng.sample(states[1:], share - 1)]
                for state in states:
                    self._one(state.files, least, most, f"cut behind operation {state.point}")
                    if self.states % recovery_every == 1:
                        self._in_recovery(state, least, most)

    def _in_recovery(self, state: CrashState, least: int, most: int) -> None:
        disk = RecordingDisk(MemoryDisk(state.files))
        engine = open_engine(disk, self._options)
        while engine.step():
            engine.sync()
        before = self.states
        limits = replace(self._limits, per_file=4, per_point=4)
        for number, states in enumerate(crash_points(disk, limits, self._rng)):
            for inner in states[:2]:
                place = f"cut behind operation {state.point}, then at {number} of the recovery"
                self._one(inner.files, least, most, place)
        self.in_recovery += self.states - before

    def _one(self, files: Images, least: int, most: int, place: str) -> None:
        key = CrashState(0, files).key
        if key not in self._seen:
            self.states += 1
            try:
                self._seen[key] = self._open(files)
            except (StorageError, AssertionError, ValueError, LookupError) as error:
                raise Violation(f"{place}: {error!r}") from error
        self._require(self._seen[key], least, most, place)


class TableChecker(StatesChecker[tuple[Rows, int, frozenset[Xid]]]):
    """Of a history of transactions: holds each state against the model."""

    def __init__(self, history: TableHistory, rng: random.Random) -> None:
        super().__init__(history.disk, history.options, rng)
        self._history = history
        self.undone = 0

    def _require(
        self, found: tuple[Rows, int, frozenset[Xid]], least: int, most: int, place: str
    ) -> None:
        stands = self._history.stands[least : most + 1]
        if not any((s.rows, s.seq_no, frozenset(s.prepared)) == found for s in stands):
            rows, seq_no, prepared = found
            nearest = min(stands, key=lambda s: len(s.rows.items() ^ rows.items())).rows
            more, less = rows.items() - nearest.items(), nearest.items() - rows.items()
            raise Violation(
                f"{place}: no step from {least} to {most} has group {seq_no}, prepared {sorted(map(str, prepared))} "
                f"and these {len(rows)} rows: to the nearest one {sorted(more)} are more, {sorted(less)} are missing"
            )

    def _open(self, files: Images) -> tuple[Rows, int, frozenset[Xid]]:
        disk = MemoryDisk(files)
        engine = open_engine(disk, self._history.options)
        found = look(engine)
        # Nothing that is undone later is seen before; undone in any number of starts, it leaves the same.
        while engine.rows_to_undo:
            self.undone += 1
            engine._rows.undoer.step()
            assert look(engine) == found, "undoing has changed what is committed"
            if self._rng.random() < 0.3:
                engine.sync()
                disk.crash()
                engine = open_engine(disk, self._history.options)
                assert look(engine) == found, "another start finds something else"
        while engine.step():  # several may have nothing left to undo, and no END yet
            pass
        self._goes_on(disk, engine, found)
        return found

    def _goes_on(
        self, disk: MemoryDisk, engine: AnyEngine, found: tuple[Rows, int, frozenset[Xid]]
    ) -> None:
        rows, _, prepared = found
        assert {trx.xid for trx in engine.tables.open.values()} == prepared, "somebody is left"
        promised = {}
        for stand in self._history.stands:
            promised.update(stand.prepared)
        held = {(t, k) for xid in prepared for t, k, _ in promised[xid]}
        held_tables = {int.from_bytes(key) for table, key in held if table == CATALOG}
        # Nothing is locked for ever, but what is prepared.
        t = engine.tables.begin()
        t.lock_wait_s = 0.0
        for table, key in rows.keys() - held:
            if table != CATALOG and table not in held_tables:
                t.lock(table, key)
        t.create_table(MORE, b"")
        t.put(MORE, b"more", b"row")
        t.commit()
        now = rows | {(CATALOG, table_key(MORE)): b"", (MORE, b"more"): b"row"}
        for xid in sorted(prepared):
            if self._rng.random() < 0.5:
                gtid = Gtid(DOMAIN + 1, 1, len(now) + 1 + sorted(prepared).index(xid) * 100)
                engine.commit_prepared(xid, gtid_event(gtid), gtid)
                now = applied(now, promised[xid])
            else:
                engine.rollback_prepared(xid)
        if self._rng.random() < 0.2:
            engine._snapshots.make()
        assert look(engine)[0] == now, "what was added is not there"
        engine.sync()
        disk.crash()
        again = open_engine(disk, self._history.options)
        assert look(again)[0] == now, "another start finds something else behind what was added"
        assert not again.tables.open
        assert not len(again.tables.locks)


def look(engine: AnyEngine) -> tuple[Rows, int, frozenset[Xid]]:
    """What is committed, and prepared."""
    tables = engine.tables
    rows = {
        (number, key): row
        for number in list(tables.memory.tables)
        if number == CATALOG or tables.get(CATALOG, table_key(number)) is not None
        for key, row in tables.scan(number)
    }
    last = engine.binlog_state().last(DOMAIN)
    return rows, 0 if last is None else last.seq_no, frozenset(engine.prepared())
