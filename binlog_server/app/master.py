"""Tables of a server in this process, without SQL: what a program does to them is what statements do.

    with master.transaction() as t:                 from any thread but the loop's; a coroutine: master.aio
        t.insert("shop.orders", {"item": "a"})

Each call is a statement of a session of its own, with literals in the place of its values: locks, errors, events and
commits are those of any other client. Errors are raised as `ServerError`, with MariaDB's numbers (`errno`).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import math
import uuid
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from decimal import Decimal
from typing import Any, Final, Protocol, TypeVar

from binlog_protocol.errors import (
    BadValue,
    NoDatabaseSelected,
    NoSuchTable,
    NotSupportedYet,
    ServerError,
    ServerShutdown,
    UnknownColumn,
)
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.rows import Value
from binlog_protocol.wire.binary_rows import Indicator, Parameter

from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.queries import values
from binlog_server.sessions.host import Host
from binlog_server.sql.session_settings import login_variables
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement_kind import classify
from binlog_server.sql.view import ResultSet
from binlog_server.sql_commit.client import Answer
from binlog_server.sql_commit.logged_text import result_of, template_of
from binlog_server.sql_commit.session_transaction import SessionTransaction
from binlog_server.tables.definitions import quoted_name
from binlog_server.tables.held import HeldTable, HeldTables
from binlog_server.tables.rows import Reading

T = TypeVar("T")
Row = Mapping[str, Any]
"""Values by the names of their columns: None, int, float, Decimal, str, bytes, dates, timedelta for TIME, UUID, IP
addresses, a set of labels. A datetime of a TIMESTAMP is in UTC."""

ACCOUNT: Final = "python@localhost"
_UTF8MB4: Final = 45
_MICROSECONDS: Final = 6
_LOOK_S: Final = 1.0  # between two looks whether the loop is still there


class _Machine:
    """Where a connection keeps its status flags; nothing comes from a client here."""

    status = 0
    counts_found = False

    def take_plain(self, data: bytes) -> bytes | None:
        """Nothing ever comes."""
        return None

    def is_whole(self, data: bytes) -> bool:
        """Nothing ever comes."""
        return False

    def take_whole(self, data: bytes) -> None:
        """Nothing ever comes."""


class _Session:
    """A session without a connection: the client of its transaction, on the loop."""

    def __init__(self, server: Host) -> None:
        self._server: Final = server
        self.sql: Final = SqlSession(
            server,
            server.connections.next_id(),
            ACCOUNT,
            grants=frozenset({ALL_PRIVILEGES}),
            login={**login_variables(_UTF8MB4), "time_zone": "+00:00"},
        )
        self.transaction: Final[SessionTransaction] = server.new_transaction(
            self, _Machine(), self.sql
        )
        self._answer: asyncio.Future[Answer] | None = None

    async def run(self, text: str, parameters: Collection[Any] = ()) -> Answer:
        """One statement, with values in the place of its question marks. Raises `ServerError`."""
        if self._answer is not None:
            raise RuntimeError("a transaction takes one call at a time")
        self.sql.begin()
        settings = self.transaction.settings_now()
        template = result_of(template_of(text.encode(), settings))
        limit = self.sql.server.config.max_allowed_packet
        filled = template.filled(map(_parameter, parameters), limit)
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self.transaction.execute(classify(text.encode()), (filled,))
            return await self._answer
        finally:
            self._answer = None

    async def read(self, what: Callable[[Reading], T]) -> T:
        """What it gives of the rows as the transaction sees them; called in a thread. Raises `ServerError`."""
        reading = self.sql.reading(True)

        def call() -> T:
            try:
                return what(reading)
            finally:
                reading.close()

        return await self._server.runner.in_row_thread(call)

    def end(self, error: ServerError | None = None) -> None:
        """Roll back, and fail the call that runs."""
        self.transaction.close()
        self.sql.forget()
        if error is not None:
            self.refused(error)

    # --- as the client of its transaction ---

    def committed(
        self,
        affected_rows: int,
        *,
        leaves: bool = False,
        insert_id: int = 0,
        info: bytes = b"",
        rows: ResultSet | None = None,
    ) -> None:
        """See `CommitClient`."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(affected_rows, leaves, insert_id, info, rows))

    has_answer = False
    """See `CommitClient`: never in front of `committed_quickly`."""

    def answer_at_once(self, *, is_update: bool = False) -> None:
        """See `CommitClient`."""

    def committed_quickly(self, *, is_update: bool = False, now: bool = False) -> None:
        """See `CommitClient`."""
        self.committed(1)

    def refused(self, error: ServerError) -> None:
        """See `Client`."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def answered(self, rows: int) -> None:
        """See `Client`."""

    def hold(self, *, held: bool) -> None:
        """See `Client`."""

    def holds_more(self) -> None:
        """See `Client`."""

    def write(self, data: bytes | bytearray) -> None:
        """See `Client`."""

    async def drain(self) -> None:
        """See `Client`."""


class AsyncTransaction:
    """A transaction, on the server's loop: one call at a time. Each call is a statement: it is done as a whole or not.

    Behind a deadlock (1213) all of it is rolled back, and every later call raises that again; behind its end,
    `RuntimeError`. Made by `AsyncMaster.begin`; `close` is to be called in any case.
    """

    def __init__(self, session: _Session, tables: HeldTables, ended: Callable[[], None]) -> None:
        self._session = session
        self._tables = tables
        self._ended = ended
        self._lost: Exception | None = None
        self.gtid = ""
        """The GTID of its group, once it is committed; empty if it has changed nothing."""

    async def insert(self, table: str, row: Row | Sequence[Row]) -> int:
        """Insert a row, or several. Columns that are not named get their defaults. Returns the (first) number that
        AUTO_INCREMENT gave, or the row brought; 0 without one.

        Raises `ServerError`: 1062, 1205, 1213, 1264, 1406, ...
        """
        return (await self._put("INSERT", table, row)).insert_id

    async def replace(self, table: str, row: Row | Sequence[Row]) -> int:
        """Insert a row, or several, in the place of those that have their values in a unique key. Returns how many rows
        were inserted or deleted. Raises as `insert`."""
        return (await self._put("REPLACE", table, row)).affected_rows

    async def _put(self, verb: str, table: str, row: Row | Sequence[Row]) -> Answer:
        rows = [row] if isinstance(row, Mapping) else list(row)
        if not rows:
            return Answer()
        names = list(dict.fromkeys(name for one in rows for name in one))
        places = f"({', '.join('?' * len(names))})"
        text = f"{verb} INTO {self._table(table)} ({_names(names)}) VALUES {', '.join([places] * len(rows))}"
        given = [one.get(name, Indicator.DEFAULT) for one in rows for name in names]
        return await self._run(text, given)

    async def update(self, table: str, changes: Row, where: Row) -> int:
        """Update the rows that have these values. Returns how many are others now. Raises as `insert`."""
        condition, wanted = _condition(where)
        assigned = ", ".join(f"{quoted_name(name)} = ?" for name in changes)
        text = f"UPDATE {self._table(table)} SET {assigned}{condition}"
        return (await self._run(text, [*changes.values(), *wanted])).affected_rows

    async def delete(self, table: str, where: Row) -> int:
        """Delete the rows that have these values; all with an empty `where`. Returns how many. Raises as `insert`."""
        condition, wanted = _condition(where)
        return (
            await self._run(f"DELETE FROM {self._table(table)}{condition}", wanted)
        ).affected_rows

    async def get(self, table: str, key: Row) -> dict[str, Value] | None:
        """The row that has these values in its primary key, as this transaction sees it. It takes no lock.

        Raises `BadValue` for a value that is none of its column, `ServerError` (1054, 1146, 1412).
        """
        held = self._held(table)
        parts = {part.column for part in held.key.parts}
        by_name = {column.name.lower(): i for i, column in enumerate(held.definition.columns)}
        given: dict[int, Any] = {}
        for name, value in key.items():
            if by_name.get(name.lower()) not in parts:
                raise UnknownColumn(name, f"PRIMARY KEY of {table}")
            given[by_name[name.lower()]] = value
        if parts - given.keys():
            raise BadValue(f"the primary key of {table} has more columns than {', '.join(key)}")
        values = [
            held.format.value(i, given[i]) if i in given else None
            for i in range(len(held.definition.columns))
        ]
        wanted = held.format.key(tuple(values), held.key)
        row = await self._read(lambda reading: reading.one(held, held.number, wanted))
        return None if row is None else _decoded(held, row)

    async def scan(self, table: str) -> list[dict[str, Value]]:
        """All rows, in the order of the primary key, as this transaction sees them. Raises as `get`."""
        held = self._held(table)
        return await self._read(
            lambda reading: [_decoded(held, row) for _, row in reading.scan(held)]
        )

    async def savepoint(self, name: str) -> None:
        """SAVEPOINT."""
        await self._run(f"SAVEPOINT {quoted_name(name)}")

    async def rollback_to(self, name: str) -> None:
        """ROLLBACK TO SAVEPOINT. Raises `ServerError` (1305)."""
        await self._run(f"ROLLBACK TO SAVEPOINT {quoted_name(name)}")

    async def commit(self) -> None:
        """Commit it: as durable as innodb_flush_log_at_trx_commit says. Raises `ServerError`: 1053, 1290, ..."""
        sql = self._session.sql
        before = sql.last_gtid
        await self._run("COMMIT")
        if sql.last_gtid is not None and sql.last_gtid != before:
            self.gtid = str(sql.last_gtid)
        self.close()

    def close(self) -> None:
        """Roll back what is not committed; it has ended."""
        if self._lost is None:
            self._lost = RuntimeError("the transaction has ended")
        self._session.end()
        self._ended()

    async def _run(self, text: str, parameters: Collection[Any] = ()) -> Answer:
        self._require_open()
        try:
            return await self._session.run(text, parameters)
        except ServerError as error:
            if not self._session.sql.in_transaction():
                self._lost = error
            raise

    async def _read(self, what: Callable[[Reading], T]) -> T:
        self._require_open()
        return await self._session.read(what)

    def _require_open(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _held(self, table: str) -> HeldTable:
        database, _, name = table.partition(".")
        found = self._tables.find(database, name)
        if found is None:
            raise NoSuchTable(database, name)
        return found

    def _table(self, table: str) -> str:
        held = self._held(table)
        return f"{quoted_name(held.database)}.{quoted_name(held.name)}"


class AsyncMaster:
    """The server's tables, for coroutines on its loop."""

    def __init__(self, server: Host, tables: HeldTables) -> None:
        self._server = server
        self._tables = tables
        self._open: set[_Session] = set()
        self._is_closed = False

    async def begin(self, **variables: str | int) -> AsyncTransaction:
        """Begin a transaction, which is to be closed. `variables`: as of `transaction`."""
        session = self._session(variables)
        transaction = AsyncTransaction(session, self._tables, lambda: self._open.discard(session))
        try:
            await session.run("BEGIN")
        except BaseException:
            transaction.close()
            raise
        return transaction

    @contextlib.asynccontextmanager
    async def transaction(self, **variables: str | int) -> AsyncIterator[AsyncTransaction]:
        """A transaction: committed at the end of the block, rolled back if that raises.

        `variables`: of its session, as innodb_lock_wait_timeout, transaction_isolation, gtid_domain_id. Raises
        `ServerError`.
        """
        transaction = await self.begin(**variables)
        try:
            yield transaction
            await transaction.commit()
        finally:
            transaction.close()

    async def create_database(self, name: str) -> None:
        """CREATE DATABASE. Raises `ServerError`: 1007."""
        await self._define(f"CREATE DATABASE {quoted_name(name)}")

    async def drop_database(self, name: str) -> None:
        """DROP DATABASE, with its tables. Raises `ServerError`: 1008."""
        await self._define(f"DROP DATABASE {quoted_name(name)}")

    async def create_table(self, table: str, columns: Mapping[str, str], *more: str) -> None:
        """CREATE TABLE. Raises `ServerError`: 1050, 1064, 1173, 1235, ...

        Args:
            columns: types by name, with what else CREATE TABLE says of a column: "INT AUTO_INCREMENT PRIMARY KEY".
            more: keys, as "PRIMARY KEY (a, b)".
        """
        parts = [f"{quoted_name(name)} {kind}" for name, kind in columns.items()]
        await self._define(f"CREATE TABLE {_qualified(table)} ({', '.join([*parts, *more])})")

    async def drop_table(self, table: str) -> None:
        """DROP TABLE. Raises `ServerError`: 1051, 1205."""
        await self._define(f"DROP TABLE {_qualified(table)}")

    async def _define(self, text: str) -> None:
        if not self._server.config.local_tables:
            raise NotSupportedYet("tables here without the option local_tables")
        session = self._session({})
        try:
            await session.run(text)
        finally:
            self._open.discard(session)
            session.end()

    def _session(self, variables: Mapping[str, str | int]) -> _Session:
        if self._is_closed:
            raise ServerShutdown()
        session = _Session(self._server)
        session.sql.variables.update({name: str(value) for name, value in variables.items()})
        session.transaction.refresh()
        self._open.add(session)
        return session

    def close(self) -> None:
        """The server ends: open transactions are rolled back, and calls raise `ServerShutdown` (1053)."""
        self._is_closed = True
        for session in self._open.copy():
            session.end(ServerShutdown())


