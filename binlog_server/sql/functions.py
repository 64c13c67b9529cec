"""The SQL functions that clients and monitoring call on any server. Every other function is a syntax error here."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final, Protocol

from binlog_protocol.errors import (
    AllowedPacketOverflowed,
    EngineBinlogUnavailable,
    NotSupportedYet,
    ServerError,
    SqlSyntaxError,
    WrongParameterCount,
)
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.wire.results import FLAG_UNSIGNED, Column

from binlog_server.sql.time_zones import Clock
from binlog_server.sql.view import ResultSet, Wait

Argument = str | int | Decimal | None

# Functions that may stand without parentheses.
BARE_FUNCTIONS: Final = frozenset(
    {"CURRENT_ROLE", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIMESTAMP", "UTC_TIMESTAMP"}
)
# Such functions of `queries`.
BARE_ELSEWHERE: Final = frozenset(
    {"CURRENT_DATE", "CURRENT_TIME", "LOCALTIME", "UTC_DATE", "UTC_TIME"}
)
# Functions whose values are times, and the types of their columns.
_TIMES: Final = {
    **dict.fromkeys(("CURRENT_TIMESTAMP", "NOW", "SYSDATE"), ColumnType.TIMESTAMP),
    **dict.fromkeys(("LOCALTIMESTAMP", "UTC_TIMESTAMP"), ColumnType.DATETIME),
}
_CALLED: Final = frozenset(
    {
        *("UNIX_TIMESTAMP", "VERSION", "CONNECTION_ID", "USER", "SESSION_USER", "SYSTEM_USER"),
        *("CURRENT_USER", "CURRENT_ROLE", "DATABASE", "SCHEMA", "UUID"),
        *("FOUND_ROWS", "ROW_COUNT"),
    }
)
_OF_POSITIONS: Final = frozenset({"BINLOG_GTID_AT", "BINLOG_GTID_POS", "MASTER_POS_WAIT"})
_TIME_CHARS: Final = 19
_BIGINT_CHARS: Final = 21
CONCAT_CHARS_MAX: Final = 1 << 20  # one call may name a long variable many times
# Lengths of the columns as MariaDB declares them, whatever the value.
_ACCOUNT_CHARS, _ROLE_CHARS, _DATABASE_CHARS, _UUID_CHARS, _UNIX_TIME_DIGITS = 384, 128, 64, 36, 17


class Caller(Protocol):
    """The session, as functions see it."""

    connection_id: int
    account: str
    current_user: str
    database: bytes
    found_rows: int
    row_count: int

    def clock(self) -> Clock:
        """The session's time and time zone."""

    def global_value(self, name: str) -> str:
        """The global value of a system variable."""

    def warn(self, told: ServerError) -> None:
        """Add a warning to the diagnostics of the running statement."""


def call(caller: Caller, name: str, arguments: Sequence[Argument]) -> str | int | None:
    """A function's value. Raises `SqlSyntaxError` for an unknown function, `EngineBinlogUnavailable` (4247)."""
    match name, list(arguments):
        case "UNIX_TIMESTAMP", []:
            return int(caller.clock().now)
        case "SYSDATE", []:  # goes on under SET timestamp
            return replace(caller.clock(), now=time.time()).text()
        case _, [] if name in _TIMES:
            return caller.clock().text(in_utc=name == "UTC_TIMESTAMP")
        case "VERSION", []:
            return caller.global_value("version")
        case "CONNECTION_ID", []:
            return caller.connection_id
        case "USER" | "SYSTEM_USER", []:
            return caller.account
        case "CURRENT_USER" | "SESSION_USER", []:  # one since MariaDB 11.7
            return caller.current_user or caller.account
        case "CURRENT_ROLE", []:
            return None  # there are no roles
        case "DATABASE" | "SCHEMA", []:
            return caller.database.decode("utf-8", "replace") or None
        case "UUID", []:
            return str(uuid.uuid1())
        case "FOUND_ROWS", []:
            return caller.found_rows
        case "ROW_COUNT", []:
            return caller.row_count
        case "CONCAT", []:
            raise WrongParameterCount(name)
        case "CONCAT", found:
            return _concat(caller, found)
        case "BINLOG_GTID_AT", found:
            _require_count(name, found, 1, 1)
            raise NotSupportedYet(
                "BINLOG_GTID_AT() beside other columns, or inside of an expression"
            )
        case "BINLOG_GTID_POS", found:
            _require_count(name, found, 2, 2)
            raise EngineBinlogUnavailable("BINLOG_GTID_POS()")
        case "MASTER_POS_WAIT", found:
            _require_count(name, found, 2, 4)
            raise EngineBinlogUnavailable("MASTER_POS_WAIT()")
    raise SqlSyntaxError(f"{name}(")


