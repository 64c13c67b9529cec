"""Texts that SET takes: checked as MariaDB checks them, and brought into the form that SHOW VARIABLES prints."""

from __future__ import annotations

import re

from binlog_protocol.errors import BadGtidList, WrongVariableValue
from binlog_protocol.errors.sql_errors import UnknownCharacterSet, UnknownCollation, UnknownTimeZone
from binlog_protocol.events.collation_names import (
    charset_named,
    collation_name,
    collation_numbered,
    is_client_charset,
)
from binlog_protocol.limits import GTID_LIST_BYTES_MAX

from binlog_server.sql.session_settings import sql_mode_bits, sql_mode_names
from binlog_server.sql.time_zones import is_time_zone

TIME_ZONE_BYTES_MAX = 64
_SQL_MODE_CHARS_MAX = 1024  # all modes together have 600
_OFFSET = re.compile(r"[-+](\d{1,2}):(\d{2})", re.ASCII)
_OFFSET_MINUTES_MAX = {"+": 13 * 60, "-": 12 * 60 + 59}
_SWITCH = re.compile(r"\w+=(?:on|off|default) *", re.ASCII | re.IGNORECASE)


def client_charset(value: str | int) -> str:
    """The name of a character set that clients may use. Raises `UnknownCharacterSet` (1115), 1231 for one they may
    not."""
    found = charset(value)
    if not is_client_charset(found):
        raise WrongVariableValue("character_set_client", str(value))
    return found


def charset(value: str | int) -> str:
    """The name of a character set, given by its name in any case. Raises `UnknownCharacterSet` (1115)."""
    found = charset_named(str(value))
    if found is None:
        raise UnknownCharacterSet(str(value))
    return found


def collation(value: str | int) -> str:
    """The name of a collation, given by name or number. Raises `UnknownCollation` (1273)."""
    number = collation_numbered(str(value))
    if number is None:
        raise UnknownCollation(str(value))
    return collation_name(number)


def sql_mode(value: str | int) -> str:
    """The modes with all that they stand for, given by names or as bits. Raises `WrongVariableValue` (1231)."""
    if isinstance(value, str) and len(value) > _SQL_MODE_CHARS_MAX:
        raise WrongVariableValue("sql_mode", value[:_SQL_MODE_CHARS_MAX])
    return sql_mode_names(sql_mode_bits(value))


def optimizer_switch(value: str | int) -> str:
    """The value as it is, kept without effect. The set of switches depends on MariaDB's version, so only a text that is
    wrong in every version is refused (1231)."""
    for part in str(value).split(",") if isinstance(value, str) else ():
        if not _SWITCH.fullmatch(part) and part.lower() not in ("", "default"):
            raise WrongVariableValue("optimizer_switch", part[:80])
    return str(value)


def time_zone(value: str | int) -> str:
    """A time zone: SYSTEM, an offset or a name. Only names of the system's zone files are taken, because replicas stop
    at a name that they do not know. Raises `UnknownTimeZone` (1298)."""
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


def gtid_list(value: str | int) -> str:
    """The text as it is: the statement parses it later. Raises `BadGtidList` (1941) if it is too long."""
    text = str(value)
    if len(text) > GTID_LIST_BYTES_MAX:
        raise BadGtidList.too_long(len(text), GTID_LIST_BYTES_MAX)
    return text
