"""The SHOW statements: MariaDB's columns and the rows of this server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from binlog_protocol.errors.sql_errors import UnknownXaFormat
from binlog_protocol.wire.results import (
    CHARSET_BINARY,
    FLAG_BINARY,
    FLAG_NOT_NULL,
    TYPE_DOUBLE,
    TYPE_LONG,
    TYPE_LONGLONG,
    TYPE_MEDIUM_BLOB,
    Column,
    Value,
)

from binlog_server.dumps.coordinates import AS_STORED, Coordinates
from binlog_server.dumps.replica_rows import ReplicaRows
from binlog_server.sql import places, privilege_list
from binlog_server.sql.row_filter import Test, filtered, may_hold
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.statements import Show, ShowDatabases, ShowDiagnostics, XaRecover
from binlog_server.sql.view import (
    Diagnostic,
    Level,
    Result,
    ResultSet,
    Row,
    ServerView,
    Shown,
    Work,
    text_of,
)

_BYTES: Final = FLAG_NOT_NULL | FLAG_BINARY

VARIABLE_COLUMNS = ("variable_name", "value")


_INFO_CHARS: Final = 100  # characters of a statement in SHOW PROCESSLIST without FULL


def show(
    view: ServerView,
    what: Show,
    *,
    user: str | None,
    coordinates: Coordinates = AS_STORED,
    texts: StateTexts | None = None,
) -> Result:
    """Answer a SHOW statement without arguments.

    Args:
        user: the user whose connections SHOW PROCESSLIST gives; None gives all.
        texts: the binlog state to show; None is the present one.
    """
    if what is Show.MASTER_STATUS:
        return _master_status(view, coordinates, texts or view.state_texts())
    if what in _OF_PLACES:
        return _OF_PLACES[what](view, coordinates)
    if what in (Show.PROCESSLIST, Show.FULL_PROCESSLIST):
        return _processlist(view, user, None if what is Show.FULL_PROCESSLIST else _INFO_CHARS)
    return _SHOWS[what](view)


def databases(statement: ShowDatabases) -> ResultSet:
    """SHOW DATABASES: information_schema, the only one here."""
    name = "Database" if statement.pattern is None else f"Database ({statement.pattern})"
    label = name.encode("utf-8", "replace").decode()
    rows = filtered([("information_schema",)], ("database",), statement.filter)
    return ResultSet([Column.text(label, 64).of_table()], rows)


def diagnostics(statement: ShowDiagnostics, told: Sequence[Diagnostic]) -> ResultSet:
    """SHOW WARNINGS, SHOW ERRORS, and SHOW COUNT(*) of each."""
    wanted = [d for d in told if not statement.errors_only or d.level == Level.ERROR]
    if statement.count:
        name = "error_count" if statement.errors_only else "warning_count"
        return ResultSet([Column.bigint(f"@@session.{name}", 21, null=True)], [(len(wanted),)])
    columns = [Column.text("Level", 7), Column.integer("Code", 4), Column.text("Message", 512)]
    limit = statement.limit
    count = len(wanted) if limit.count is None else limit.count
    rows: list[Row] = list(wanted[limit.offset : limit.offset + count])
    return ResultSet(columns, rows)


def variables(shown: Mapping[str, Shown], test: Test) -> ResultSet:
    """SHOW VARIABLES and SHOW STATUS. A value that is costly to make is made only if its row may be in the result."""
    names = (name for name in sorted(shown) if may_hold(test, VARIABLE_COLUMNS, (name,)))
    rows = filtered([(name, text_of(shown[name])) for name in names], VARIABLE_COLUMNS, test)
    columns = [Column.text("Variable_name", 64), Column.text("Value", 4096)]
    return ResultSet([column.of_table() for column in columns], rows)


def prepared(view: ServerView, statement: XaRecover) -> ResultSet:
    """XA RECOVER: the prepared transactions that wait in the binlog for XA COMMIT or XA ROLLBACK.

    Raises `UnknownXaFormat` (1791).
    """
    style = statement.format.upper()
    if style not in ("RAW", "SQL"):
        raise UnknownXaFormat(statement.format)
    columns = [
        *(
            Column.binary(name, TYPE_LONGLONG, 11)
            for name in ("formatID", "gtrid_length", "bqual_length")
        ),
        Column.text("data", 285)
        if style == "SQL"
        else replace(Column.text("data"), charset=CHARSET_BINARY, length=128, flags=_BYTES),
    ]
    rows: list[Row] = [
        (
            xid.format_id,
            len(xid.gtrid),
            len(xid.bqual),
            xid.sql() if style == "SQL" else xid.gtrid + xid.bqual,
        )
        for xid in view.engine.prepared()
    ]
    return ResultSet(columns, rows)


def _master_status(view: ServerView, coordinates: Coordinates, texts: StateTexts) -> ResultSet:
    file, position = places.next_write(view, coordinates)
    columns = [
        Column.text("File", 512),
        Column.bigint("Position"),
        Column.text("Binlog_Do_DB"),
        Column.text("Binlog_Ignore_DB"),
        Column.text("Gtid_Binlog_Pos", 4096),
    ]
    return ResultSet(columns, [(file, position, "", "", texts.position)])


def _binary_logs(view: ServerView, coordinates: Coordinates) -> ResultSet:
    columns = [Column.text("Log_name"), Column.bigint("File_size")]
    return ResultSet(columns, places.files(view, coordinates))


def _slave_hosts(view: ServerView) -> ResultSet:
    columns = [
        Column.integer("Server_id"),
        Column.text("Host", 20),
        Column.integer("Port", 7),
        Column.integer("Master_id"),
    ]
    return ResultSet(columns, list(view.connections.slave_hosts(view.config.server_id)))


def _processlist(view: ServerView, user: str | None, info_chars: int | None) -> ResultSet:
    columns = [
        Column.binary("Id", TYPE_LONGLONG, 11),
        Column.text("User", 128),
        Column.text("Host", 64),
        Column.text("db", 64, null=True),
        Column.text("Command", 16),
        Column.binary("Time", TYPE_LONG, 7),
        Column.text("State", 30, null=True),
        Column.text("Info", info_chars, null=True)
        if info_chars
        else Column.text(
            "Info", 3 * view.config.max_allowed_packet, kind=TYPE_MEDIUM_BLOB, null=True
        ),
        Column.binary("Progress", TYPE_DOUBLE, 7, 3),
    ]
    at = [column.name for column in columns].index("Info")
    upstreams = [c.process for c in view.relay.connections if c.runs] if user is None else []
    rows = (list(row) for row in (*upstreams, *view.connections.processlist(user)))
    return ResultSet(
        columns, [[*row[:at], _cut(row[at], info_chars), *row[at + 1 :]] for row in rows]
    )


def _cut(info: Value, chars: int | None) -> Value:
    return info[:chars] if isinstance(info, str) else info


def _engines(_: ServerView) -> ResultSet:
    columns = [
        Column.text("Engine", 64),
        Column.text("Support", 8),
        Column.text("Comment", 160),
        Column.text("Transactions", 3, null=True),
        Column.text("XA", 3, null=True),
        Column.text("Savepoints", 3, null=True),
    ]
    comment = "The binlog in its files (binlog_storage_engine); there are no tables"
    columns = [column.of_table() for column in columns]
    return ResultSet(columns, [("InnoDB", "DEFAULT", comment, "YES", "NO", "YES")])


def _binlog_replicas(view: ServerView) -> Work:
    columns = [
        Column.bigint("Connection_id"),
        Column.integer("Server_id"),
        Column.text("Host"),
        Column.text("User"),
        Column.text("Sent_gtid", null=True),
        Column.text("Durable_gtid", null=True),
        Column.text("Acknowledged_gtid", null=True),
        Column.bigint("Gap_bytes", null=True),
        Column.bigint("Gap_ms", null=True),
        Column.text("State"),
    ]
    rows = ReplicaRows(view.engine, list(view.connections))
    return Work(lambda: ResultSet(columns, list(rows)))


def _binlog_leases(view: ServerView, coordinates: Coordinates) -> ResultSet:
    columns = [
        Column.text("Name"),
        Column.text("From_gtid"),
        Column.text("First_file"),
        Column.text("Created"),
        Column.text("Until", null=True),
        Column.bigint("Max_bytes", null=True),
        Column.bigint("Held_bytes"),
    ]
    rows: list[Row] = [
        (
            lease.name,
            lease.position,
            coordinates.name(lease.from_file),
            utc(lease.created),
            None if lease.until is None else utc(lease.until),
            lease.max_bytes,
            view.leases.held_bytes(lease),
        )
        for lease in view.leases.all()
    ]
    return ResultSet(columns, rows)


def utc(seconds: float) -> str:
    """Seconds since 1970 as MariaDB prints a DATETIME, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


_OF_PLACES: Mapping[Show, Callable[[ServerView, Coordinates], Result]] = {
    Show.BINARY_LOGS: _binary_logs,
    Show.BINLOG_LEASES: _binlog_leases,
}
_SHOWS: Mapping[Show, Callable[[ServerView], Result]] = {
    Show.SLAVE_HOSTS: _slave_hosts,
    Show.ENGINES: _engines,
    Show.PRIVILEGES: lambda _: privilege_list.show(),
    Show.BINLOG_REPLICAS: _binlog_replicas,
}
assert {
    *_SHOWS,
    *_OF_PLACES,
    Show.MASTER_STATUS,
    Show.PROCESSLIST,
    Show.FULL_PROCESSLIST,
    Show.ALL_SLAVES_STATUS,
} == set(Show)