def _concat(caller: Caller, arguments: Sequence[Argument]) -> str | None:
    """The texts in a row, NULL if one is; and with a warning beyond `CONCAT_CHARS_MAX`."""
    texts = [f"{one:f}" if isinstance(one, Decimal) else str(one) for one in arguments]
    if sum(map(len, texts)) > CONCAT_CHARS_MAX:
        caller.warn(AllowedPacketOverflowed("concat", CONCAT_CHARS_MAX))
        return None
    return None if None in arguments else "".join(texts)


def is_answered(name: str, count: int = 0) -> bool:
    """Whether a SELECT with a function of that name, in upper case, is answered without `queries`. `count`: of its
    arguments."""
    if name in _WAITING or name in _OF_POSITIONS:
        return True
    return not count and (name in _TIMES or name in _CALLED)


def is_called(name: str, count: int) -> bool:
    """Whether SET knows a function of that name, in upper case, with so many arguments, without `queries`."""
    return is_answered(name, count) or name == "CONCAT"


def function_column(name: str, label: str, value: Argument) -> Column:
    """The result column for a function's value, with the type and length that MariaDB gives it."""
    match name:
        case _ if name in _TIMES:
            return Column.binary(label, _TIMES[name], _TIME_CHARS)
        case "CONNECTION_ID":
            return Column.integer(label)
        case "FOUND_ROWS" | "ROW_COUNT":
            return Column.binary(label, ColumnType.LONGLONG, _BIGINT_CHARS)
        case "UNIX_TIMESTAMP":
            return Column.binary(label, ColumnType.LONGLONG, _UNIX_TIME_DIGITS, null=True)
        case "UUID":
            column = Column.text(label, _UUID_CHARS, kind=ColumnType.STRING)
            return replace(column, flags=column.flags | FLAG_UNSIGNED, decimals=0)
        case "DATABASE" | "SCHEMA":
            return Column.text(label, _DATABASE_CHARS, null=True)
        case "CURRENT_ROLE":
            return Column.text(label, _ROLE_CHARS, null=True)
        case "VERSION" | "CONCAT":
            return Column.text(label, len(str(value or "")), null=value is None)
    return Column.text(label, _ACCOUNT_CHARS, null=True)


def _require_count(name: str, arguments: Sequence[Argument], least: int, most: int) -> None:
    if not least <= len(arguments) <= most:
        raise WrongParameterCount(name)


def _master_gtid_wait(arguments: Sequence[Argument], label: str) -> Wait | ResultSet:
    """MASTER_GTID_WAIT: 0 when all up to the position is durable here, -1 after the timeout, NULL for NULL.

    Raises `BadGtidList` (1941).
    """
    _require_count("MASTER_GTID_WAIT", arguments, 1, 2)

    def result(reached: bool | None) -> ResultSet:
        return ResultSet(
            [Column.binary(label, ColumnType.LONG, 2, null=reached is None)],
            [(None if reached is None else reached - 1,)],
        )

    if None in arguments[:1]:
        return result(None)
    position = SlavePosition.from_peer(str(arguments[0]))
    return Wait(list(position), _seconds(arguments[1:]), result)


def _seconds(arguments: Sequence[Argument]) -> float | None:
    """A timeout in seconds from the argument; None (wait for ever) without one, or with a negative one."""
    try:
        seconds = float(arguments[0]) if arguments and arguments[0] is not None else -1.0
    except ValueError:
        seconds = 0.0
    return None if seconds < 0 else min(seconds, 1e9)


_WAITING: Mapping[str, Callable[[Sequence[Argument], str], Wait | ResultSet]] = {
    "MASTER_GTID_WAIT": _master_gtid_wait
}


def waits_for(name: str) -> Callable[[Sequence[Argument], str], Wait | ResultSet] | None:
    """The function that makes the `Wait` for a function of that name; None if the function does not wait."""
    return _WAITING.get(name)
