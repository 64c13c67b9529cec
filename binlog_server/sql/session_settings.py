"""A session's variables as its commits carry them: status variables, context events, and the GTID's parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NotSupportedYet, WrongVariableValue
from binlog_protocol.events.charsets import (
    BINARY_COLLATION,
    UTF8_CHARSETS,
    character_bytes_max,
    charset_of,
    decode_text,
    is_storable,
    result_encoder,
)
from binlog_protocol.events.collation_names import (
    collation_name,
    collation_numbered,
    default_collation,
    is_client_charset,
)
from binlog_protocol.events.header import FLAG_SKIP_REPLICATION
from binlog_protocol.events.statement_context import (
    IntvarEvent,
    IntvarKind,
    RandEvent,
    UserVarEvent,
)
from binlog_protocol.events.status_variables import SessionFlags, StatusVariables
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.sql.tokens import STRING_OR_REST
from binlog_protocol.wire.results import UTF8, ResultCharset, utf8

from binlog_server.sql.recorded_variables import RECORDED

DEFAULT_COLLATION: Final = 45  # utf8mb4_general_ci
BINARY: Final = "binary"
_U64_MASK: Final = 2**64 - 1

# The modes of sql_mode, in the order of their bits.
_MODES: Final = (
    *("REAL_AS_FLOAT", "PIPES_AS_CONCAT", "ANSI_QUOTES", "IGNORE_SPACE"),
    *("IGNORE_BAD_TABLE_OPTIONS", "ONLY_FULL_GROUP_BY", "NO_UNSIGNED_SUBTRACTION"),
    *("NO_DIR_IN_CREATE", "POSTGRESQL", "ORACLE", "MSSQL", "DB2", "MAXDB", "NO_KEY_OPTIONS"),
    *("NO_TABLE_OPTIONS", "NO_FIELD_OPTIONS", "MYSQL323", "MYSQL40", "ANSI"),
    *("NO_AUTO_VALUE_ON_ZERO", "NO_BACKSLASH_ESCAPES"),
    *("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "NO_ZERO_IN_DATE", "NO_ZERO_DATE"),
    *("ALLOW_INVALID_DATES", "ERROR_FOR_DIVISION_BY_ZERO", "TRADITIONAL", "NO_AUTO_CREATE_USER"),
    *("HIGH_NOT_PRECEDENCE", "NO_ENGINE_SUBSTITUTION", "PAD_CHAR_TO_FULL_LENGTH"),
    *("EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT", "TIME_ROUND_FRACTIONAL"),
)
_MODE_BITS: Final = {name: 1 << bit for bit, name in enumerate(_MODES)}
assert _MODE_BITS["TIME_ROUND_FRACTIONAL"] == 1 << 34
assert _MODE_BITS["NO_BACKSLASH_ESCAPES"] == 1 << 20
# Modes that give these words another meaning, which nothing here knows; where `''` is an empty string, `'x'` another.
_OTHER_READING: Final = {
    "PIPES_AS_CONCAT": compiled_later(r"\|\|"),
    "HIGH_NOT_PRECEDENCE": compiled_later(
        r"\bNOT\b(?!\s+(?:NULL|IN|LIKE|BETWEEN|REGEXP|RLIKE|EXISTS)\b)", re.IGNORECASE
    ),
    "EMPTY_STRING_IS_NULL": compiled_later(r"''"),
    "PAD_CHAR_TO_FULL_LENGTH": compiled_later(r"\bSELECT\b.*\bFROM\b", re.IGNORECASE | re.DOTALL),
    "REAL_AS_FLOAT": compiled_later(r"\bREAL\b", re.IGNORECASE),
    "SIMULTANEOUS_ASSIGNMENT": compiled_later(
        r"\A\s*UPDATE\b.*\bSET\b.*=.*,.*=", re.IGNORECASE | re.DOTALL
    ),
    "ORACLE": compiled_later(
        r"\A\s*(?:CREATE|ALTER)\b.*\bTABLE\b.*\bDATE\b", re.IGNORECASE | re.DOTALL
    ),
}
_STRINGS: Final = compiled_later(STRING_OR_REST, re.DOTALL)
_INSTEAD: Final = {"PIPES_AS_CONCAT": ": write CONCAT()"}


def require_read_alike(text: str, modes: Iterable[str]) -> None:
    """Refuses a statement, in the form that the grammars read, which these modes make another one.

    Raises `NotSupportedYet` (1235).
    """
    if text[:16].lstrip()[:4].upper() == "SET ":
        return
    words = _STRINGS.sub(lambda found: "''" if found[0] in ("''", '""') else "'x'", text)
    for mode in modes:
        found = _OTHER_READING[mode].search(words)
        if found is not None:
            raise NotSupportedYet(
                f"{found[0].split()[0]} with the sql_mode {mode}{_INSTEAD.get(mode, '')}"
            )


# Modes that switch others on, too.
_OTHER_DATABASE: Final = (
    *("PIPES_AS_CONCAT", "ANSI_QUOTES", "IGNORE_SPACE", "NO_KEY_OPTIONS", "NO_TABLE_OPTIONS"),
    "NO_FIELD_OPTIONS",
)
_COMBINED: Final = {
    "ANSI": ("REAL_AS_FLOAT", "PIPES_AS_CONCAT", "ANSI_QUOTES", "IGNORE_SPACE"),
    "POSTGRESQL": _OTHER_DATABASE,
    "ORACLE": (*_OTHER_DATABASE, "NO_AUTO_CREATE_USER", "SIMULTANEOUS_ASSIGNMENT"),
    "MSSQL": _OTHER_DATABASE,
    "DB2": _OTHER_DATABASE,
    "MAXDB": (*_OTHER_DATABASE, "NO_AUTO_CREATE_USER"),
    "MYSQL323": ("HIGH_NOT_PRECEDENCE",),
    "MYSQL40": ("HIGH_NOT_PRECEDENCE",),
    "TRADITIONAL": (
        *("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "NO_ZERO_IN_DATE", "NO_ZERO_DATE"),
        *("ERROR_FOR_DIVISION_BY_ZERO", "NO_AUTO_CREATE_USER", "NO_ENGINE_SUBSTITUTION"),
    ),
}

# (variable, its value that sets the flag, flag). Not that of autocommit, which no event of MariaDB has: where a
# transaction ends stands in the log, and a replica of 11.8 that reads the flag in DDL does not commit what follows.
_FLAGS: Final = (
    ("foreign_key_checks", "OFF", SessionFlags.NO_FOREIGN_KEY_CHECKS),
    ("unique_checks", "OFF", SessionFlags.RELAXED_UNIQUE_CHECKS),
    ("check_constraint_checks", "OFF", SessionFlags.NO_CHECK_CONSTRAINT_CHECKS),
    ("sql_auto_is_null", "ON", SessionFlags.AUTO_IS_NULL),
    ("sql_if_exists", "ON", SessionFlags.IF_EXISTS),
    ("system_versioning_insert_history", "ON", SessionFlags.INSERT_HISTORY),
)

# Variables that hold for the next statement only, and for the next group only.
ONCE_PER_STATEMENT: Final = ("insert_id", "last_insert_id", "identity", "rand_seed1", "rand_seed2")
ONCE_PER_GROUP: Final = ("gtid_seq_no",)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session's commits, valid up to the next SET.

    `timestamp` is that of SET TIMESTAMP in seconds since 1970, None without one; `context` are the events of
    ONCE_PER_STATEMENT.
    """

    origin: Origin
    domain_id: int
    seq_no: int
    timestamp: int | None
    charset: str  # the client's character set
    is_plain: bool  # texts come in UTF-8, and are that of character_set_connection
    backslash_escapes: bool
    ansi_quotes: bool
    other_reading: tuple[
        str, ...
    ]  # modes of sql_mode that give a text another meaning than the grammars do
    context: tuple[IntvarEvent | RandEvent, ...]
    is_logged: bool  # sql_log_bin

    def context_events(self, variables: list[UserVarEvent], timestamp: int) -> bytes:
        """The events in front of the statement's own: INTVAR, RAND and USER_VAR events."""
        return b"".join(
            event.build(
                server_id=self.origin.server_id, timestamp=timestamp, flags=self.origin.header_flags
            )
            for event in (*self.context, *variables)
        )


