"""Texts that SET takes: checked as MariaDB checks them, and brought into the form that SHOW VARIABLES prints."""

from __future__ import annotations

import re
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import (
    GtidListTooLong,
    UnknownCharacterSet,
    UnknownCollation,
    UnknownLocale,
    UnknownStorageEngine,
    UnknownTimeZone,
    WrongVariableValue,
)
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.collation_names import (
    charset_named,
    collation_name,
    collation_numbered,
    is_client_charset,
)
from binlog_protocol.limits import GTID_LIST_BYTES_MAX

from binlog_server.sql.recorded_variables import RECORDED
from binlog_server.sql.session_settings import sql_mode_bits, sql_mode_names
from binlog_server.sql.time_zones import is_time_zone

TIME_ZONE_BYTES_MAX = 64
_SQL_MODE_CHARS_MAX = 1024  # all modes together have 600
_OFFSET = compiled_later(r"[-+](\d{1,9}):(\d{1,9})", re.ASCII)
_OFFSET_MINUTES_MAX = {"+": 13 * 60, "-": 12 * 60 + 59}
_REDIRECT: Final = compiled_later(
    r"(?:mysql|mariadb)://(?:\[[^\]]+\]|[^/:\[\]]+)(?::\d{1,5})?", re.ASCII
)
_ENGINES: Final = (
    *("InnoDB", "MyISAM", "Aria", "MEMORY", "CSV", "MRG_MyISAM", "SEQUENCE", "PERFORMANCE_SCHEMA"),
    *(
        "ARCHIVE",
        "BLACKHOLE",
        "FEDERATED",
        "CONNECT",
        "SPIDER",
        "ROCKSDB",
        "S3",
        "Mroonga",
        "OQGRAPH",
    ),
)
_LOCALES: Final = RECORDED["lc_time_names"].words
LOCALES: Final = {name.lower(): number for number, name in enumerate(_LOCALES)}
"""The numbers of locales, by name in lower case."""


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


def charset_collations(value: str | int) -> str:
    """Default collations of character sets, as `utf8mb4=utf8mb4_general_ci,...`. Raises 1231."""
    if value == RECORDED["character_set_collations"].default:
        return str(value)  # of collations that older replicas do not know
    for part in str(value).split(",") if value else ():
        charset_name, _, collation_of = part.strip(" ").partition("=")
        number = collation_numbered(collation_of)
        if number is None or charset_of(number) != charset_named(charset_name):
            raise WrongVariableValue("character_set_collations", part[:80])
    return str(value)


def redirect_url(value: str | int) -> str:
    """Where clients are to go: mysql:// or mariadb://, a host, perhaps a port. Raises 1231."""
    if value and not _REDIRECT.fullmatch(str(value)):
        raise WrongVariableValue("redirect_url", str(value)[:80])
    return str(value)


def storage_engine(value: str | int) -> str:
    """The name of one of MariaDB's engines, in any case. Raises `UnknownStorageEngine` (1286)."""
    for name in _ENGINES:
        if name.lower() == str(value).lower():
            return name
    raise UnknownStorageEngine(str(value))


def locale(value: str | int) -> str:
    """The name of a locale, given by its name in any case or its number. Raises `UnknownLocale` (1649)."""
    if isinstance(value, str):
        number = LOCALES.get(value.lower(), -1)
    else:
        number = value
    if not 0 <= number < len(_LOCALES):
        raise UnknownLocale(str(value))
    return _LOCALES[number]


def sql_mode(value: str | int) -> str:
    """The modes with all that they stand for, given by names or as bits. Raises `WrongVariableValue` (1231)."""
    if isinstance(value, str) and len(value) > _SQL_MODE_CHARS_MAX:
        raise WrongVariableValue("sql_mode", value[:_SQL_MODE_CHARS_MAX])
    return sql_mode_names(sql_mode_bits(value))


def time_zone(value: str | int) -> str:
    """A time zone: SYSTEM, an offset such as +02:00, or a name, of the system's zone files: replicas stop at one that
    they do not know. Raises `UnknownTimeZone` (1298)."""
    value = str(value)
    if len(value.encode("utf-8", "surrogateescape")) > TIME_ZONE_BYTES_MAX:
        raise UnknownTimeZone(value[:TIME_ZONE_BYTES_MAX])
    if value[:1] in ("+", "-"):
        offset = _OFFSET.fullmatch(value)
        if offset is None:
            raise UnknownTimeZone(value)
        hours, minutes = int(offset[1]), int(offset[2])
        if minutes > 59 or hours * 60 + minutes > _OFFSET_MINUTES_MAX[value[0]]:
            raise UnknownTimeZone(value)
        sign = value[0] if hours or minutes else "+"
        return f"{sign}{hours:02d}:{minutes:02d}"
    if value.upper() == "SYSTEM":
        return "SYSTEM"
    if not is_time_zone(value):
        raise UnknownTimeZone(value)
    return value


def gtid_list(value: str | int) -> str:
    """The text as it is: the statement parses it later. Raises `BadGtidList` (1941) if it is too long."""
    text = str(value)
    if len(text) > GTID_LIST_BYTES_MAX:
        raise GtidListTooLong(len(text), GTID_LIST_BYTES_MAX)
    return text
