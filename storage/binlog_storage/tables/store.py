"""Tables of rows: transactions on them, and views. docs/internals/tables.md has the steps and what a crash leaves.

A change takes its lock, waits for room in the log, and is then logged and made in memory in one step, under the append
lock and the latch. So the log has the changes of a row in their order, and memory has nothing that the log has not.

Thread contract: any thread; one at a time for each transaction. The head of `docs/internals/tables.md` has the locks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from binlog_protocol.dataclass import dataclass

from binlog_storage.errors import (
    Deadlock,
    DuplicateKey,
    LockWaitTimeout,
    StorageError,
    TransactionEnded,
    WaitGivenUp,
    XaStateError,
)
from binlog_storage.ibb.xa import Xid
from binlog_storage.redo.log import AppendLock
from binlog_storage.tables.keys import AT_ONCE, SortedKeys
from binlog_storage.tables.locks import LockRequest, LockTable, Mode
from binlog_storage.tables.records import (
    CHANGE_BYTES,
    SMALL_BYTES,
    SetState,
    State,
    encode_change,
    encode_end,
    encode_state,
    encode_undone,
)
from binlog_storage.tables.rows import (
    CATALOG,
    COMMITTED,
    ELSEWHERE,
    TEMPORARY,
    UNFINISHED,
    UNLOGGED,
    AnyNode,
    Memory,
    PackedNode,
    Resource,
    Table,
    TemporaryRows,
    Trx,
    Version,
    logged_no,
    table_key,
)

LOCK_WAIT_S: Final = 50.0  # innodb_lock_wait_timeout
UNDO_NODES: Final = 256  # undone in one step
_FORGET_NODES: Final = 64  # looked at by each commit, and as many as it has itself
_SCAN_ROWS: Final = 256


class TableLog(Protocol):
    """The redo log as the tables see it: see `binlog_storage.binlog.appender.Appender`."""

    @property
    def lock(self) -> AppendLock:
        """The append lock."""

    def admit(self, size: int, given_up: Callable[[], bool] | None = None) -> None:
        """Wait for room. Under the lock, which is released while waiting.

        Raises `WaitGivenUp` if it has to wait and `given_up` returns True.
        """

    def log_tables(self, record: bytes) -> None:
        """Log records of tables as one mini-transaction. Under the lock, behind `admit`."""

    def sync_log(self) -> None:
        """Make all that was logged durable."""


class TableStep(NamedTuple):
    """What a record of the binlog takes along in its mini-transaction.

    record: to be logged with it; empty for nothing.
    done: to be called when it is logged, under the append lock.
    """

    record: bytes
    done: Callable[[], None]


class ReadView:
    """What was committed at one moment. To be closed, or used as a context: until then old versions stay."""

    __slots__ = ("_store", "number")

    def __init__(self, store: TableStore, number: int) -> None:
        self._store = store
        self.number = number

    def close(self) -> None:
        """No more reading; twice is no error."""
        self._store.close_view(self)

    def __enter__(self) -> ReadView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class RowsElsewhere:
    """The rows of one moment that another engine keeps. To be closed, as its view.

    prepared: the changes of transactions that wait for XA COMMIT, by their numbers.
    """

    _store: TableStore
    _view: ReadView
    _tables: Mapping[int, Table]
    prepared: list[tuple[int, dict[tuple[int, bytes], bytes | None]]]

    def rows(self) -> Iterator[tuple[int, bytes, bytes]]:
        """What was committed: table, key, row; some twice. A table may be dropped meanwhile."""
        for number, table in self._tables.items():
            for key in self._store.keys_in(table):
                row = self._store.read_in(table, key, self._view)
                if row is not None:
                    yield number, key, row

    def close(self) -> None:
        """Old versions need not stay any more; twice is no error."""
        self._view.close()


class LockBusy(StorageError):
    """A lock is not free, and the transaction does not block: make the call once more when `wait` is over."""

    def __init__(self, wait: LockWait) -> None:
        super().__init__("a lock is not free yet")
        self.wait = wait


class LockWait:
    """A wait for a lock, of a transaction that does not block. From any thread."""

    def __init__(self, transaction: TableTransaction, request: LockRequest) -> None:
        self._transaction = transaction
        self._request = request

    @property
    def is_over(self) -> bool:
        """Whether the lock is there, or will not come."""
        return self._request.is_over

    def when_over(self, call: Callable[[], object]) -> None:
        """Call it once when the wait is over, or at once if it is.

        It is called by whoever ends the wait, in the middle of that one's work: it should do no more than
        `loop.call_soon_threadsafe` does, and must not use the store.
        """
        with self._transaction.store.latch:
            self._request.when_over(call)

    def time_out(self) -> None:
        """It took too long: it ends with `LockWaitTimeout`, unless it is over."""
        with self._transaction.store.latch:
            self._transaction.store.locks.timed_out(self._request)

    def result(self) -> None:
        """Raise what the wait has ended with, if not with the lock. Undoes all behind a `Deadlock`: not for a loop."""
        self._transaction.require_lock(self._request)


class TableTransaction:
    """One transaction; made by `TableStore.begin`. Its methods raise `TransactionEnded` behind its end.

    Any method that takes a lock may raise `LockWaitTimeout` (undo the statement, with `rollback_to`), `Deadlock` (all
    of the transaction is undone already), `WaitGivenUp`, `UnknownTable`; and what `TableLog.admit` does.

    Attributes:
        lock_wait_s: the longest wait for a lock.
        served: another one whose `give_up` ends waits of this one, as it works for it.
        blocks: whether a method waits for a lock itself. If not, it raises `LockBusy`: nothing of it is done but that
            the transaction stands in the queue. The caller looks to the time; `LockWait.result`, then the same call.
    """

    def __init__(self, store: TableStore, trx: Trx) -> None:
        self.store = store
        self._trx = trx
        self.ended = False
        self.lock_wait_s = LOCK_WAIT_S
        self.blocks = True
        self.served: TableTransaction | None = None  # not this one: that would be a cycle
        self._waits_for_room = self._gave_up = False

    @property
    def id(self) -> int:
        """Its number."""
        return self._trx.id

    @property
    def changes(self) -> int:
        """Changes that are not undone."""
        return self._trx.count

    @property
    def has_patron(self) -> bool:
        """Whether another one holds locks for it."""
        return self._trx.patron is not None

    def changed_rows(self, most: int) -> frozenset[tuple[int, bytes]] | None:
        """The rows that it has changed, by table and key; None if there are more changes than that, or DDL."""
        if self._trx.count > most or CATALOG in self._trx.tables:
            return None
        return frozenset((node.table, node.key) for node in self._trx.chain())

    def has_changed_rows_of(self, table: int) -> bool:
        """Whether it has changed rows of a table, undone or not."""
        return table in self._trx.tables

    # --- reading ---

    def get(self, table: int, key: bytes, view: ReadView | None = None) -> bytes | None:
        """A row as a view has it, with the changes of this transaction; without a view as it is committed now."""
        return self.store.read(table, key, view, self._trx)

    def hidden(self, table: int, key: bytes, view: ReadView) -> bytes | None:
        """The row of a view that a change of this transaction stands in front of; None if there is no such change."""
        return self.store.hidden_in(self.store.memory.table(table), key, view, self._trx)

    def scan(
        self, table: int, first: bytes = b"", view: ReadView | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows from a key on, in the order of keys; rows as `get`. Give a view for a scan of one moment."""
        return self.store.scan(table, first, view, self._trx)

    def scan_down(
        self, table: int, behind: bytes | None = None, view: ReadView | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows in front of a key, or all, the last one first; else as `scan`."""
        return self.store.scan_down(table, behind, view, self._trx)

    def lock(
        self, table: int, key: bytes | None, mode: Mode = Mode.EXCLUSIVE, *, waits: bool = True
    ) -> bytes | None:
        """Lock a row, which need not be there, or the table with None. Returns the newest row.

        waits: stand in the queue if it is not free; else that is `LockWaitTimeout` at once.
        """
        self._require_open()
        store = self.store
        store.memory.table(table)
        if key is not None:
            self._lock((table, None), Mode.SHARED, waits=waits)
        self._lock((table, key), mode, waits=waits)
        return None if key is None else store.newest(table, key)

    def keys(self, table: int, first: bytes = b"") -> Iterator[bytes]:
        """Keys from one on, in their order: also of rows that are deleted, as long as a view has them."""
        return self.store.keys(table, first)

    def keys_down(self, table: int, behind: bytes | None = None) -> Iterator[bytes]:
        """Those in front of a key, or all, the last one first; else as `keys`."""
        return self.store.keys_down(table, behind)

    def has_changed(self, table: int, key: bytes, view: ReadView) -> bool:
        """Whether another transaction has changed, made or deleted a row, and committed that, since a view was
        taken."""
        version = self.store.memory.table(table).look(key)
        while version is not None:
            below, owner = version.prev, version.trx
            if owner is self._trx:
                return False  # it has had the lock since then
            if owner.commit_no != UNFINISHED:
                return owner.commit_no > view.number
            version = below
        return False

    # --- changing ---

    def put(self, table: int, key: bytes, row: bytes) -> bytes | None:
        """Insert or replace a row. Returns the row before; nothing is logged if it is the same."""
        return self._change(table, key, row)

    def insert(self, table: int, key: bytes, row: bytes, duplicate: Mode = Mode.SHARED) -> None:
        """Insert a row. Raises `DuplicateKey`: that lock of the row is held then.

        A committed row that another transaction is changing is waited for with that lock, too.
        """
        self._change(table, key, row, duplicate)

    def delete(self, table: int, key: bytes) -> bytes | None:
        """Delete a row. Returns the row before, None if there was none."""
        return self._change(table, key, None)

    def create_table(self, table: int, definition: bytes) -> None:
        """Make a table, which is for this transaction alone until its commit. Undone like any other change.

        A number is used once in the life of a store: rows of a table that is dropped go with the commit.
        """
        self._require_open()
        self._lock((table, None), Mode.EXCLUSIVE)
        self.insert(CATALOG, table_key(table), definition)

    def drop_table(self, table: int) -> None:
        """Drop a table, and all of its rows once this is committed. Waits for all who have changed rows of it."""
        self.lock(table, None)
        self.delete(CATALOG, table_key(table))

    def _change(
        self, table: int, key: bytes, row: bytes | None, duplicate: Mode | None = None
    ) -> bytes | None:
        """`duplicate`: the row must be new; see `insert`."""
        self._require_open()
        store, trx = self.store, self._trx
        if table not in trx.tables:
            store.memory.table(table)
            self._lock((table, None), Mode.SHARED)
        while True:
            before = store.newest(table, key)
            size = CHANGE_BYTES + len(key) + len(row or b"") + len(before or b"")
            with store.log.lock:
                if not table & TEMPORARY:
                    served = self.served or self
                    served.begin_waiting()
                    store.log.admit(size, served.is_given_up)
                with store.latch:
                    place = store.memory.table(table)
                    version = place.take(key)
                    now = None if version is None else version.row
                    is_old = duplicate is not None and _is_there(version, trx)
                    if duplicate is not None and (is_old or _was_there(version)):
                        request = store.take(trx, (table, key), duplicate)
                    else:
                        request = store.take(trx, (table, key), Mode.EXCLUSIVE, implicit=True)
                    if request is None:
                        if is_old:
                            raise DuplicateKey(f"table {table} has a row of the key {key!r}")
                        if now == row:  # it is locked all the same
                            store.take(trx, (table, key), Mode.EXCLUSIVE)
                            return now
                        if len(now or b"") <= len(before or b""):
                            store.logged_change(trx, table, key, now, row)
                            return now
            if request is not None:
                self._wait(request)

    def _lock(self, resource: Resource, mode: Mode, *, waits: bool = True) -> None:
        store = self.store
        with store.latch:
            if not waits and not store.locks.may_have(self._trx, resource, mode):
                raise LockWaitTimeout()
            request = store.take(self._trx, resource, mode)
        if request is not None:
            self._wait(request)

    def _wait(self, request: LockRequest) -> None:
        if not self.blocks and not request.is_over:
            raise LockBusy(LockWait(self, request))
        if not request.wait(self.lock_wait_s):
            with self.store.latch:
                self.store.locks.timed_out(request)
        self.require_lock(request)

    def require_lock(self, request: LockRequest) -> None:
        """Raise what its wait has ended with, if not with the lock."""
        if request.failure is not None:
            if isinstance(request.failure, Deadlock):
                self.rollback()
            raise request.failure

    def begin_waiting(self) -> None:
        """A wait begins that is no wait for a lock: what was given up before is none of it."""
        self._waits_for_room = self._gave_up = False

    def is_given_up(self) -> bool:
        """Asked while something waits for room in the log: whether it is to end."""
        self._waits_for_room = True
        return self._gave_up

    def give_up(self) -> None:
        """End its wait for a lock, or for room in the log, from any thread: it raises `WaitGivenUp`."""
        self._gave_up = self._waits_for_room
        with self.store.latch:
            if isinstance(self._trx.waiting, LockRequest):
                failure = WaitGivenUp("the wait for a lock was given up")
                self.store.locks.give_up(self._trx.waiting, failure)

    # --- rows that another engine keeps ---

    @property
    def is_elsewhere(self) -> bool:
        """Whether it has changed such rows."""
        return self._trx.elsewhere

    def changes_elsewhere(self) -> dict[tuple[int, bytes], bytes | None]:
        """Those rows as they are behind it, by table and key; None: deleted. To be prepared there, see `ready`."""
        return self.store.changes_elsewhere(self._trx)

    def ready(self, *, prepared: bool) -> None:
        """Whether they are prepared there as they are now: without that it does not commit."""
        self._trx.ready = prepared

    # --- savepoints and the end ---

    def savepoint(self) -> int:
        """A mark to come back to."""
        self._require_open()
        return 0 if self._trx.top is None else self._trx.top.no

    def rollback_to(self, savepoint: int) -> None:
        """Undo all changes since the savepoint. Rows that only these have changed are free again."""
        self._require_open()
        self.store.undo(self._trx, savepoint)

    def rollback(self) -> None:
        """Undo everything, and end. Nobody waits for its locks any more, nor it for one."""
        if not self.ended:
            self.give_up()
            self.ended = True
            self.store.roll_back(self._trx)

    def commit(self) -> None:
        """Commit what has nothing in the binlog. Durable with the next sync of the log."""
        step = self.ending()
        log = self.store.log
        with log.lock:
            log.admit(SMALL_BYTES)
            if step.record:
                log.log_tables(step.record)
            step.done()

    def ending(self) -> TableStep:
        """The step that commits it with a record of the binlog."""
        self._require_open()
        self._require_ready()
        trx = self._trx

        def done() -> None:
            self.ended = True
            self.store.committed(trx)

        return TableStep(encode_end(trx.id, committed=True) if trx.logged else b"", done)

    def preparing(self, xid: Xid, engines: int = 1) -> TableStep:
        """The step that prepares it, with the record of the binlog that does."""
        self._require_open()
        trx, store = self._trx, self.store
        self._require_ready()
        record = encode_state(SetState(trx.id, State.PREPARED, engines, xid))

        def done() -> None:
            self.ended = True
            with store.latch:
                trx.logged, trx.state, trx.xid, trx.engines = True, State.PREPARED, xid, engines
                store.open[trx.id] = store.prepared[xid] = trx

        return TableStep(record, done)

    def _require_ready(self) -> None:
        if self._trx.elsewhere and not self._trx.ready:
            raise StorageError(
                f"transaction {self._trx.id} has changed rows that another engine keeps: it commits by two phases"
            )

    def _require_open(self) -> None:
        if self.ended:
            raise TransactionEnded(f"transaction {self._trx.id} has ended")
        self.store.require_not_paused()
        if isinstance(self._trx.waiting, LockRequest):
            raise LockBusy(LockWait(self, self._trx.waiting))


def _is_there(version: Version | None, trx: Trx) -> bool:
    """Whether it is a row that no other unfinished transaction has made."""
    return (
        version is not None
        and version.row is not None
        and (version.trx is trx or version.trx.commit_no != UNFINISHED)
    )


def _was_there(version: Version | None) -> bool:
    """Whether it is another form of a committed row: once its transaction has ended, the row is there, most likely."""
    if version is None or version.row is None:
        return False
    while version is not None and version.trx.commit_no == UNFINISHED:
        version = version.prev
    return version is not None and version.row is not None


class TransactionFacts(NamedTuple):
    """A transaction that has changed rows, and not ended. `changes`: what is not undone."""

    id: int
    state: State
    changes: int
    is_recovered: bool
    is_undoing: bool
    xid: Xid | None


@dataclass(slots=True)
class _Past:
    """A committed transaction whose older versions somebody may need."""

    commit_no: int
    node: AnyNode | None


class TableStore:
    """All tables of a store.

    Args:
        memory, open, next_trx: as recovery found them, with the transactions that have not ended.

    Attributes:
        is_paused: see `pause`.
    """

    def __init__(
        self, log: TableLog, memory: Memory, unfinished: dict[int, Trx], next_trx: int
    ) -> None:
        self.log = log
        self.memory = memory
        self.latch = threading.Lock()
        self._sorting = (
            threading.Lock()
        )  # one table at a time; nothing else is held by who waits for it
        self.locks = LockTable(memory.owner)
        self.open = unfinished
        """Transactions that have logged something, and not ended, by number."""
        self.prepared: dict[Xid, Trx] = {}
        self._next_trx = next_trx
        self._next_temporary = TEMPORARY
        self._views: dict[int, int] = {}  # how many of each number
        self._past: deque[_Past] = deque()
        self.take = self.locks.take
        self.is_paused = False
        for trx in unfinished.values():
            trx.recovered = trx.logged = True
            for table in trx.tables:
                self.take(trx, (table, None), Mode.SHARED)
            if CATALOG in trx.tables:
                for node in trx.chain():
                    if node.table == CATALOG:
                        self.take(trx, (int.from_bytes(node.key), None), Mode.EXCLUSIVE)
            if trx.state == State.PREPARED:
                assert trx.xid is not None
                self.prepared[trx.xid] = trx
        self.commits = 0
        self.changes = 0
        self.undone = 0

    def begin(self, patron: TableTransaction | None = None) -> TableTransaction:
        """Begin a transaction. Nothing is logged before its first change.

        patron: one whose locks are no hindrance to it, as the same session has taken them for all that it does.
        """
        with self.latch:
            trx = self._next()
            trx.patron = None if patron is None else patron._trx
            return TableTransaction(self, trx)

    def pause(self, *, paused: bool = True) -> bool:
        """No transaction changes or locks anything from now on: `WaitGivenUp`. Or, with `paused` False, they may again.

        False, and nothing is paused, while one has a change or a lock, or somebody reads in a view; but for those that
        are prepared.
        """
        with self.latch:
            prepared = set(self.prepared.values())
            others = not prepared.issuperset(self.open.values())
            if paused and (others or self._views or self.locks.has_others(prepared)):
                return False
            self.is_paused = paused
            return True

    def transactions(self) -> list[TransactionFacts]:
        """Those that have logged something, and not ended, the oldest first."""
        with self.latch:
            return [
                TransactionFacts(trx.id, trx.state, trx.count, trx.recovered, trx.undoing, trx.xid)
                for _, trx in sorted(self.open.items())
            ]

    def require_not_paused(self) -> None:
        """Raises `WaitGivenUp` behind `pause`."""
        if self.is_paused:
            raise WaitGivenUp("the tables are about to go on in another store")

    @property
    def next_trx(self) -> int:
        """The number of the next transaction."""
        return self._next_trx

    # --- reading ---

    def read(
        self, table: int, key: bytes, view: ReadView | None, trx: Trx = COMMITTED
    ) -> bytes | None:
        """See `TableTransaction.get`. Takes no lock: versions never change, but for the cut of what no view needs."""
        return self.read_in(self.memory.table(table), key, view, trx)

    @staticmethod
    def read_in(
        table: Table, key: bytes, view: ReadView | None, trx: Trx = COMMITTED
    ) -> bytes | None:
        """The same of a table that may be dropped by now."""
        version = table.look(key)
        most = UNFINISHED - 1 if view is None else view.number
        while version is not None:
            # Read before its transaction is looked at: a commit in between is seen then, before it cuts what is below.
            below, owner = version.prev, version.trx
            if owner is trx or owner.commit_no <= most:
                return version.row
            version = below
        return None

    @staticmethod
    def hidden_in(table: Table, key: bytes, view: ReadView, trx: Trx) -> bytes | None:
        """See `TableTransaction.hidden`."""
        version = table.look(key)
        is_changed = False
        while version is not None:
            below, owner = version.prev, version.trx  # in this order: see `read_in`
            if owner is trx:
                is_changed = True
            elif owner.commit_no <= view.number:
                return version.row if is_changed else None
            version = below
        return None

    def get(self, table: int, key: bytes, view: ReadView | None = None) -> bytes | None:
        """A row as a view has it; without one as it is committed now."""
        return self.read(table, key, view)

    def settled(self, table: int, key: bytes) -> tuple[bytes | None, bool]:
        """The newest row, and whether it is committed."""
        version = self.memory.table(table).look(key)
        if version is None:
            return None, True
        return version.row, version.trx.commit_no != UNFINISHED

    def newest(self, table: int, key: bytes) -> bytes | None:
        """The newest row, committed or not."""
        version = self.memory.table(table).look(key)
        return None if version is None else version.row

    def scan(
        self, table: int, first: bytes = b"", view: ReadView | None = None, trx: Trx = COMMITTED
    ) -> Iterator[tuple[bytes, bytes]]:
        """See `TableTransaction.scan`."""
        for key in self.keys(table, first):
            row = self.read(table, key, view, trx)
            if row is not None:
                yield key, row

    def keys(self, table: int, first: bytes = b"") -> Iterator[bytes]:
        """See `TableTransaction.keys`."""
        behind = False
        self._put_in_order(table)
        while True:
            with self.latch:
                keys = self.memory.table(table).ordered().from_(first, _SCAN_ROWS, behind=behind)
            yield from keys
            if len(keys) < _SCAN_ROWS:
                return
            first, behind = keys[-1], True

    def scan_down(
        self,
        table: int,
        behind: bytes | None = None,
        view: ReadView | None = None,
        trx: Trx = COMMITTED,
    ) -> Iterator[tuple[bytes, bytes]]:
        """See `TableTransaction.scan_down`."""
        for key in self.keys_down(table, behind):
            row = self.read(table, key, view, trx)
            if row is not None:
                yield key, row

    def keys_down(self, table: int, behind: bytes | None = None) -> Iterator[bytes]:
        """See `TableTransaction.keys_down`."""
        self._put_in_order(table)
        while True:
            with self.latch:
                keys = self.memory.table(table).ordered().before(behind, _SCAN_ROWS)
            yield from keys
            if len(keys) < _SCAN_ROWS:
                return
            behind = keys[-1]

    def _put_in_order(self, number: int) -> None:
        """Sort the keys of a large table, once, without the latch: writers go on meanwhile, and note what they do.

        Rows go from the packed ones to the others only, so a key is seen at least once in these two looks.
        """
        with self.latch:
            place = self.memory.table(number)
            if place.keys is not None or len(place) <= AT_ONCE:
                return  # `ordered` does it
        with self._sorting:
            with self.latch:
                if place.keys is not None:
                    return
                noted = place.noted = []
            try:
                made = SortedKeys.of_many(self.keys_in(place))
                applied = 0
                while place.keys is None:
                    with self.latch:
                        for key, is_there in noted[applied : applied + AT_ONCE]:
                            made.put(key, is_there=is_there)
                        applied += AT_ONCE
                        if applied >= len(noted):
                            place.keys = made
            finally:
                place.noted = None

    def keys_in(self, place: Table) -> list[bytes]:
        """All keys of a table, in no order, some twice. Many may be: the latch is given back in between."""
        keys: list[bytes] = []
        packed = place.packed
        for first in range(0, 0 if packed is None else packed.places, AT_ONCE):
            assert packed is not None
            with self.latch:
                keys += packed.keys(first, AT_ONCE)
        with self.latch:
            keys += place.rows
        return keys

    def tables(self, view: ReadView | None = None) -> dict[int, bytes]:
        """The definitions of all tables, by number."""
        return {int.from_bytes(key): row for key, row in self.scan(CATALOG, view=view)}

    def make_temporary(self, count: int) -> int:
        """Make so many tables that are in no log and no snapshot, and no view of the catalog: their rows are changed
        and undone as all others, and are gone when the store is closed. Returns the number of the first; the others
        follow it."""
        with self.latch:
            tables = self.memory.tables
            while True:
                first = self._next_temporary
                if (first + count) & ~TEMPORARY >= TEMPORARY:
                    self._next_temporary = TEMPORARY
                    continue
                self._next_temporary += count
                numbers = range(first, first + count)
                if tables.keys().isdisjoint(numbers):
                    tables.update((number, TemporaryRows()) for number in numbers)
                    return first

    def drop_temporary(self, first: int, count: int) -> None:
        """Forget such tables, with their rows; also while transactions have changed these."""
        with self.latch:
            for number in range(first, first + count):
                self.memory.tables.pop(number, None)

    def temporary_bytes(self, first: int, count: int) -> int:
        """What such tables take of the memory; nothing of those that are dropped."""
        found = (self.memory.tables.get(number) for number in range(first, first + count))
        return sum(place.size for place in found if isinstance(place, TemporaryRows))

    def has(self, table: int) -> bool:
        """Whether there is a table of that number now."""
        return table in self.memory.tables

    @property
    def kept_elsewhere(self) -> set[int]:
        """The tables whose rows another engine keeps."""
        return {number for number in self.memory.tables if number & ELSEWHERE}

    def changes_elsewhere(self, trx: Trx) -> dict[tuple[int, bytes], bytes | None]:
        """See `TableTransaction.changes_elsewhere`."""
        found: dict[tuple[int, bytes], bytes | None] = {}
        for node in trx.chain():
            if node.table & ELSEWHERE and (node.table, node.key) not in found:
                found[node.table, node.key] = self.newest(node.table, node.key)
        return found

    def now_elsewhere(self) -> RowsElsewhere:
        """The rows of now that another engine keeps. Under the append lock, as `view`."""
        prepared = [trx for trx in self.prepared.values() if trx.elsewhere]
        return RowsElsewhere(
            self,
            self.view(),
            {number: self.memory.tables[number] for number in self.kept_elsewhere},
            [(trx.id, self.changes_elsewhere(trx)) for trx in prepared],
        )

    def view(self) -> ReadView:
        """What is committed now. Under the append lock it goes with the end of the binlog."""
        with self.latch:
            number = self.memory.commit_no
            self._views[number] = self._views.get(number, 0) + 1
            return ReadView(self, number)

    def close_view(self, view: ReadView) -> None:
        """See `ReadView.close`."""
        with self.latch:
            if view.number >= 0:
                left = self._views[view.number] - 1
                if left:
                    self._views[view.number] = left
                else:
                    del self._views[view.number]
                view.number = -1

    # --- steps of transactions ---

    def logged_change(
        self, trx: Trx, table: int, key: bytes, before: bytes | None, after: bytes | None
    ) -> None:
        """Log a change and make it. Under the append lock and the latch; the row's lock is held."""
        if table & UNLOGGED:
            trx.has_unlogged = True
            if table & ELSEWHERE:
                trx.elsewhere, trx.ready = True, False
            self.memory.change(trx, table, key, after)
            self.changes += 1
            return
        if trx.has_unlogged:
            below = logged_no(trx.top)
        else:
            below = 0 if trx.top is None else trx.top.no
        self.log.log_tables(encode_change(trx.id, trx.no + 1, below, table, key, before, after))
        self.memory.change(trx, table, key, after)
        self.changes += 1
        if not trx.logged:
            trx.logged = True
            self.open[trx.id] = trx

    def whole(self, changes: Mapping[tuple[int, bytes], bytes | None]) -> TableStep:
        """The step of a transaction that is one mini-transaction: all of its changes, and its end.

        Under the append lock until the step is done. The rows must be such as nobody locks; a row of None is deleted.
        """
        memory = self.memory
        with self.latch:
            assert all(memory.owner(row) is None for row in changes)
            trx = self._next()
            parts = []
            for no, ((table, key), row) in enumerate(changes.items(), 1):
                place = memory.tables.get(table)
                version = None if place is None else place.look(key)
                before = None if version is None else version.row
                parts.append(encode_change(trx.id, no, no - 1, table, key, before, row))
            parts.append(encode_end(trx.id, committed=True))

        def done() -> None:
            with self.latch:
                for (table, key), row in changes.items():
                    memory.change(trx, table, key, row)
                self.changes += len(changes)
                self._committed(trx)

        return TableStep(b"".join(parts), done)

    def _next(self) -> Trx:
        self._next_trx += 1
        return Trx(self._next_trx - 1)

    def at_once(
        self, table: int, key: bytes, before: bytes | None, after: bytes | None
    ) -> TableStep | None:
        """As `whole`, for one row that anybody may change, of a logged table, not of the catalog; with a record of the
        binlog.

        None, and nothing is done, if the row is another one than `before`, or somebody has a lock in the way or waits
        for one. Under the append lock and the latch, which are held until the step is done.
        """
        place = self.memory.tables.get(table)
        if place is None or not self.locks.is_free(table, key):
            return None
        version = place.take(key)
        if version is None:
            if before is not None:
                return None
        elif version.row != before or version.trx.commit_no == UNFINISHED:
            return None
        number = self._next_trx
        self._next_trx += 1

        def done() -> None:
            self.changes += 1
            if after is not None and not self._past and not self._views:
                # Nobody can ask for what was there before: there is no transaction to be remembered.
                self.memory.commit_no += 1
                self.commits += 1
                place.set(key, Version(after, COMMITTED, None))
                return
            trx = Trx(number)
            self.memory.change(trx, table, key, after)
            self._committed(trx)

        record = encode_change(number, 1, 0, table, key, before, after)
        return TableStep(record + encode_end(number, committed=True), done)

    def undo(self, trx: Trx, top: int, *, release: bool = False, steps: int | None = None) -> bool:
        """Undo the nodes above `top`, each step logged before the next. Returns whether all of it is done.

        Args:
            release: give back the lock of each row that is undone.
            steps: do no more than so many.
        """
        while trx.top is not None and trx.top.no > top:
            if steps is not None:
                if not steps:
                    return False
                steps -= 1
            with self.log.lock:
                self.log.admit(SMALL_BYTES)
                node: AnyNode | None = trx.unpack()
                is_logged = False
                for _ in range(UNDO_NODES):
                    if isinstance(node, PackedNode) or node is None or node.no <= top:
                        break
                    is_logged = is_logged or not node.table & UNLOGGED
                    node = node.below
                down_to = 0 if node is None else node.no
                with self.latch:
                    if is_logged:
                        self.log.log_tables(encode_undone(trx.id, logged_no(node)))
                    while trx.top is not None and trx.top.no > down_to:
                        undone = self.memory.undo_top(trx)
                        self.undone += 1
                        if release:
                            self._free(trx, (undone.table, undone.key))
        return True

    def _free(self, trx: Trx, resource: Resource) -> None:
        if self.memory.owner(resource) is not trx:
            self.locks.release(trx, resource)

    def roll_back(self, trx: Trx) -> None:
        """Undo all of a transaction, and end it."""
        trx.undoing = True
        self.undo(trx, 0, release=True)
        self.rolled_back(trx)

    def rolled_back(self, trx: Trx) -> None:
        """Note the end of a transaction that is undone."""
        with self.log.lock:
            if trx.logged:
                self.log.admit(SMALL_BYTES)
                self.log.log_tables(encode_end(trx.id, committed=False))
            with self.latch:
                self._ended(trx)

    def committed(self, trx: Trx) -> None:
        """The END of a transaction is logged: it is seen by later views, and its locks are free. Under the append
        lock."""
        with self.latch:
            self._committed(trx)

    def _committed(self, trx: Trx) -> None:
        self.memory.commit(trx)
        self.commits += 1
        if trx.top is not None:
            self._past.append(_Past(trx.commit_no, trx.top))
        count, trx.top, trx.count = trx.count, None, 0
        self._ended(trx)
        self._forget(_FORGET_NODES + min(count, UNDO_NODES))

    def _ended(self, trx: Trx) -> None:
        self.open.pop(trx.id, None)
        if trx.xid is not None:
            self.prepared.pop(trx.xid, None)
        self.locks.release_all(trx)

    def forget(self, nodes: int) -> bool:
        """Cut versions that no view needs, looking at so many nodes. Returns whether there are more."""
        with self.latch:
            return self._forget(nodes)

    def _forget(self, nodes: int) -> bool:
        horizon = min(self._views, default=self.memory.commit_no)
        past = self._past
        while past and past[0].commit_no <= horizon:
            first = past[0]
            while (node := first.node) is not None:
                if not nodes:
                    return True
                nodes -= 1
                self.memory.forget(node, horizon)
                first.node = node.below
            past.popleft()
        return False

    # --- prepared transactions ---

    def completing(self, xid: Xid) -> TableStep | None:
        """The step that commits a prepared transaction; None if it has no part here."""
        with self.latch:
            trx = self.prepared.get(xid)
        if trx is None:
            return None
        found = trx
        return TableStep(encode_end(found.id, committed=True), lambda: self.committed(found))

    def reviving(self, xid: Xid) -> TableStep | None:
        """The step that makes a prepared transaction active, so that it can be undone; None as `completing`."""
        with self.latch:
            trx = self.prepared.get(xid)
        if trx is None:
            return None
        found = trx

        def done() -> None:
            with self.latch:
                found.state = State.ACTIVE
                self.prepared.pop(xid, None)

        return TableStep(encode_state(SetState(found.id, State.ACTIVE)), done)

    def take_prepared(self, trx: Trx, changes: Mapping[tuple[int, bytes], bytes | None]) -> None:
        """At a start: a prepared transaction has changed these rows, too, which another engine keeps."""
        with self.latch:
            for (table, key), row in changes.items():
                self.memory.change(trx, table, key, row)
                self.take(trx, (table, None), Mode.SHARED)
            trx.elsewhere = trx.ready = trx.has_unlogged = True

    def revive(self, trx: Trx) -> None:
        """Make a prepared transaction active again, which the binlog does not have. Durable with the next sync."""
        if trx.xid is None:
            raise XaStateError(f"transaction {trx.id} is not prepared")
        step = self.reviving(trx.xid)
        assert step is not None
        with self.log.lock:
            self.log.admit(SMALL_BYTES)
            self.log.log_tables(step.record)
            step.done()

    def close(self) -> None:
        """End all waits for locks, and later ones at once."""
        with self.latch:
            self.locks.close(lambda: WaitGivenUp("the store is being closed"))
