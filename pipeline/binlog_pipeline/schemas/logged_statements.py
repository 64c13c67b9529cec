"""Statements in event groups: QUERY events, compressed or not, and LOAD DATA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.charsets import UndecodedText, charset_of, decode_text
from binlog_protocol.events.compressed import uncompressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags
from binlog_protocol.events.header import FLAG_THREAD_SPECIFIC, LENGTH_OFFSET, TYPE_OFFSET
from binlog_protocol.events.load_data import ExecuteLoadQuery
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.row_columns import event_runs
from binlog_protocol.sql.statements import StatementMeaning, parse_statement
from binlog_protocol.sql.token_reader import NotUnderstood
from binlog_protocol.sql.tokens import Token, tokens

from binlog_pipeline.errors import SourceError
from binlog_pipeline.groups import Groups

STATEMENT_TYPES: Final = (
    EventType.QUERY,
    EventType.QUERY_COMPRESSED,
    EventType.EXECUTE_LOAD_QUERY,
)
_UTF8: Final = 45
# Of sql_mode.
NO_BACKSLASH_ESCAPES: Final = 1 << 20
PAD_CHAR_TO_FULL_LENGTH: Final = 1 << 31
EMPTY_STRING_IS_NULL: Final = 1 << 32
_ANSI_QUOTES: Final = 4
_REAL_AS_FLOAT: Final = 1
_OTHER_TYPES: Final = {512: "ORACLE", 4096: "MAXDB"}
_EVENT_LENGTH: Final = slice(LENGTH_OFFSET, LENGTH_OFFSET + 4)
_UNFINISHED_ALTER: Final = GtidExtraFlags.START_ALTER | GtidExtraFlags.ROLLBACK_ALTER
_ALONE: Final = GtidFlags.DDL | GtidFlags.STANDALONE


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """`database` is the one that was in use; `meaning` is what it does to tables.

    sql_mode: its bits.
    server_charset: the character set of @@collation_server; None for one that is unknown here.
    may_be_temporary: whether it used something of its session alone, such as a temporary table, which hides another of
        the same name. TRUNCATE and ALTER TABLE say so of every temporary table, RENAME TABLE of none (10.11, 11.8).
    literal_charset: that of @@collation_connection, as `server_charset`.
    has_failed: it is logged for the part that was done: CREATE OR REPLACE TABLE has dropped the old one.
    time_zone: that of the session, as it was set; empty if it does not matter to the statement.
    microseconds: of the time at which it began, where that matters.
    """

    database: str
    sql: str
    meaning: StatementMeaning
    sql_mode: int = 0
    server_charset: str | None = None
    may_be_temporary: bool = False
    has_failed: bool = False
    literal_charset: str | None = None
    time_zone: str = ""
    microseconds: int = 0

    def require_own_types(self, *, with_real: bool = False) -> None:
        """Raises `NotUnderstood` where names of types mean others by the sql_mode.

        with_real: so may REAL, which is FLOAT then: where values matter, as the log has the types of columns.
        """
        for bit, name in _OTHER_TYPES.items():
            if self.sql_mode & bit:
                raise NotUnderstood(f"sql_mode {name}")
        if (
            with_real
            and self.sql_mode & _REAL_AS_FLOAT
            and "REAL" in {one.text.upper() for one in self.tokens()}
        ):
            raise NotUnderstood("sql_mode REAL_AS_FLOAT")

    def tokens(self) -> list[Token]:
        """The tokens of the text, by its session's sql_mode, without semicolons at the end."""
        found = [
            *tokens(
                self.sql,
                backslash_escapes=not self.sql_mode & NO_BACKSLASH_ESCAPES,
                ansi_quotes=bool(self.sql_mode & _ANSI_QUOTES),
            )
        ]
        while found and found[-1].is_semicolon:
            found.pop()
        return found

    @classmethod
    def parse(cls, event: bytes) -> LoggedStatement:
        """The statement of an event of one of `STATEMENT_TYPES`. Raises `ProtocolError`."""
        if event[TYPE_OFFSET] == EventType.EXECUTE_LOAD_QUERY:
            query = ExecuteLoadQuery.parse(event).query
        elif event[TYPE_OFFSET] == EventType.QUERY_COMPRESSED:
            query = QueryEvent.parse(uncompressed(event))
        else:
            query = QueryEvent.parse(event)
        variables = StatusVariables.parse(query.status_variables)
        charset = _UTF8 if variables.charset is None else variables.charset[0]
        text = decode_text(query.text, charset)
        sql = query.text.decode("utf-8", "replace") if isinstance(text, UndecodedText) else text
        database = query.database.decode("utf-8", "surrogateescape")
        sql_mode = variables.sql_mode or 0
        escapes = not sql_mode & NO_BACKSLASH_ESCAPES
        ansi_quotes = bool(sql_mode & _ANSI_QUOTES) or None
        return cls(
            database,
            sql,
            parse_statement(sql, database, backslash_escapes=escapes, ansi_quotes=ansi_quotes),
            sql_mode,
            None if variables.charset is None else charset_of(variables.charset[2]),
            bool(query.header_flags & FLAG_THREAD_SPECIFIC),
            query.error_code != 0,
            None if variables.charset is None else charset_of(variables.charset[1]),
            (variables.time_zone or b"").decode("latin-1"),
            variables.microseconds,
        )


def may_be_ddl(flags2: int) -> bool:
    """Whether a group with these flags may begin with a statement that changes tables."""
    return bool(flags2 & _ALONE)


def ddl_of(group: bytes) -> LoggedStatement | None:
    """The statement that a group, or its beginning, begins with; None if it has none, or one that has no effect yet.

    Of an ALTER TABLE in two phases the second counts. Raises `ProtocolError`, of a statement that is cut off too.
    """
    gtid_end = int.from_bytes(group[_EVENT_LENGTH], "little")
    gtid = GtidEvent.parse(group[:gtid_end])
    if _is_unfinished(gtid):
        return None
    end = gtid_end + int.from_bytes(group[gtid_end:][_EVENT_LENGTH], "little")
    event = group[gtid_end:end]
    if len(event) <= TYPE_OFFSET:
        raise ProtocolError(f"group {gtid.gtid} has one event")
    if event[TYPE_OFFSET] not in (EventType.QUERY, EventType.QUERY_COMPRESSED):
        return None
    return LoggedStatement.parse(event)


def has_no_effect_yet(event: bytes) -> bool:
    """Whether the GTID event is of an ALTER TABLE in two phases that only begins, or that is given up."""
    return event[TYPE_OFFSET] == EventType.GTID and _is_unfinished(GtidEvent.parse(event))


def _is_unfinished(gtid: GtidEvent) -> bool:
    return bool(gtid.flags_extra & _UNFINISHED_ALTER)


def ddl_in(groups: Groups) -> Iterator[tuple[int, LoggedStatement]]:
    """The number of each group that is DDL, and its statement. Raises `SourceError`."""
    for i in np.flatnonzero(groups.flags2 & int(GtidFlags.DDL)).tolist():
        try:
            # Of a large group (CREATE TABLE ... SELECT) the first events will do.
            statement = ddl_of(
                groups.payloads[i] if groups.large is None else next(event_runs(groups.pieces(i)))
            )
        except ProtocolError as error:
            raise SourceError(
                f"group {groups.gtid(i)}: {error}; the log is damaged there"
            ) from None
        if statement is not None:
            yield i, statement