def settings_of(
    variables: Mapping[str, str], *, server_id: int, domain_id: int, thread_id: int, database: bytes
) -> Settings:
    """The settings from a session's variables.

    Args:
        variables: those SET in the session, as SHOW VARIABLES prints them.
        server_id: the server's; a session may have SET its own.
        domain_id: the server's; a session may have SET its own.
        thread_id: the connection's number.
        database: the session's, in UTF-8; empty for none.
    """
    sql_mode = sql_mode_bits(variables.get("sql_mode", RECORDED["sql_mode"].default))
    seconds, microseconds = timestamp_of(variables.get("timestamp", "0"))
    charset = variables.get("character_set_client", "utf8mb4")
    client = default_collation(charset)
    connection = collation_numbered(variables.get("collation_connection", "")) or client
    server = collation_numbered(variables.get("collation_server", "")) or DEFAULT_COLLATION
    status = StatusVariables(
        flags=_flags(variables),
        sql_mode=sql_mode,
        auto_increment=(
            int(variables.get("auto_increment_increment", 1)),
            int(variables.get("auto_increment_offset", 1)),
        ),
        charset=(client, connection, server),
        time_zone=_time_zone(variables),
        lc_time_names=_locale(variables),
        microseconds=microseconds,
    )
    skipped = variables.get("skip_replication") == "ON"
    origin = Origin(
        int(variables.get("server_id", server_id)),
        database,
        status.build(),
        int(variables.get("pseudo_thread_id", thread_id)),
        FLAG_SKIP_REPLICATION if skipped else 0,
    )
    return Settings(
        origin,
        int(variables.get("gtid_domain_id", domain_id)),
        int(variables.get("gtid_seq_no", 0)),
        seconds or None,
        charset,
        charset in UTF8_CHARSETS and charset_of(connection) in UTF8_CHARSETS,
        not sql_mode & _MODE_BITS["NO_BACKSLASH_ESCAPES"],
        bool(sql_mode & _MODE_BITS["ANSI_QUOTES"]),
        tuple(name for name in _OTHER_READING if sql_mode & _MODE_BITS[name]),
        _context(variables),
        variables.get("sql_log_bin") != "OFF",
    )


