"""Answers decoded and held against those of a master. Where ours differ on purpose, the reason stands in `INTENDED`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from binlog_protocol.values import Cursor
from binlog_protocol.wire.results import parse_column_count, parse_error, parse_row

from .recordings import Exchange


@dataclass(frozen=True)
class Answer:
    """`columns` is empty for all but result sets. `said` is what COM_STATISTICS says: each server something else."""

    kind: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()
    errno: int = 0
    text: str = ""
    said: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.kind == "error":
            return f"error {self.errno} {self.text}"
        return f"{self.columns} {self.rows}" if self.columns else self.kind


def decoded(payloads: list[bytes], *, extended: bool = False) -> Answer:
    """`extended`: columns in the form with MariaDB's extra metadata: the client wants it."""
    first = payloads[0] if payloads else b""
    match first[:1]:
        case b"":
            return Answer("nothing")
        case b"\0":
            return Answer("ok")
        case b"\xff":
            error = parse_error(first)
            return Answer("error", errno=error.errno, text=error.message)
        case b"\xfe":
            return Answer("eof")
    if len(payloads) == 1:
        return Answer("text", said=first.decode())  # of COM_STATISTICS
    # Behind the count there is then a flag: the columns follow (or did so before).
    count = parse_column_count(first[:1] if extended else first)
    names = tuple(map(_column_name, payloads[1 : count + 1]))
    rows = tuple(tuple(parse_row(p, count)) for p in payloads[count + 2 : -1])
    return Answer("rows", names, rows)


def _column_name(payload: bytes) -> str:
    cursor = Cursor(payload, "column definition")
    return [cursor.lenenc_bytes().decode() for _ in range(5)][4]


Check = Callable[[Answer, Answer], bool]


def own_values(ours: Answer, theirs: Answer) -> bool:
    """As many rows and columns; the values are each server's own."""
    return ours.columns == theirs.columns and len(ours.rows) == len(theirs.rows)


def own_rows(ours: Answer, theirs: Answer) -> bool:
    return (ours.kind, ours.columns) == (theirs.kind, theirs.columns)


def one_more_column(ours: Answer, theirs: Answer) -> bool:
    return ours.columns == (*theirs.columns, "Gtid_Binlog_Pos")


def error(errno: int) -> Check:
    return lambda ours, _: (ours.kind, ours.errno) == ("error", errno)


def no_such_place(ours: Answer, _: Answer) -> bool:
    return ours.errno == 4247 or ours.rows == ((None,),)


def a_result_set(ours: Answer, _: Answer) -> bool:
    return ours.kind == "rows"


def rows(*wanted: tuple[str | None, ...]) -> Check:
    return lambda ours, theirs: ours.columns == theirs.columns and ours.rows == wanted


@dataclass(frozen=True)
class Intended:
    """`statement`: how it begins. `reason`: why ours may differ, for the page."""

    statement: str
    check: Check
    reason: str


INTENDED = [
    Intended("SELECT UNIX_TIMESTAMP()", own_values, "the clock"),
    Intended("SELECT @master_binlog_checksum", rows(("NONE",)), "engine binlogs have no checksums"),
    Intended(
        "SHOW GLOBAL VARIABLES LIKE 'BINLOG_CHECKSUM'",
        rows(("binlog_checksum", "NONE")),
        "engine binlogs have no checksums",
    ),
    Intended(
        "SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'",
        rows(("rpl_semi_sync_master_enabled", "OFF")),
        "off until it is configured; a replica asks for it whatever the value is",
    ),
    Intended(
        "SHOW VARIABLES LIKE 'BINLOG_ROW_METADATA'",
        own_values,
        "a replica need not ask what is not there",
    ),
    Intended(
        "SELECT BINLOG_GTID_POS",
        no_such_place,
        "files have other names: NULL; in the engine style an offset is no position: error 4247",
    ),
    Intended("KILL", error(1094), "the connection it means belongs to the recording"),
    Intended("SELECT VERSION()", own_values, "our version"),
    Intended("SHOW MASTER STATUS", one_more_column, "other files; the GTID is the only address"),
    Intended("SHOW BINLOG STATUS", one_more_column, "other files; the GTID is the only address"),
    Intended(
        "SHOW BINARY LOG STATUS", a_result_set, "that of 11.8.9, which recorded ones were not"
    ),
    Intended("SHOW BINARY LOGS", own_rows, "other files"),
    Intended("SHOW MASTER LOGS", own_rows, "other files"),
    Intended("SHOW SLAVE HOSTS", own_rows, "other replicas"),
    Intended("SHOW PROCESSLIST", own_rows, "other clients"),
    Intended("SHOW STATUS LIKE 'Uptime'", own_values, "the clock"),
    Intended("SHOW GLOBAL STATUS LIKE 'binlog%'", own_rows, "we count no cache"),
    Intended("SELECT @@gtid_binlog_pos", own_values, "other history"),
    Intended("SELECT @@GLOBAL.gtid_binlog_pos", own_values, "other history"),
    Intended("SHOW BINLOG EVENTS IN", error(1220), "files have other names"),
    Intended("SHOW GRANTS", a_result_set, "other accounts"),
    Intended("SELECT @@version_comment", own_values, "our version"),
    Intended("SELECT @@character_set_client", own_values, "other character sets"),
    Intended("SHOW STATUS LIKE 'binlog_snapshot_%'", own_rows, "no snapshots of engine binlogs"),
    Intended("SHOW DATABASES", own_rows, "there are no databases"),
]


def intended(exchange: Exchange) -> Intended | None:
    sql = exchange.sql.lower()
    return next((i for i in INTENDED if sql and sql.startswith(i.statement.lower())), None)
