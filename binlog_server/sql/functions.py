"""The functions that clients ask a server for. Everything else is a syntax error: there is nothing to compute on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final, Protocol

from binlog_protocol.errors import EngineBinlogUnavailable, SqlSyntaxError
from binlog_protocol.errors.sql_errors import WrongParameterCount
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.wire.results import (
    FLAG_UNSIGNED,
    TYPE_DATETIME,
    TYPE_LONG,
    TYPE_LONGLONG,
    TYPE_STRING,
    TYPE_TIMESTAMP,
    Column,
)

from binlog_server.sql.time_zones import Clock
from binlog_server.sql.view import ResultSet, Wait

Argument = str | int | Decimal | None

# May stand without parentheses.
BARE_FUNCTIONS: Final = frozenset(
    {"CURRENT_ROLE", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIMESTAMP", "UTC_TIMESTAMP"}
)
# Their values are times, of these types.
_TIMES: Final = {
    **dict.fromkeys(("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "NOW", "SYSDATE"), TYPE_TIMESTAMP),
    "UTC_TIMESTAMP": TYPE_DATETIME,
}
_TIME_CHARS: Final = 19
# What MariaDB says of their length, whatever there is to tell.
_ACCOUNT_CHARS, _ROLE_CHARS, _DATABASE_CHARS, _UUID_CHARS, _UNIX_TIME_DIGITS = 384, 128, 64, 36, 17


class Caller(Protocol):
    """The session, as functions see it."""

    connection_id: int
    account: str
    current_user: str
    database: bytes

    def clock(self) -> Clock:
        """What time it is for the session."""

    def global_value(self, name: str) -> str:
        """Of a system variable."""


def call(caller: Caller, name: str, arguments: Sequence[Argument]) -> str | int | None:
    """The value. Raises `SqlSyntaxError` for what there is not, `EngineBinlogUnavailable` (4247)."""
    match name, list(arguments):
        case "UNIX_TIMESTAMP", []:
            return int(caller.clock().now)
        case "SYSDATE", []:  # SET timestamp does not hold it
            return replace(caller.clock(), now=time.time()).text()
        case _, [] if name in _TIMES:
            return caller.clock().text(in_utc=name == "UTC_TIMESTAMP")
        case "VERSION", []:
            return caller.global_value("version")
        case "CONNECTION_ID", []:
            return caller.connection_id
        case "USER" | "SESSION_USER" | "SYSTEM_USER", []:
            return caller.account
        case "CURRENT_USER", []:
            return caller.current_user or caller.account
        case "CURRENT_ROLE", []:
            return None  # there are no roles
        case "DATABASE" | "SCHEMA", []:
            return caller.database.decode("utf-8", "replace") or None
        case "UUID", []:
            return str(uuid.uuid1())
        case "BINLOG_GTID_POS", found:
            _require_count(name, found, 2, 2)
            raise EngineBinlogUnavailable("BINLOG_GTID_POS()")
        case "MASTER_POS_WAIT", found:
            _require_count(name, found, 2, 4)
            raise EngineBinlogUnavailable("MASTER_POS_WAIT()")
    raise SqlSyntaxError(f"{name}(")


def function_column(name: str, label: str, value: Argument) -> Column:
    """The column of its value."""
    match name:
        case _ if name in _TIMES:
            return Column.binary(label, _TIMES[name], _TIME_CHARS)
        case "CONNECTION_ID":
            return Column.integer(label)
        case "UNIX_TIMESTAMP":
            return Column.binary(label, TYPE_LONGLONG, _UNIX_TIME_DIGITS, null=True)
        case "UUID":
            column = Column.text(label, _UUID_CHARS, kind=TYPE_STRING)
            return replace(column, flags=column.flags | FLAG_UNSIGNED, decimals=0)
        case "DATABASE" | "SCHEMA":
            return Column.text(label, _DATABASE_CHARS, null=True)
        case "CURRENT_ROLE":
            return Column.text(label, _ROLE_CHARS, null=True)
        case "VERSION":
            return Column.text(label, len(str(value)))
    return Column.text(label, _ACCOUNT_CHARS, null=True)


def _require_count(name: str, arguments: Sequence[Argument], least: int, most: int) -> None:
    if not least <= len(arguments) <= most:
        raise WrongParameterCount(name)


def _master_gtid_wait(arguments: Sequence[Argument], label: str) -> Wait | ResultSet:
    """0 when everything up to the position is durable here, -1 after the time. Raises `BadGtidList` (1941)."""
    _require_count("MASTER_GTID_WAIT", arguments, 1, 2)

    def result(reached: bool | None) -> ResultSet:
        return ResultSet(
            [Column.binary(label, TYPE_LONG, 2, null=reached is None)],
            [(None if reached is None else reached - 1,)],
        )

    if None in arguments[:1]:
        return result(None)
    position = SlavePosition.from_peer(str(arguments[0]))
    return Wait(list(position), _seconds(arguments[1:]), result)


def _seconds(arguments: Sequence[Argument]) -> float | None:
    """A timeout; for ever without one, or with a negative one."""
    try:
        seconds = float(arguments[0]) if arguments and arguments[0] is not None else -1.0
    except ValueError:
        seconds = 0.0
    return None if seconds < 0 else min(seconds, 1e9)


_WAITING: Mapping[str, Callable[[Sequence[Argument], str], Wait | ResultSet]] = {
    "MASTER_GTID_WAIT": _master_gtid_wait
}


def waits_for(name: str) -> Callable[[Sequence[Argument], str], Wait | ResultSet] | None:
    """What makes the result of a function that waits; None for one that does not."""
    return _WAITING.get(name)