def login_variables(collation: int) -> dict[str, str]:
    """The variables that a login's collation sets. A collation no client can have is taken as the server's own, as in
    MariaDB."""
    charset = charset_of(collation)
    if charset is None or not is_client_charset(charset):
        return {}
    return {
        "character_set_client": charset,
        "character_set_connection": charset,
        "character_set_results": charset,
        "collation_connection": collation_name(collation),
    }


def result_charset(variables: Mapping[str, str]) -> ResultCharset:
    """The character set in which texts of results are sent: that of character_set_results.

    UTF-8 in the place of one that is not known here, or in which ASCII has other bytes.
    """
    charset = variables.get("character_set_results", "utf8mb4")
    if charset == BINARY:
        return ResultCharset(BINARY_COLLATION, 1)
    encode = utf8 if charset in UTF8_CHARSETS else result_encoder(charset)
    if encode is None:
        return UTF8
    number = collation_numbered(variables.get("collation_connection", ""))
    if number is None or charset_of(number) != charset:
        number = default_collation(charset)
    return ResultCharset(number, character_bytes_max(charset), encode)


def literal_collation(text: str, variables: Mapping[str, str]) -> int:
    """The collation of a string in a statement: the connection's, if the string's bytes mean the same there.

    Where the character sets of client and connection differ, MariaDB converts the string. Here the bytes stay, with a
    collation of the client's character set.
    """
    charset = variables.get("character_set_client", "utf8mb4")
    client = default_collation(charset)
    connection = collation_numbered(variables.get("collation_connection", "")) or client
    wanted = charset_of(connection)
    means_the_same = (
        wanted in (charset, BINARY)
        or charset == BINARY
        or (text.isascii() and wanted is not None and is_client_charset(wanted))
    )
    return connection if means_the_same else client


