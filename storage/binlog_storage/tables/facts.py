"""The server's own facts as rows: accounts, leases, upstreams, its uuid. docs/internals/tables.md has the steps.

======  =========  ==============================================================
number  table      keys
======  =========  ==============================================================
16      accounts   account/USER@HOST; of an older version: user/USER, grants/USER
17      leases     lease/NAME, slot/SERVER_ID/ACCOUNT, ended_slot/...
18      upstreams  relay:NAME, relay_stopped:NAME, relay_followed:NAME ...
19      server     all others
20      binlog     age: how often the binlog has begun anew, 8 bytes; next age: that of a traditional one, which is
                   about to
21      breaks     of the state: the number of a file, 8 bytes; see `binlog.state_breaks`
22      decisions  beside a traditional binlog: names of commits by two phases that other engines may not know yet
======  =========  ==============================================================

The key of a row is that of the fact, the row its value as JSON. An update is one mini-transaction of the redo log, with
the end of its transaction: a crash leaves all of it or nothing, there is never anything to undo, and nobody else
locks these rows.

Who has the directory while no server runs (`OfflineFacts`) reads the tables, and *tells* changes to the next start:
they stand in the file of `disk.state`. So do all facts of a store of an older version. A start takes over what it is
told, and a crash behind each step leaves

    1  it is logged, and behind it the mark of what was taken     nothing, or some of it: it is taken once more
    2  the log is synced                                          what the mark names is not taken again
    3  the file is written without it                             the facts are rows alone
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import FILE_KEYS, OFFLINE_KEY, StateStore
from binlog_storage.errors import CorruptTables, DiskFull, WaitGivenUp
from binlog_storage.redo.reader import Reaches
from binlog_storage.tables.rebuild import Rebuild
from binlog_storage.tables.records import CHANGE_BYTES, SMALL_BYTES
from binlog_storage.tables.rows import CATALOG, Memory, table_key
from binlog_storage.tables.store import TableLog, TableStep, TableStore

log = logging.getLogger(__name__)

ACCOUNTS: Final = 16
LEASES: Final = 17
UPSTREAMS: Final = 18
SERVER: Final = 19
BINLOG: Final = 20
BREAKS: Final = 21
DECISIONS: Final = 22
_DEFINITIONS: Final = {
    ACCOUNTS: b"\0accounts",
    LEASES: b"\0leases",
    UPSTREAMS: b"\0upstreams",
    SERVER: b"\0server",
}
_OWN: Final = frozenset({CATALOG, *_DEFINITIONS, BINLOG, BREAKS})


def is_own(table: int) -> bool:
    """Whether a table is one of facts, or the catalog."""
    return table in _OWN or table == DECISIONS


_PREFIXES: Final = {
    "account/": ACCOUNTS,
    "user/": ACCOUNTS,
    "grants/": ACCOUNTS,
    "lease/": LEASES,
    "slot/": LEASES,
    "ended_slot/": LEASES,
    "relay": UPSTREAMS,
}
_BINLOG_DEFINITION: Final = b"\0binlog"
_BREAKS_DEFINITION: Final = b"\0breaks"
_DECISIONS_DEFINITION: Final = b"\0decisions"
_FILE_BYTES: Final = 8
_AGE_KEY: Final = b"age"
_NEXT_AGE_KEY: Final = b"next age"
_AGE_BYTES: Final = 8
_TEXT: Final = ("utf-8", "surrogatepass")  # of keys: a client's name may be no UTF-8
TAKEN_KEY: Final = "taken"  # the last that was taken from the file
_TAKEN_AT_ONCE: Final = 256


def binlog_begins(tables: TableStore) -> TableStep | None:
    """What the first mini-transaction of a new binlog takes along: its age, where a fact can refer to that; and it has
    no breaks of the state. None for nothing.

    Under the append lock. The age is changed nowhere else.
    """
    changes: dict[tuple[int, bytes], bytes | None] = {}
    if LEASES in tables.memory.tables:
        if BINLOG not in tables.memory.tables:
            changes[CATALOG, table_key(BINLOG)] = _BINLOG_DEFINITION
        changes[BINLOG, _AGE_KEY] = (_age(tables.memory) + 1).to_bytes(_AGE_BYTES, "little")
    for number in breaks_of(tables):
        changes[BREAKS, number.to_bytes(_FILE_BYTES)] = None
    return tables.whole(changes) if changes else None


def binlog_will_begin(tables: TableStore) -> TableStep | None:
    """What is to be durable before a binlog in files of its own begins anew: its next age. None for nothing.

    Whether it has begun, the files say: `binlog_has_begun`. Under the append lock, as that.
    """
    if LEASES not in tables.memory.tables:
        return None
    changes: dict[tuple[int, bytes], bytes | None] = {}
    if BINLOG not in tables.memory.tables:
        changes[CATALOG, table_key(BINLOG)] = _BINLOG_DEFINITION
    changes[BINLOG, _NEXT_AGE_KEY] = (_age(tables.memory) + 1).to_bytes(_AGE_BYTES, "little")
    return tables.whole(changes)


def binlog_has_begun(tables: TableStore, *, begun: bool) -> TableStep | None:
    """The binlog that was to begin anew has, or has not. None if there was none."""
    if BINLOG not in tables.memory.tables:
        return None
    age = tables.newest(BINLOG, _NEXT_AGE_KEY)
    if age is None:
        return None
    changes: dict[tuple[int, bytes], bytes | None] = {(BINLOG, _NEXT_AGE_KEY): None}
    if begun:
        changes[BINLOG, _AGE_KEY] = age
    return tables.whole(changes)


def decision(tables: TableStore, name: bytes) -> TableStep:
    """A commit by two phases is decided: to be logged with its group. Under the append lock."""
    changes: dict[tuple[int, bytes], bytes | None] = {(DECISIONS, name): b""}
    if DECISIONS not in tables.memory.tables:
        changes = {(CATALOG, table_key(DECISIONS)): _DECISIONS_DEFINITION, **changes}
    return tables.whole(changes)


def decisions(tables: TableStore) -> list[bytes]:
    """The names of those that other engines may not know yet."""
    if DECISIONS not in tables.memory.tables:
        return []
    return [name for name, _ in tables.scan(DECISIONS)]


def forget_decisions(tables: TableStore, names: Iterable[bytes]) -> None:
    """All know these. Under the append lock, behind `admit`."""
    step = tables.whole({(DECISIONS, name): None for name in names})
    tables.log.log_tables(step.record)
    step.done()


def breaks_of(tables: TableStore) -> list[int]:
    """The numbers of the files that are state breaks by the rows of theirs."""
    if BREAKS not in tables.memory.tables:
        return []
    return [int.from_bytes(key) for key, _ in tables.scan(BREAKS)]


def note_breaks(tables: TableStore, files: Iterable[int], gone: Iterable[int] = ()) -> None:
    """Log state breaks, and forget those of files that are gone. Under the append lock, behind `admit`."""
    changes: dict[tuple[int, bytes], bytes | None] = {}
    if BREAKS not in tables.memory.tables:
        changes[CATALOG, table_key(BREAKS)] = _BREAKS_DEFINITION
    changes |= {(BREAKS, number.to_bytes(_FILE_BYTES)): b"" for number in files}
    changes |= {(BREAKS, number.to_bytes(_FILE_BYTES)): None for number in gone}
    step = tables.whole(changes)
    tables.log.log_tables(step.record)
    step.done()


class _Facts(ABC):
    """The facts in memory; who has them says how they are changed."""

    def __init__(self, memory: Memory) -> None:
        """Raises `CorruptTables`."""
        self._memory = memory
        self._values = _read(memory)

    @property
    def binlog_age(self) -> int:
        """See `StoreFacts`."""
        return _age(self._memory)

    def get(self, key: str, default: Any = None) -> Any:
        """See `StoreFacts`."""
        return self._values.get(key, default)

    def items(self, prefix: str) -> list[tuple[str, Any]]:
        """See `StoreFacts`."""
        return sorted(item for item in self._values.items() if item[0].startswith(prefix))

    def set(self, key: str, value: Any) -> None:
        """See `StoreFacts`."""
        self.update({key: value})

    @abstractmethod
    def update(self, changes: Mapping[str, Any]) -> None:
        """See `StoreFacts`."""


class FactTables(_Facts):
    """The facts of an open store: see `disk.state.StoreFacts`. May be used from several threads.

    Args:
        file: may tell changes; None for a store without it.
        full: says that the disk is full: then an update does not wait for room in the log, which others have to make.
    """

    def __init__(
        self, tables: TableStore, file: StateStore | None, full: Callable[[], DiskFull | None]
    ) -> None:
        """Reads all of them, and takes over what the file tells. Raises `CorruptTables`, `DiskError`."""
        super().__init__(tables.memory)
        self._tables = tables
        self._file = file
        self._full = full
        self._lock = threading.Lock()
        self._told = None if file is None else Told.by(file)
        if self._told is not None:
            self._take_over()

    def update(self, changes: Mapping[str, Any]) -> None:
        """See `StoreFacts`."""
        with self._lock:
            if self._told is not None:
                self._take(self._told)
            self._log(changes)
            self._tables.log.sync_log()
            self._values = _changed(self._values, changes)

    def _take_over(self) -> None:
        told = self._told
        assert told is not None
        try:
            self.update({})
        except DiskFull as error:  # they hold all the same, and go along with the next update
            log.warning("what the directory's file tells is not taken into tables yet: %s", error)
            self._values = _changed(self._values, told.changes)

    def _take(self, told: Told) -> None:
        """Make rows of what the file tells, unless they are there; then make the file forget it."""
        if self._values.get(TAKEN_KEY) != told.mark:
            changes = list(told.changes.items())
            for at in range(0, len(changes), _TAKEN_AT_ONCE):
                self._log(dict(changes[at : at + _TAKEN_AT_ONCE]))
            self._log({TAKEN_KEY: told.mark})
            self._tables.log.sync_log()
            self._values = _changed(self._values, {**told.changes, TAKEN_KEY: told.mark})
            log.debug("%d facts of the directory's file are rows now", len(told.changes))
        self._told = None
        assert self._file is not None
        try:
            self._file.update(told.forgotten)
        except DiskFull as error:
            log.warning("the next start forgets in the file what is in tables: %s", error)

    def _log(self, changes: Mapping[str, Any]) -> None:
        """Log changes as one mini-transaction. Raises `DiskFull`, `StorageError`; nothing is done then."""
        store = self._tables
        made: dict[tuple[int, bytes], bytes | None] = {}
        size = SMALL_BYTES
        for key, value in changes.items():
            table = _table_of(key)
            if table not in store.memory.tables:
                made[CATALOG, table_key(table)] = _DEFINITIONS[table]
                before = None
            else:
                before = store.newest(table, key.encode(*_TEXT))
            row = None if value is None else _row(value)
            if row != before:
                made[table, key.encode(*_TEXT)] = row
                size += 2 * CHANGE_BYTES + 4 * len(key) + len(row or b"") + len(before or b"")
        if not made:
            return
        with store.log.lock:
            try:
                store.log.admit(size, self._is_full)
            except WaitGivenUp:
                if (full := self._full()) is not None:
                    raise DiskFull(str(full)) from None
                raise
            step = store.whole(made)
            store.log.log_tables(step.record)
            step.done()

    def _is_full(self) -> bool:
        return self._full() is not None


class OfflineFacts(_Facts):
    """The facts of a store that nobody has open: see `disk.state.StoreFacts`. Changes are told to the next start.

    The directory is the caller's, who has its lock.
    """

    def __init__(self, disk: Disk, reaches: Reaches | None = None) -> None:
        """`reaches`: see `RedoReader.replay`. Raises `CorruptRedo`, `CorruptTables`, `NotAStore`, `DiskError`."""
        tables = Rebuild()
        tables.load_as_it_is(disk, reaches)
        super().__init__(tables.memory)
        defined = {int.from_bytes(key) for key in tables.memory.tables[CATALOG].all_keys()}
        self.other_tables = frozenset({*defined, *tables.memory.tables} - _OWN)
        """The numbers of the tables that are not of facts."""
        nowhere = cast(TableLog, None)
        self.tables = TableStore(nowhere, tables.memory, tables.open, tables.next_trx)
        """All tables, to be read."""
        self._file = StateStore(disk)
        told = Told.by(self._file)
        self._forgotten: dict[str, None] = {}
        self._told: dict[str, Any] = {}
        if told is not None and self._values.get(TAKEN_KEY) == told.mark:
            self._forgotten = told.forgotten
        elif told is not None:
            self._values = _changed(self._values, told.changes)
            self._told = dict((self._file.get(OFFLINE_KEY) or {}).get("changes", {}))

    def update(self, changes: Mapping[str, Any]) -> None:
        """See `StoreFacts`."""
        told = {**self._told, **changes}
        # The id makes it another one than what was taken before, also if it says the same.
        offline = {"id": secrets.token_hex(8), "changes": told}
        self._file.update({**self._forgotten, OFFLINE_KEY: offline})
        self._told, self._forgotten = told, {}
        self._values = _changed(self._values, changes)


class Told(NamedTuple):
    """What the file tells the next start.

    changes: by key; None removes the fact.
    mark: names it: what says the same but was told at another time has another one.
    forgotten: the changes of the file that make it forget all that.
    """

    changes: dict[str, Any]
    mark: str
    forgotten: dict[str, None]

    @classmethod
    def by(cls, file: StateStore) -> Told | None:
        """What a file tells; None if that is nothing."""
        older = {key: value for key, value in file.items("") if key not in FILE_KEYS}
        offline = file.get(OFFLINE_KEY)
        if not older and offline is None:
            return None
        changes = {**older, **(offline or {}).get("changes", {})}
        mark = hashlib.sha256(_row([older, offline])).hexdigest()
        return cls(changes, mark, dict.fromkeys([*older, OFFLINE_KEY]))


def _age(memory: Memory) -> int:
    table = memory.tables.get(BINLOG)
    version = None if table is None else table.look(_AGE_KEY)
    return 0 if version is None or version.row is None else int.from_bytes(version.row, "little")


def _table_of(key: str) -> int:
    return next((table for prefix, table in _PREFIXES.items() if key.startswith(prefix)), SERVER)


def _row(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _read(memory: Memory) -> dict[str, Any]:
    """All facts. Of nobody's rows but these none is unfinished: they are logged with the end of their transaction."""
    found: dict[str, Any] = {}
    for number in _DEFINITIONS:
        table = memory.tables.get(number)
        for key in [] if table is None else table.all_keys():
            version = None if table is None else table.look(key)
            if version is not None and version.row is not None:
                with contextlib.suppress(ValueError):
                    found[key.decode(*_TEXT)] = json.loads(version.row)
                    continue
                raise CorruptTables(
                    f"table {number} of the server has {key!r}: {version.row[:80]!r}"
                )
    return found


def _changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**values, **changes}.items() if value is not None}
