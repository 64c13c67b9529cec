"""The SHOW statements: MariaDB's columns and the rows of this server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from binlog_server.admin.statements import (
    Condition,
    Operator,
    RowFilter,
    Show,
    ShowDatabases,
    ShowDiagnostics,
)
from binlog_server.admin.variables import like_matches
from binlog_server.admin.view import Diagnostic, Level, Result, ResultSet, Row, ServerView, Work
from protocol.sql_errors import UnknownColumn
from protocol.wire.results import CHARSET_BINARY, FLAG_BINARY, Column

_TYPE_DOUBLE = 5
_NUMBER = re.compile(r"\s*([-+]?[0-9]{1,300}(?:\.[0-9]{0,300})?)")

VARIABLE_COLUMNS = ("variable_name", "value")


def filtered(rows: Iterable[Row], columns: Sequence[str], row_filter: RowFilter) -> list[Row]:
    """The rows of a SHOW with LIKE or WHERE. Raises `UnknownColumn` (1054).

    Args:
        columns: their names, in lower case; LIKE is about the first.
    """
    alternatives = [
        [(_index(c.column, columns), c) for c in conditions]
        for conditions in row_filter.alternatives
    ]
    if not alternatives:
        return list(rows)
    return [
        row
        for row in rows
        if any(
            all(_holds(condition, row[at]) for at, condition in conditions)
            for conditions in alternatives
        )
    ]


def _index(column: str, columns: Sequence[str]) -> int:
    if not column:
        return 0
    if column not in columns:
        raise UnknownColumn(column)
    return columns.index(column)


def _holds(condition: Condition, value: object) -> bool:
    text = "" if value is None else str(value)
    match condition.operator:
        case Operator.LIKE:
            found = like_matches(condition.values[0], text)
        case Operator.LESS:
            found = _as_number(text) < _as_number(condition.values[0])
        case Operator.GREATER:
            found = _as_number(text) > _as_number(condition.values[0])
        case _:
            found = any(text.lower() == wanted.lower() for wanted in condition.values)
    return found is not condition.negated


def _as_number(text: str) -> float:
    """As MariaDB compares text with a number: what it begins with, else 0."""
    match = _NUMBER.match(text)
    return float(match[1]) if match else 0.0


def show(view: ServerView, what: Show, *, user: str | None) -> Result:
    """One of the statements without arguments. `user`: whose connections to show; None is everybody's."""
    if what in (Show.PROCESSLIST, Show.FULL_PROCESSLIST):
        return _processlist(view, user)
    return _SHOWS[what](view)


def databases(statement: ShowDatabases) -> ResultSet:
    """There is none but that which every server has."""
    name = "Database" if statement.pattern is None else f"Database ({statement.pattern})"
    label = name.encode("utf-8", "replace").decode()
    rows = filtered([("information_schema",)], ("database",), statement.filter)
    return ResultSet([Column.text(label, 256)], rows)


def diagnostics(statement: ShowDiagnostics, told: Sequence[Diagnostic]) -> ResultSet:
    """SHOW WARNINGS, SHOW ERRORS, and how many there are."""
    wanted = [d for d in told if not statement.errors_only or d.level == Level.ERROR]
    if statement.count:
        name = "error_count" if statement.errors_only else "warning_count"
        return ResultSet([Column.bigint(f"@@session.{name}")], [(len(wanted),)])
    columns = [Column.text("Level", 28), Column.integer("Code"), Column.text("Message", 2048)]
    limit = statement.limit
    count = len(wanted) if limit.count is None else limit.count
    rows: list[Row] = list(wanted[limit.offset : limit.offset + count])
    return ResultSet(columns, rows)


def variables(shown: Mapping[str, str], row_filter: RowFilter) -> ResultSet:
    """SHOW VARIABLES and SHOW STATUS."""
    rows = filtered(sorted(shown.items()), VARIABLE_COLUMNS, row_filter)
    return ResultSet([Column.text("Variable_name", 256), Column.text("Value", 16384)], rows)


def _master_status(view: ServerView) -> ResultSet:
    file, position = view.engine.status()
    columns = [
        Column.text("File", 2048),
        Column.bigint("Position"),
        Column.text("Binlog_Do_DB"),
        Column.text("Binlog_Ignore_DB"),
        Column.text("Gtid_Binlog_Pos"),
    ]
    gtid_binlog_pos = str(view.engine.binlog_state().position())
    return ResultSet(columns, [(file, position, "", "", gtid_binlog_pos)])


def _binary_logs(view: ServerView) -> ResultSet:
    columns = [Column.text("Log_name"), Column.bigint("File_size")]
    return ResultSet(columns, list(view.engine.files()))


def _slave_hosts(view: ServerView) -> ResultSet:
    columns = [
        Column.integer("Server_id"),
        Column.text("Host"),
        Column.integer("Port"),
        Column.integer("Master_id"),
    ]
    return ResultSet(columns, list(view.slave_hosts()))


def _processlist(view: ServerView, user: str | None) -> ResultSet:
    columns = [
        Column.bigint("Id"),
        Column.text("User"),
        Column.text("Host"),
        Column.text("db"),
        Column.text("Command"),
        Column.integer("Time"),
        Column.text("State"),
        Column.text("Info"),
        Column("Progress", _TYPE_DOUBLE, CHARSET_BINARY, 7, FLAG_BINARY, 3),
    ]
    return ResultSet(columns, list(view.processlist(user)))


def _engines(_: ServerView) -> ResultSet:
    columns = [
        Column.text("Engine", 256),
        Column.text("Support", 32),
        Column.text("Comment", 640),
        Column.text("Transactions", 12),
        Column.text("XA", 12),
        Column.text("Savepoints", 12),
    ]
    comment = "The binlog in its files (binlog_storage_engine); there are no tables"
    return ResultSet(columns, [("InnoDB", "DEFAULT", comment, "YES", "YES", "YES")])


def _binlog_replicas(view: ServerView) -> Work:
    columns = [
        Column.bigint("Connection_id"),
        Column.integer("Server_id"),
        Column.text("Host"),
        Column.text("User"),
        Column.text("Sent_gtid"),
        Column.text("Durable_gtid"),
        Column.text("Acknowledged_gtid"),
        Column.bigint("Gap_bytes"),
        Column.bigint("Gap_ms"),
        Column.text("State"),
    ]
    rows = view.replicas()
    return Work(lambda: ResultSet(columns, list(rows)))


def _binlog_leases(view: ServerView) -> ResultSet:
    columns = [
        Column.text("Name"),
        Column.text("From_gtid"),
        Column.text("First_file"),
        Column.text("Created"),
        Column.text("Until"),
        Column.bigint("Max_bytes"),
        Column.bigint("Held_bytes"),
    ]
    rows: list[Row] = [
        (
            lease.name,
            lease.position,
            lease.first_file,
            utc(lease.created),
            None if lease.until is None else utc(lease.until),
            lease.max_bytes,
            view.leases.held_bytes(lease),
        )
        for lease in view.leases.all()
    ]
    return ResultSet(columns, rows)


def utc(seconds: float) -> str:
    """A time as MariaDB prints it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


_SHOWS: Mapping[Show, Callable[[ServerView], Result]] = {
    Show.MASTER_STATUS: _master_status,
    Show.BINARY_LOGS: _binary_logs,
    Show.SLAVE_HOSTS: _slave_hosts,
    Show.ENGINES: _engines,
    Show.BINLOG_REPLICAS: _binlog_replicas,
    Show.BINLOG_LEASES: _binlog_leases,
}
assert {*_SHOWS, Show.PROCESSLIST, Show.FULL_PROCESSLIST} == set(Show)