def is_utf8(charset: str) -> bool:
    """Whether its bytes are those of UTF-8, as far as this server is concerned."""
    return charset in UTF8_CHARSETS or charset == BINARY


def client_charset(variables: Mapping[str, str]) -> str:
    """character_set_client."""
    return variables.get("character_set_client", "utf8mb4")


def decoded_statement(text: bytes, charset: str) -> str | None:
    """The text of a statement; None where it is no text in the client's character set."""
    if is_utf8(charset) or text.isascii():
        return text.decode("utf-8", "surrogateescape")
    found = decode_text(text, default_collation(charset))
    return found if isinstance(found, str) else None


def kept_text(text: str, variables: Mapping[str, str]) -> str:
    """A text of a statement as a user variable keeps it: the bytes of the client's character set."""
    charset = client_charset(variables)
    encode = None if is_utf8(charset) or text.isascii() else result_encoder(charset)
    if encode is None or not is_storable(text):  # which are these bytes already
        return text
    return encode(text).decode("utf-8", "surrogateescape")


def sql_mode_bits(value: str | int) -> int:
    """sql_mode as the number that is logged, from names or a number. Raises `WrongVariableValue` (1231)."""
    if isinstance(value, int):
        if not 0 <= value < 1 << len(_MODES):
            raise WrongVariableValue("sql_mode", str(value))
        names = [name for name, bit in _MODE_BITS.items() if value & bit]
    else:
        names = []
        for part in value.split(","):
            name = part.rstrip(" ").upper()
            if name not in _MODE_BITS and part:
                raise WrongVariableValue("sql_mode", part[:80])
            names += [name] if part else []
    bits = 0
    for name in names:
        bits |= _MODE_BITS[name]
        for other in _COMBINED.get(name, ()):
            bits |= _MODE_BITS[other]
    return bits


def sql_mode_names(bits: int) -> str:
    """sql_mode as SELECT @@sql_mode shows it."""
    return ",".join(name for name, bit in _MODE_BITS.items() if bits & bit)


def timestamp_of(text: str) -> tuple[int, int]:
    """SET TIMESTAMP as seconds since 1970 and microseconds. Raises `WrongVariableValue` (1231)."""
    whole, _, fraction = text.partition(".")
    if not (whole.isascii() and whole.isdecimal() and len(whole) <= 10 and int(whole) < 1 << 32):
        raise WrongVariableValue("timestamp", text)
    if fraction and not (fraction.isascii() and fraction.isdecimal()):
        raise WrongVariableValue("timestamp", text)
    return int(whole), int(fraction[:6].ljust(6, "0")) if fraction else 0


def _flags(variables: Mapping[str, str]) -> SessionFlags:
    flags = SessionFlags(0)
    if variables.get("explicit_defaults_for_timestamp", "ON") == "ON":
        flags |= SessionFlags.EXPLICIT_DEFAULTS_FOR_TIMESTAMP
    for name, value, flag in _FLAGS:
        if variables.get(name) == value:
            flags |= flag
    return flags


def _time_zone(variables: Mapping[str, str]) -> bytes | None:
    name = variables.get("time_zone", "SYSTEM")
    return None if name.upper() == "SYSTEM" else name.encode("utf-8", "surrogateescape")


def _locale(variables: Mapping[str, str]) -> int:
    """The number of lc_time_names, which the names of days and months are made by."""
    return RECORDED["lc_time_names"].words.index(variables.get("lc_time_names", "en_US"))


def _context(variables: Mapping[str, str]) -> tuple[IntvarEvent | RandEvent, ...]:
    events: list[IntvarEvent | RandEvent] = []
    for name, kind in (
        ("last_insert_id", IntvarKind.LAST_INSERT_ID),
        ("insert_id", IntvarKind.INSERT_ID),
    ):
        if name in variables:
            events.append(IntvarEvent(kind, int(variables[name]) & _U64_MASK))
    if "rand_seed1" in variables or "rand_seed2" in variables:
        events.append(
            RandEvent(int(variables.get("rand_seed1", 0)), int(variables.get("rand_seed2", 0)))
        )
    return tuple(events)
