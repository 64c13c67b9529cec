"""Rows of tables whose engine is SQLite: a file with a log of its own, which commits with the binlog by two phases.

    rows      table, key, row          what is committed
    prepared  name, table, key, row    what a transaction has changed, prepared under that name (row NULL: deleted)
    names     name                     of what is prepared
    facts     name, value              the uuid of the store that it belongs to; the format

A transaction is prepared by one transaction of SQLite, which writes all of its changes into `prepared`, synced; and
committed by another one, which moves them into `rows`. So a crash at any point leaves it as it was before, or prepared,
or committed. Who is prepared at a start is settled by the binlog: docs/internals/tables.md.

A sync or a write of the file that fails is believed once, as one of the store: nothing more is written to it, and what
the binlog has decided is done by the next start. So checkpoints of SQLite's log are ours: its own hide their errors.

While the store is open all of the rows are in memory, too, as those of any table; the file is read by a start alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from binlog_storage.disk.disk import OsDisk, make_durable, mapped
from binlog_storage.errors import CorruptTables, DiskError, DiskFull
from binlog_storage.ibb.xa import Xid, decode_xid
from binlog_storage.tables.participants import Changes

log = logging.getLogger(__name__)

SQLITE_NAME: Final = "binlog-server.sqlite"
_FORMAT: Final = 1
_SCHEMA: Final = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE rows (tbl INTEGER, key BLOB, row BLOB NOT NULL, PRIMARY KEY (tbl, key)) WITHOUT ROWID",
    "CREATE TABLE names (xid BLOB PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE prepared (xid BLOB, tbl INTEGER, key BLOB, row BLOB, PRIMARY KEY (xid, tbl, key)) WITHOUT ROWID",
)
_APPLY: Final = (
    "REPLACE INTO rows SELECT tbl, key, row FROM prepared WHERE xid = ?1 AND row IS NOT NULL",
    "DELETE FROM rows WHERE (tbl, key) IN (SELECT tbl, key FROM prepared WHERE xid = ?1 AND row IS NULL)",
)
_LOG_BYTES: Final = 4 << 20  # of SQLite's own log, before it goes to the file
_FORGET: Final = ("DELETE FROM prepared WHERE xid = ?1", "DELETE FROM names WHERE xid = ?1")


class SqliteRows:
    """The file of one store. Any thread. Methods raise `DiskError`, `CorruptTables`.

    Args:
        before: called with the name of each step before it is done: for tests, which stop there.
    """

    name: Final = "SQLite"

    def __init__(self, path: Path, before: Callable[[str], None] = lambda _: None) -> None:
        """It is made by `create`; until then there are no rows."""
        self._path = path
        self._before = before
        self._lock = threading.Lock()
        self._open: sqlite3.Connection | None = None
        self._late: list[Xid] = []  # decided, but the file could not be written then
        self._failed = ""

    def close(self) -> None:
        """No more use."""
        with self._lock:
            if self._open is not None:
                self._open.close()
                self._open = None

    @property
    def exists(self) -> bool:
        """Whether it was made."""
        return self._path.exists()

    def create(self, uuid: bytes) -> None:
        """Make the file for a store, if there is none: whole under another name first."""
        if self.exists:
            return
        new = self._path.with_name(self._path.name + ".new")
        self._before("create: begin")
        with self._lock, self._mapped():
            new.unlink(missing_ok=True)
            with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN")
                _begin(connection, uuid)
                connection.execute("COMMIT")
            self._before("create: written")
            new.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        self._before("create: done")

    def part(self, changes: Changes) -> SqlitePart:
        """One transaction's part in it."""
        return SqlitePart(self, changes)

    # --- two phases; see `binlog_storage.tables.participants.Participant` ---

    def prepare_changes(self, xid: Xid, changes: Changes) -> None:
        """Prepare a transaction under this name, durably."""
        for late in self._late.copy():  # what comes next may change the same rows
            self.commit(late)
        name = xid.encode()
        with self._changing("prepare") as connection:
            _prepare(connection, name, changes)

    def prepare(self, xid: Xid) -> None:
        """See `Participant`: a transaction without changes here."""
        self.prepare_changes(xid, {})

    def commit(self, xid: Xid) -> None:
        """See `Participant`. If it fails, the next `prepare_changes` does it first."""
        if xid not in self._late:
            self._late.append(xid)
        self._end("commit", xid, (*_APPLY, *_FORGET))
        self._late.remove(xid)

    def rollback(self, xid: Xid) -> None:
        """See `Participant`."""
        self._end("rollback", xid, _FORGET)

    def _end(self, what: str, xid: Xid, texts: tuple[str, ...]) -> None:
        if self.exists:
            with self._changing(what) as connection:
                for text in texts:
                    connection.execute(text, (xid.encode(),))

    def recover(self) -> list[Xid]:
        """See `Participant`."""
        if not self.exists:
            return []
        with self._reading() as connection:
            found = connection.execute("SELECT xid FROM names").fetchall()
        return [decode_xid(name, 0)[0] for (name,) in found]

    # --- at a start ---

    def prepared_rows(self, xid: Xid) -> Changes:
        """What is prepared under this name."""
        with self._reading() as connection:
            text = "SELECT tbl, key, row FROM prepared WHERE xid = ?"
            found = connection.execute(text, (xid.encode(),)).fetchall()
        return {(table, key): row for table, key, row in found}

    def require_fits(self, uuid: bytes, tables: Collection[int]) -> bool:
        """Whether the file is that of the store with this uuid. `tables`: those whose rows are to be in it.

        Raises `CorruptTables` for the file of another store, and for one that is missing.
        """
        if not self.exists:
            if tables:
                raise CorruptTables(
                    f"{self._path.name} is missing, which has the rows of {len(tables)} table(s) with ENGINE=SQLITE. "
                    "The store was not opened: restore the directory with this file from a copy"
                )
            return True
        with self._reading() as connection:
            facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
        if facts.get("format") != b"%d" % _FORMAT:
            raise CorruptTables(f"{self._path.name} has an unknown format, {facts.get('format')!r}")
        fits = bool(facts.get("uuid") == uuid)
        if not fits and not tables:
            raise CorruptTables(
                f"{self._path.name} is that of another store. Move it away, or restore the store that it belongs to"
            )
        return fits

    def adopt(self, uuid: bytes) -> None:
        """The file is that of the store with this uuid from now on: its redo log was lost, and made anew."""
        with self._changing("adopt") as connection:
            connection.execute("UPDATE facts SET value = ? WHERE name = 'uuid'", (uuid,))

    def rows(self) -> Iterator[tuple[int, bytes, bytes]]:
        """All that is committed: table, key, row."""
        if self.exists:
            with self._reading() as connection:
                yield from connection.execute("SELECT tbl, key, row FROM rows")

    def forget(self, tables: Collection[int]) -> None:
        """Delete the rows of tables that are dropped."""
        if tables and self.exists:
            with self._changing("forget") as connection:
                for number in tables:
                    connection.execute("DELETE FROM rows WHERE tbl = ?", (number,))

    # --- a backup ---

    file_name: Final = SQLITE_NAME

    def copy_of(
        self,
        uuid: bytes,
        rows: Iterable[tuple[int, bytes, bytes]],
        prepared: Iterable[tuple[Xid, Changes]],
    ) -> CopiedFile:
        """See `RowKeeper`. It has no name: whatever ends the process leaves nothing of it. Raises `DiskError`."""
        try:
            handle, name = tempfile.mkstemp(prefix=f"{SQLITE_NAME}.copy.", dir=self._path.parent)
        except OSError as error:
            raise DiskError(f"{self._path.parent}: {error}") from error
        try:
            with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = OFF")
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("BEGIN")
                with mapped("remove", Path(name)):
                    Path(name).unlink()
                _begin(connection, uuid)
                connection.executemany("REPLACE INTO rows VALUES (?, ?, ?)", rows)
                for xid, changes in prepared:
                    _prepare(connection, xid.encode(), changes)
                connection.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(OSError):
                Path(name).unlink(missing_ok=True)
            os.close(handle)
            if isinstance(error, sqlite3.DatabaseError):
                full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
                text = f"a copy of {self._path.name}: {error}"
                raise (DiskFull(text) if full else DiskError(text)) from error
            raise
        return CopiedFile(handle)

    # --- one transaction of SQLite ---

    @contextmanager
    def _changing(self, what: str) -> Iterator[sqlite3.Connection]:
        """All that is done within is one synced transaction."""
        if self._failed:
            raise DiskError(self._failed)
        self._before(f"{what}: begin")
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self._before(f"{what}: written")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._checkpoint(connection)
        self._before(f"{what}: done")

    @property
    def _log(self) -> Path:
        return self._path.with_name(f"{self._path.name}-wal")

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Bring a long log of SQLite's into the file. What was committed is durable, whatever becomes of this."""
        try:
            with self._mapped():
                if self._log.stat().st_size > _LOG_BYTES:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except (DiskError, CorruptTables) as error:
            log.error("%s", error)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._mapped():
            if self._open is None:
                self._open = self._connect()
            yield self._open

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self._known(error) from error
        except OSError as error:
            raise DiskError(f"{self._path.name}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        self._make_durable()
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # of the WAL, at each commit
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA journal_size_limit = 0")  # its length says how much there is
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_durable(self) -> None:
        """Make durable what is there, before anything is built on it.

        Of a commit whose sync has failed the kernel shows all, and will write nothing: SQLite takes it for committed,
        and a power cut would take it away, with all that was synced behind it. So with what a checkpoint of SQLite's
        log has written into the file.
        """
        with contextlib.closing(OsDisk(self._path.parent)) as disk:
            if self._log.name in disk.names():
                for name in (self._path.name, self._log.name):
                    with contextlib.closing(disk.open(name)) as file:
                        make_durable(disk, name, file, file.size())
            disk.fsync_dir()

    def _known(self, error: sqlite3.DatabaseError) -> DiskError | CorruptTables:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        text = f"{self._path.name}: {error}"
        if code == sqlite3.SQLITE_IOERR:
            self._failed = f"{text}. Nothing more is written to it: restart the server"
        if code == sqlite3.SQLITE_FULL:
            return DiskFull(text)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return CorruptTables(f"{text}. Restore it with the store from a copy")
        return DiskError(text)


def _begin(connection: sqlite3.Connection, uuid: bytes) -> None:
    """Tables, and whose they are."""
    for text in _SCHEMA:
        connection.execute(text)
    facts = (("format", b"%d" % _FORMAT), ("uuid", uuid))
    connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)


