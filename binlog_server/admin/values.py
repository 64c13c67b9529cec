"""Values of SET: checked as MariaDB checks them, and brought into the form that SHOW VARIABLES prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from binlog_server.admin.variables import BOOLEANS, RANGES
from binlog_server.sql_commit.settings import sql_mode_bits, timestamp_of
from protocol.errors import (
    WrongVariableValue,
)
from protocol.events.collation_names import (
    charset_named,
    collation_name,
    collation_numbered,
    is_client_charset,
)
from protocol.sql_errors import (
    UnknownCharacterSet,
    UnknownCollation,
)

TIME_ZONE_BYTES_MAX = 64
_U64_DIGITS = 20


def as_shown(value: str | int | None, name: str) -> str:
    """As SHOW VARIABLES prints it. Raises `WrongVariableValue`."""
    if value is None:
        raise WrongVariableValue(name, "NULL")
    if name in RANGES:
        digits = str(value).removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= _U64_DIGITS):
            raise WrongVariableValue(name, str(value))
        low, high = RANGES[name]
        return str(min(max(low, int(value)), high))
    if name in BOOLEANS:
        on = str(value).upper()
        if on not in _BOOLEAN_WORDS:
            raise WrongVariableValue(name, str(value))
        return _BOOLEAN_WORDS[on]
    check = _CHECKS.get(name)
    return str(value) if check is None else check(str(value))


_BOOLEAN_WORDS = {"0": "OFF", "1": "ON", "OFF": "OFF", "ON": "ON", "FALSE": "OFF", "TRUE": "ON"}


def _client_charset(value: str) -> str:
    charset = _charset(value)
    if not is_client_charset(charset):
        raise WrongVariableValue("character_set_client", value)
    return charset


def _charset(value: str) -> str:
    charset = charset_named(value)
    if charset is None:
        raise UnknownCharacterSet(value)
    return charset


def _collation(value: str) -> str:
    number = collation_numbered(value)
    if number is None:
        raise UnknownCollation(value)
    return collation_name(number)


def _sql_mode(value: str) -> str:
    sql_mode_bits(value)
    return value


def _timestamp(value: str) -> str:
    timestamp_of(value)
    return value


def _time_zone(value: str) -> str:
    if len(value.encode("utf-8", "surrogateescape")) > TIME_ZONE_BYTES_MAX:
        raise WrongVariableValue("time_zone", value[:TIME_ZONE_BYTES_MAX])
    return value


# How values are checked, and brought into the form that is kept.
_CHECKS: Mapping[str, Callable[[str], str]] = {
    "character_set_client": _client_charset,
    "character_set_connection": _charset,
    "character_set_results": _charset,
    "collation_connection": _collation,
    "sql_mode": _sql_mode,
    "time_zone": _time_zone,
    "timestamp": _timestamp,
}
