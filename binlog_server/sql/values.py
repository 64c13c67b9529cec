"""Values of SET: checked as MariaDB checks them, and brought into the form that SHOW VARIABLES prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

from binlog_protocol.errors import WrongVariableValue
from binlog_protocol.errors.sql_errors import (
    UnknownCharacterSet,
    UnknownCollation,
    UnknownTimeZone,
    WrongVariableType,
)
from binlog_protocol.events.collation_names import (
    charset_named,
    collation_name,
    collation_numbered,
    is_client_charset,
)

from binlog_server.sql.statements import Value
from binlog_server.sql.time_zones import is_time_zone
from binlog_server.sql.variables import BOOLEANS, DOUBLES, ENUMS, RANGES
from binlog_server.sql.view import Diagnostic, Level
from binlog_server.sql_commit.settings import sql_mode_bits, sql_mode_names

TIME_ZONE_BYTES_MAX = 64
_I64_MIN, _I64_MAX, _U64_MAX = -(2**63), 2**63 - 1, 2**64 - 1
_SQL_MODE_CHARS_MAX = 1024  # all modes together have 600
_OFFSET = re.compile(r"[-+](\d{1,2}):(\d{2})", re.ASCII)
_OFFSET_MINUTES_MAX = {"+": 13 * 60, "-": 12 * 60 + 59}
_TRUNCATED = 1292  # ER_TRUNCATED_WRONG_VALUE
_OVERFLOW = 1916  # ER_DATA_OVERFLOW
_SWITCH = re.compile(r"\w+=(?:on|off|default) *", re.ASCII | re.IGNORECASE)
# MariaDB 11.8 prints slave_connections_needed_for_purge so.
_SHORT_CHARS, _SHORT_CHARS_KEPT = 32, 29


def as_shown(value: Value, name: str, told: list[Diagnostic]) -> str:
    """As SHOW VARIABLES prints it. Raises `WrongVariableValue` (1231), `WrongVariableType` (1232), ...

    Args:
        told: where the warning goes if the value was cut to its range.
    """
    if name in RANGES:
        return number(name, value, *RANGES[name], 6 * (name in DOUBLES), told)
    if name in BOOLEANS:
        return boolean(name, value)
    if name in ENUMS:
        return enum(name, value, ENUMS[name])
    if value is None:
        if name == "character_set_results":
            return ""  # results are not converted
        raise WrongVariableValue(name, "NULL")
    if isinstance(value, Decimal) or (isinstance(value, int) and name not in _NUMBERED):
        raise WrongVariableType(name)
    check = _CHECKS.get(name)
    return str(value) if check is None else check(value)


def number(
    name: str,
    value: Value,
    low: int,
    high: int,
    decimals: int,
    told: list[Diagnostic],
) -> str:
    """A number, cut to its range with a warning; `decimals` behind the point. Raises `WrongVariableType` (1232)."""
    if value is None or isinstance(value, str):  # also one that holds digits
        raise WrongVariableType(name)
    given = value if decimals else _whole(name, value, told)
    cut = min(max(low, given), high)
    if cut != given:
        shown = f"{given:f}" if isinstance(given, Decimal) else given
        text = f"Truncated incorrect {_shortened(name)} value: '{shown}'"
        told.append(Diagnostic(Level.WARNING, _TRUNCATED, text))
    if not decimals:
        return str(cut)
    # A time is never later than was said; other numbers are the nearest.
    rounding = ROUND_DOWN if name == "timestamp" else ROUND_HALF_UP
    return f"{Decimal(cut).quantize(Decimal(1).scaleb(-decimals), rounding):f}"


def _whole(name: str, value: int | Decimal, told: list[Diagnostic]) -> int:
    """Of a literal that has no point: one of more than 64 bits is a DECIMAL, too."""
    if isinstance(value, Decimal) and value.as_tuple().exponent != 0:
        raise WrongVariableType(name)
    if _I64_MIN <= value <= _U64_MAX:
        return int(value)
    text = f"Got overflow when converting '{value:f}' to INT. Value truncated"
    told.append(Diagnostic(Level.WARNING, _OVERFLOW, text))
    return _I64_MIN if value < 0 else _I64_MAX


def _shortened(name: str) -> str:
    return name if len(name) <= _SHORT_CHARS else name[:_SHORT_CHARS_KEPT] + "..."


def boolean(name: str, value: Value) -> str:
    """ON or OFF. Raises `WrongVariableValue` (1231), `WrongVariableType` (1232)."""
    return enum(name, value, ("OFF", "ON"))


def enum(name: str, value: Value, words: Sequence[str]) -> str:
    """One of the words, or the one with that number. Raises `WrongVariableValue` (1231), `WrongVariableType` (1232)."""
    if isinstance(value, Decimal):
        raise WrongVariableType(name)
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    word = "NULL" if value is None else str(value)
    if word.upper() not in words:
        raise WrongVariableValue(name, word)
    return word.upper()


def _client_charset(value: str | int) -> str:
    charset = _charset(value)
    if not is_client_charset(charset):
        raise WrongVariableValue("character_set_client", str(value))
    return charset


def _charset(value: str | int) -> str:
    charset = charset_named(str(value))
    if charset is None:
        raise UnknownCharacterSet(str(value))
    return charset


def _collation(value: str | int) -> str:
    number = collation_numbered(str(value))
    if number is None:
        raise UnknownCollation(str(value))
    return collation_name(number)


def _sql_mode(value: str | int) -> str:
    if isinstance(value, str) and len(value) > _SQL_MODE_CHARS_MAX:
        raise WrongVariableValue("sql_mode", value[:_SQL_MODE_CHARS_MAX])
    return sql_mode_names(sql_mode_bits(value))


def _optimizer_switch(value: str | int) -> str:
    """Kept without effect. Which switches there are depends on the version: only what no version takes is refused."""
    for part in str(value).split(",") if isinstance(value, str) else ():
        if not _SWITCH.fullmatch(part) and part.lower() not in ("", "default"):
            raise WrongVariableValue("optimizer_switch", part[:80])
    return str(value)


def _time_zone(value: str | int) -> str:
    """Replicas stop at one that they do not know: names are those that a MariaDB here would load."""
    value = str(value)
    if len(value.encode("utf-8", "surrogateescape")) > TIME_ZONE_BYTES_MAX:
        raise UnknownTimeZone(value[:TIME_ZONE_BYTES_MAX])
    if value[:1] in ("+", "-"):
        offset = _OFFSET.fullmatch(value)
        if (
            offset is None
            or int(offset[2]) > 59
            or int(offset[1]) * 60 + int(offset[2]) > _OFFSET_MINUTES_MAX[value[0]]
        ):
            raise UnknownTimeZone(value)
    elif value.upper() == "SYSTEM":
        return "SYSTEM"
    elif not is_time_zone(value):
        raise UnknownTimeZone(value)
    return value


# How values are checked, and brought into the form that is kept.
_CHECKS: Mapping[str, Callable[[str | int], str]] = {
    "character_set_client": _client_charset,
    "character_set_connection": _charset,
    "character_set_results": _charset,
    "collation_connection": _collation,
    "optimizer_switch": _optimizer_switch,
    "sql_mode": _sql_mode,
    "time_zone": _time_zone,
}
# Texts that have a number, too.
_NUMBERED = _CHECKS.keys() - {"time_zone"}