def _prepare(connection: sqlite3.Connection, name: bytes, changes: Changes) -> None:
    connection.execute("INSERT INTO names VALUES (?)", (name,))
    rows = ((name, table, key, row) for (table, key), row in changes.items())
    connection.executemany("INSERT INTO prepared VALUES (?, ?, ?, ?)", rows)


class CopiedFile:
    """A file without a name."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def pread(self, size: int, offset: int) -> bytes:
        """Raises `DiskError`, as the next one."""
        with self._mapped():
            return os.pread(self._handle, size, offset)

    def size(self) -> int:
        with self._mapped():
            return os.fstat(self._handle).st_size

    def close(self) -> None:
        """It is gone; twice is no error."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    @staticmethod
    @contextmanager
    def _mapped() -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskError(f"a copy of {SQLITE_NAME}: {error}") from error


class SqlitePart:
    """One transaction's part in the file: see `binlog_storage.tables.participants.Participant`."""

    name: Final = SqliteRows.name

    def __init__(self, rows: SqliteRows, changes: Changes) -> None:
        self._rows = rows
        self._changes = changes

    def prepare(self, xid: Xid) -> None:
        self._rows.prepare_changes(xid, self._changes)

    def commit(self, xid: Xid) -> None:
        self._rows.commit(xid)

    def rollback(self, xid: Xid) -> None:
        self._rows.rollback(xid)

    def recover(self) -> list[Xid]:
        return self._rows.recover()
