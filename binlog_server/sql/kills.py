"""KILL of connections and of their statements, by connection number or by user."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Protocol

from binlog_protocol.errors.account_errors import QueryInterrupted
from binlog_protocol.errors.sql_errors import KillDenied

from binlog_server.sql.needed_privileges import PRIVILEGES
from binlog_server.sql.statements import Expression, Kill, KillUser, Value
from binlog_server.sql.view import ServerView

_NUMBER = re.compile(r"\s*([0-9]{1,20})", re.ASCII)
_U64_MASK = 2**64 - 1


class Killer(Protocol):
    """The session, as KILL sees it."""

    server: ServerView
    connection_id: int

    @property
    def user(self) -> str:
        """The user's name, without the host."""

    def may(self, *privileges: str) -> bool:
        """Whether the account has any of these."""

    def value_of(self, expression: Expression) -> Value:
        """The value of a constant, variable or function. Raises `ServerError`."""


def kill(killer: Killer, statement: Kill) -> None:
    """KILL of one connection, or of its statement (KILL QUERY).

    Raises `UnknownThread` (1094), `KillDenied` (1095), `QueryInterrupted` (1317) where it is the session's own.
    """
    number = _thread_id(killer.value_of(statement.connection_id))
    server = killer.server
    if any(c.thread_id == number for c in server.relay.connections if c.runs):
        raise KillDenied(number)  # STOP SLAVE ends it
    owner = server.connections.owner(number)
    if owner != killer.user and not killer.may(*PRIVILEGES[Kill]):
        raise KillDenied(number)
    if not statement.query_only:
        server.connections.kill(number)
    elif number == killer.connection_id:
        raise QueryInterrupted  # the session has killed its own statement
    else:
        server.connections.interrupt(number)


def kill_user(killer: Killer, statement: KillUser) -> None:
    """KILL USER: end all connections of a user; it is no error if there are none. Raises `KillDenied` (1095)."""
    connections = killer.server.connections
    found = [
        int(str(number))
        for number, _, address, *_ in connections.processlist(statement.user)
        if statement.host in (None, "%", str(address).rpartition(":")[0])
    ]
    if found and statement.user != killer.user and not killer.may(*PRIVILEGES[KillUser]):
        raise KillDenied(found[0])
    for number in found:
        if not statement.query_only:
            connections.kill(number)
        elif number != killer.connection_id:
            connections.interrupt(number)


def _thread_id(value: Value) -> int:
    """A connection's number, from any value as MariaDB converts it; 0, which no connection has, if it is no number."""
    if isinstance(value, str):
        found = _NUMBER.match(value)
        return int(found[1]) if found else 0
    if isinstance(value, Decimal):
        value = int(value.to_integral_value(ROUND_HALF_UP))
    return (value or 0) & _U64_MASK
