"""The SQL that sets a session as it was when a statement ran. Only what differs from before is said again."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from binlog_protocol.event_text.literals import hex_literal
from binlog_protocol.events.charsets import BINARY_COLLATION, charset_of
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.header import FLAG_SUPPRESS_USE, FLAG_THREAD_SPECIFIC
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.statement_context import UserVarEvent
from binlog_protocol.events.status_variables import SessionFlags, StatusVariables

END: Final = b"/*!*/;\n"

# (variable, flag, value when the flag is set)
_FLAGS: Final = (
    ("foreign_key_checks", SessionFlags.NO_FOREIGN_KEY_CHECKS, 0),
    ("sql_auto_is_null", SessionFlags.AUTO_IS_NULL, 1),
    ("unique_checks", SessionFlags.RELAXED_UNIQUE_CHECKS, 0),
    ("check_constraint_checks", SessionFlags.NO_CHECK_CONSTRAINT_CHECKS, 0),
)
# Variables that older servers do not have, with the version that brought them.
_NEWER_FLAGS: Final = (
    ("sql_if_exists", SessionFlags.IF_EXISTS, 1, 100503),
    ("explicit_defaults_for_timestamp", SessionFlags.EXPLICIT_DEFAULTS_FOR_TIMESTAMP, 1, 100108),
    ("system_versioning_insert_history", SessionFlags.INSERT_HISTORY, 1, 101101),
)


class SessionSql:
    """Writes one script; keeps what it has said."""

    def __init__(self) -> None:
        self._said: dict[str, bytes] = {}

    def gtid(self, event: GtidEvent) -> Iterator[bytes]:
        """The SET statements by which a server logs the group under the same GTID again."""
        sequential = 0 if event.flags2 & GtidFlags.ALLOW_PARALLEL else 1
        yield from self._set(
            "skip_parallel", f"/*M!100101 SET @@session.skip_parallel_replication={sequential}*/"
        )
        domain_id, server_id, seq_no = event.gtid
        yield from self._set("domain", f"/*M!100001 SET @@session.gtid_domain_id={domain_id}*/")
        yield from self._set("server", f"/*M!100001 SET @@session.server_id={server_id}*/")
        yield f"/*M!100001 SET @@session.gtid_seq_no={seq_no}*/".encode() + END

    def query(self, query: QueryEvent, variables: StatusVariables) -> Iterator[bytes]:
        """The SET statements for one statement."""
        if query.database and not query.header_flags & FLAG_SUPPRESS_USE:
            name = query.database.replace(b"`", b"``")
            yield from self._set("use", b"use `" + name + b"`")
        fraction = f".{variables.microseconds:06}" if variables.microseconds else ""
        yield f"SET TIMESTAMP={query.timestamp}{fraction}".encode() + END
        if query.header_flags & FLAG_THREAD_SPECIFIC or "thread" not in self._said:
            yield from self._set("thread", f"SET @@session.pseudo_thread_id={query.thread_id}")
        if variables.flags is not None:
            yield from self._flags(variables.flags)
        if variables.sql_mode is not None:
            yield from self._set("sql_mode", f"SET @@session.sql_mode={variables.sql_mode}")
        increment, offset = variables.auto_increment
        yield from self._set(
            "auto_increment",
            f"SET @@session.auto_increment_increment={increment}, @@session.auto_increment_offset={offset}",
        )
        yield from self._collations(variables)
        if variables.time_zone is not None:
            yield from self._set(
                "time_zone", b"SET @@session.time_zone='" + variables.time_zone + b"'"
            )
        yield from self._set(
            "lc_time_names", f"SET @@session.lc_time_names={variables.lc_time_names}"
        )

    def user_variable(self, variable: UserVarEvent) -> Iterator[bytes]:
        """A string in its own character set and collation, which is told by number: CAST gives that of the session."""
        name = b"SET @`" + variable.name.replace(b"`", b"``") + b"`:="
        value = variable.value
        if isinstance(value, bytes) and variable.collation != BINARY_COLLATION:
            self._said.pop("charset", None)
            yield f"SET @@session.collation_connection={variable.collation}".encode() + END
            yield name + f"CAST({hex_literal(value)} AS CHAR)".encode() + END
        elif isinstance(value, bytes):
            yield name + hex_literal(value).encode() + END
        elif isinstance(value, float):
            text = repr(value)  # without an exponent it would be a DECIMAL
            yield name + (text if "e" in text else f"{text}e0").encode() + END
        elif isinstance(value, Decimal):
            yield name + f"{value:f}".encode() + END  # with an exponent it would be a DOUBLE
        else:
            yield name + ("NULL" if value is None else str(value)).encode() + END

    def _flags(self, flags: SessionFlags) -> Iterator[bytes]:
        settings = [
            f"@@session.{name}={on if flags & flag else 1 - on}" for name, flag, on in _FLAGS
        ]
        yield from self._set("flags", f"SET {', '.join(settings)}")
        for name, flag, on, version in _NEWER_FLAGS:
            value = on if flags & flag else 1 - on
            yield from self._set(name, f"/*M!{version} SET @@session.{name}={value}*/")

    def _collations(self, variables: StatusVariables) -> Iterator[bytes]:
        if variables.default_collations:
            # By number, for the names are the server's to know; older ones have no such variable.
            numbers = ",".join(map(str, variables.default_collations.values()))
            value = (
                "(SELECT GROUP_CONCAT(CHARACTER_SET_NAME, '=', FULL_COLLATION_NAME) FROM "
                f"information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IN ({numbers}))"
            )
            yield from self._set(
                "collations", f"/*M!110201 SET @@session.character_set_collations={value}*/"
            )
        elif "collations" in self._said:
            yield from self._set(
                "collations", "/*M!110201 SET @@session.character_set_collations=''*/"
            )
        if variables.charset is not None:
            client, connection, server = variables.charset
            name = charset_of(client)
            # \C tells the client program itself, which has to find the ends of quoted strings.
            yield from self._set("client", f"/*!\\C {name} */" if name else "")
            yield from self._set(
                "charset",
                f"SET @@session.character_set_client={name or client},"
                f"@@session.collation_connection={connection},@@session.collation_server={server}",
            )
        database = variables.collation_database or "DEFAULT"
        yield from self._set("collation_database", f"SET @@session.collation_database={database}")

    def _set(self, what: str, sql: str | bytes) -> Iterator[bytes]:
        statement = sql.encode() if isinstance(sql, str) else sql
        if statement and self._said.get(what) != statement:
            self._said[what] = statement
            yield statement + END
