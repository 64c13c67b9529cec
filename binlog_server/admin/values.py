"""Values of SET: checked as MariaDB checks them, and brought into the form that SHOW VARIABLES prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from binlog_server.admin.variables import BOOLEANS, DOUBLES, ENUMS, RANGES
from binlog_server.admin.view import Diagnostic, Level
from binlog_server.sql_commit.settings import sql_mode_bits
from protocol.errors import WrongVariableValue
from protocol.events.collation_names import (
    charset_named,
    collation_name,
    collation_numbered,
    is_client_charset,
)
from protocol.sql_errors import (
    UnknownCharacterSet,
    UnknownCollation,
    UnknownTimeZone,
    WrongVariableType,
)

TIME_ZONE_BYTES_MAX = 64
U64_DIGITS = 20
_SQL_MODE_CHARS_MAX = 1024  # all modes together have 600
_OFFSET = re.compile(r"[-+](\d{1,2}):(\d{2})", re.ASCII)
_OFFSET_MINUTES_MAX = {"+": 13 * 60, "-": 12 * 60 + 59}
_TRUNCATED = 1292  # ER_TRUNCATED_WRONG_VALUE
# MariaDB 11.8 prints slave_connections_needed_for_purge so.
_SHORT_CHARS, _SHORT_CHARS_KEPT = 32, 29


def as_shown(value: str | int | None, name: str, told: list[Diagnostic]) -> str:
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
    check = _CHECKS.get(name)
    return str(value) if check is None else check(str(value))


def number(
    name: str,
    value: str | int | None,
    low: int,
    high: int,
    decimals: int,
    told: list[Diagnostic],
) -> str:
    """A number, cut to its range with a warning; `decimals` behind the point. Raises `WrongVariableType` (1232)."""
    given = _parsed(name, value, decimals)
    cut = min(max(low, given), high)
    if cut != given:
        text = f"Truncated incorrect {_shortened(name)} value: '{value}'"
        told.append(Diagnostic(Level.WARNING, _TRUNCATED, text))
    return f"{cut:.{decimals}f}" if decimals else str(int(cut))


def _parsed(name: str, value: str | int | None, decimals: int) -> float | int:
    if isinstance(value, int):
        return value
    # A number with a point comes as text from the grammar, and so does a text in quotes.
    text = "" if value is None else value
    whole, point, fraction = text.removeprefix("-").partition(".")
    digits = whole + fraction
    if (
        not (digits.isascii() and digits.isdecimal() and len(digits) <= U64_DIGITS)
        or not whole
        or (point and not decimals)
    ):
        raise WrongVariableType(name)
    return float(text) if decimals else int(text)


def _shortened(name: str) -> str:
    return name if len(name) <= _SHORT_CHARS else name[:_SHORT_CHARS_KEPT] + "..."


def boolean(name: str, value: str | int | None) -> str:
    """ON or OFF. Raises `WrongVariableValue` (1231)."""
    word = "NULL" if value is None else str(value)
    if word.upper() not in _BOOLEAN_WORDS:
        raise WrongVariableValue(name, word)
    return _BOOLEAN_WORDS[word.upper()]


def enum(name: str, value: str | int | None, words: Sequence[str]) -> str:
    """One of the words, or the one with that number. Raises `WrongVariableValue` (1231)."""
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    word = "NULL" if value is None else str(value)
    if word.upper() not in words:
        raise WrongVariableValue(name, word)
    return word.upper()


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
    if len(value) > _SQL_MODE_CHARS_MAX:
        raise WrongVariableValue("sql_mode", value[:_SQL_MODE_CHARS_MAX])
    sql_mode_bits(value)
    return value


def _time_zone(value: str) -> str:
    """An offset that is none is refused. A name may be known to the replicas, who are to use it: it is kept."""
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
    return value


# How values are checked, and brought into the form that is kept.
_CHECKS: Mapping[str, Callable[[str], str]] = {
    "character_set_client": _client_charset,
    "character_set_connection": _charset,
    "character_set_results": _charset,
    "collation_connection": _collation,
    "sql_mode": _sql_mode,
    "time_zone": _time_zone,
}
