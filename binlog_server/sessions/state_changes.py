"""Changes of a session's state, as clients with SESSION_TRACK are told them in OK packets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from binlog_protocol.wire.results import (
    STATUS_IN_TRANS,
    STATUS_IN_TRANS_READONLY,
    StateChange,
    state_change,
)

from binlog_server.sql.sql_session import SqlSession

# The names that a client is told of unless it asks for others, in the order in which the login tells them.
_TRACKED: Final = (
    "autocommit",
    "time_zone",
    "character_set_client",
    "character_set_connection",
    "character_set_results",
    "redirect_url",
)
_ALL: Final = "*"
_NO_TRANSACTION: Final = "________"


class StateChanges:
    """The changes that the client is not told of yet.

    Args:
        status: gives the flags of the client's OK packets.
    """

    def __init__(self, sql: SqlSession, status: Callable[[], int]) -> None:
        self._sql = sql
        self._status = status
        self._told_state = _NO_TRANSACTION
        self._told_characteristics = ""

    def at_login(self, *, again: bool) -> bytes:
        """What the OK of the login tells; `again`: of COM_CHANGE_USER, which is the database alone."""
        names = () if again else _TRACKED
        changes = [change for name in names for change in self._variable(name)]
        if self._sql.database:
            changes += self._schema()
        self._sql.changed.clear()
        return b"".join(changes)

    def take(self) -> bytes:
        """The changes since the last call."""
        sql = self._sql
        changes: list[bytes] = []
        if sql.changed:
            names, schema = sorted(filter(None, sql.changed)), "" in sql.changed
            sql.changed.clear()
            tracked = self._tracked()
            for name in names:
                if _ALL in tracked or name in tracked:
                    changes += self._variable(name)
            if schema and self._is_on("session_track_schema"):
                changes += self._schema()
            if self._is_on("session_track_state_change"):
                changes.append(state_change(StateChange.ANY))
        return b"".join((*changes, *self._transaction()))

    def _tracked(self) -> Iterable[str]:
        value = self._sql.shown_value("session_track_system_variables") or ""
        return {name.strip().lower() for name in value.split(",")}

    def _variable(self, name: str) -> list[bytes]:
        value = self._sql.shown_value(name)
        return [] if value is None else [state_change(StateChange.VARIABLE, name, value)]

    def _schema(self) -> list[bytes]:
        database = self._sql.database.decode("utf-8", "surrogateescape")
        return [state_change(StateChange.SCHEMA, database)]

    def _transaction(self) -> list[bytes]:
        wanted = self._sql.shown_value("session_track_transaction_info")
        if wanted == "OFF":
            return []
        status = self._status()
        is_open = bool(status & STATUS_IN_TRANS)
        state = "T_______" if is_open else _NO_TRANSACTION
        access = " READ ONLY" if status & STATUS_IN_TRANS_READONLY else ""
        characteristics = f"START TRANSACTION{access};" if is_open else ""
        changes = []
        if state != self._told_state:
            self._told_state = state
            changes.append(state_change(StateChange.TRANSACTION_STATE, state))
        if wanted == "CHARACTERISTICS" and characteristics != self._told_characteristics:
            self._told_characteristics = characteristics
            changes.append(state_change(StateChange.TRANSACTION_CHARACTERISTICS, characteristics))
        return changes

    def _is_on(self, name: str) -> bool:
        return self._sql.shown_value(name) == "ON"