class _Wait(Protocol):
    def __call__(self, call: Coroutine[Any, Any, T], /) -> T: ...


class MasterTransaction:
    """`AsyncTransaction` for a thread that is not the loop's: each call waits for its end."""

    def __init__(self, transaction: AsyncTransaction, wait: _Wait) -> None:
        self._transaction = transaction
        self._wait = wait

    @property
    def gtid(self) -> str:
        """See `AsyncTransaction.gtid`."""
        return self._transaction.gtid

    def insert(self, table: str, row: Row | Sequence[Row]) -> int:
        """See `AsyncTransaction.insert`."""
        return self._wait(self._transaction.insert(table, row))

    def replace(self, table: str, row: Row | Sequence[Row]) -> int:
        """See `AsyncTransaction.replace`."""
        return self._wait(self._transaction.replace(table, row))

    def update(self, table: str, changes: Row, where: Row) -> int:
        """See `AsyncTransaction.update`."""
        return self._wait(self._transaction.update(table, changes, where))

    def delete(self, table: str, where: Row) -> int:
        """See `AsyncTransaction.delete`."""
        return self._wait(self._transaction.delete(table, where))

    def get(self, table: str, key: Row) -> dict[str, Value] | None:
        """See `AsyncTransaction.get`."""
        return self._wait(self._transaction.get(table, key))

    def scan(self, table: str) -> list[dict[str, Value]]:
        """See `AsyncTransaction.scan`."""
        return self._wait(self._transaction.scan(table))

    def savepoint(self, name: str) -> None:
        """See `AsyncTransaction.savepoint`."""
        self._wait(self._transaction.savepoint(name))

    def rollback_to(self, name: str) -> None:
        """See `AsyncTransaction.rollback_to`."""
        self._wait(self._transaction.rollback_to(name))


class Master:
    """The server's tables, for threads that are not its loop's. `aio`: the same for coroutines on it."""

    def __init__(self, server: Host, tables: HeldTables, loop: asyncio.AbstractEventLoop) -> None:
        self.aio: Final = AsyncMaster(server, tables)
        self._loop = loop

    @contextlib.contextmanager
    def transaction(self, **variables: str | int) -> Iterator[MasterTransaction]:
        """See `AsyncMaster.transaction`."""
        opened = self.run(self.aio.begin(**variables))
        try:
            yield MasterTransaction(opened, self.run)
            self.run(opened.commit())
        finally:
            self.run(_closed(opened))

    def create_database(self, name: str) -> None:
        """See `AsyncMaster.create_database`."""
        self.run(self.aio.create_database(name))

    def drop_database(self, name: str) -> None:
        """See `AsyncMaster.drop_database`."""
        self.run(self.aio.drop_database(name))

    def create_table(self, table: str, columns: Mapping[str, str], *more: str) -> None:
        """See `AsyncMaster.create_table`."""
        self.run(self.aio.create_table(table, columns, *more))

    def drop_table(self, table: str) -> None:
        """See `AsyncMaster.drop_table`."""
        self.run(self.aio.drop_table(table))

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the loop. Raises `ServerShutdown` (1053) where that has ended."""
        if self._is_on_loop():
            call.close()
            raise RuntimeError("on the server's own loop: use `master.aio` and await")
        try:
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError:  # the loop is closed
            call.close()
            raise ServerShutdown() from None
        while True:
            try:
                return future.result(_LOOK_S)
            except TimeoutError:
                if future.done():
                    raise
                if self._loop.is_closed():
                    raise ServerShutdown() from None
            except asyncio.CancelledError:
                raise ServerShutdown() from None

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


async def _closed(transaction: AsyncTransaction) -> None:
    transaction.close()


def _qualified(table: str) -> str:
    database, _, name = table.partition(".")
    if not name:
        raise NoDatabaseSelected()
    return f"{quoted_name(database)}.{quoted_name(name)}"


def _names(names: Collection[str]) -> str:
    return ", ".join(map(quoted_name, names))


def _condition(where: Row) -> tuple[str, list[Any]]:
    """WHERE, and the values of its question marks."""
    tests = [
        f"{quoted_name(name)} {'IS NULL' if value is None else '= ?'}"
        for name, value in where.items()
    ]
    wanted = [value for value in where.values() if value is not None]
    return f" WHERE {' AND '.join(tests)}" if tests else "", wanted


def _decoded(table: HeldTable, row: bytes) -> dict[str, Value]:
    made = table.format
    return {
        column.name: None if raw is None else made.decoded(i, raw)
        for i, (column, raw) in enumerate(
            zip(table.definition.columns, made.split(row), strict=True)
        )
    }


def _parameter(value: Any) -> Parameter:
    """A value as that of a prepared statement. Raises `TypeError`, `BadValue`."""
    match value:
        case None:
            return Parameter(ColumnType.NULL, None)
        case Indicator():
            return Parameter(ColumnType.NULL, value)
        case int():
            return Parameter(ColumnType.LONGLONG, int(value))
        case float():
            if not math.isfinite(value):
                raise BadValue(f"{value} is no number of SQL")
            return Parameter(ColumnType.DOUBLE, value)
        case Decimal():
            if not value.is_finite():
                raise BadValue(f"{value} is no number of SQL")
            return Parameter(ColumnType.NEWDECIMAL, f"{value:f}")
        case str():
            return Parameter(ColumnType.VAR_STRING, value)
        case bytes() | bytearray() | memoryview():
            return Parameter(ColumnType.BLOB, value)
        case datetime.datetime():
            if value.tzinfo is not None:
                value = value.astimezone(datetime.UTC)
            return Parameter(ColumnType.DATETIME, values.datetime_text(value, _MICROSECONDS))
        case datetime.date():
            return Parameter(ColumnType.DATE, value.isoformat())
        case datetime.timedelta():
            return Parameter(ColumnType.TIME, values.time_text(value, _MICROSECONDS))
        case uuid.UUID() | ipaddress.IPv4Address() | ipaddress.IPv6Address():
            return Parameter(ColumnType.VAR_STRING, str(value))
        case Set():
            return Parameter(ColumnType.VAR_STRING, ",".join(sorted(value)))
    raise TypeError(f"a {type(value).__name__} is no value of a column")
