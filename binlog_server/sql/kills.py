"""KILL of connections and of their statements, by connection number or by user."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import KillDenied, QueryInterrupted, UnknownQueryId

from binlog_server.sql.expressions import Expression, Value
from binlog_server.sql.statement import ANYBODY, Family, Rules, Statement
from binlog_server.sql.tokens import as_written, integer

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession

_KILL: Final = ("SUPER", "CONNECTION ADMIN")
_NUMBER = compiled_later(r"\s*([0-9]{1,20})", re.ASCII)
_U64_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Kill(Statement):
    """KILL of a connection, or of the query it runs.

    Its answer raises `UnknownThread` (1094), `KillDenied` (1095), `QueryInterrupted` (1317) where it is the session's
    own.
    """

    syntax = '"KILL"i _hard? [kill_what] expression'
    needs = _KILL
    com = "kill"
    is_free_for_ones_own = True

    connection_id: Expression
    query_only: bool = False

    @classmethod
    def built(cls, children: list[Any]) -> Kill:
        query_only, number = children
        return cls(number, query_only=bool(query_only))

    def answer(self, session: SqlSession) -> None:
        number = _thread_id(session.value_of(self.connection_id))
        server = session.server
        if any(c.thread_id == number for c in server.relay.connections if c.runs):
            raise KillDenied(number)  # STOP SLAVE ends it
        if server.connections.owner(number) != session.user and not session.may(*self.needs):
            raise KillDenied(number)
        if not self.query_only:
            server.connections.kill(number)
        elif number == session.connection_id:
            raise QueryInterrupted()  # the session has killed its own statement
        else:
            server.connections.interrupt(number)


@dataclass(frozen=True, slots=True)
class KillUser(Statement):
    """KILL USER: all connections of a user, from one host or (None) from anywhere.

    It is no error if there are none. Its answer raises `KillDenied` (1095).
    """

    syntax = '"KILL"i _hard? [kill_what] "USER"i user_name ["@" user_name]'
    needs = _KILL
    com = "kill"
    is_free_for_ones_own = True

    user: str
    host: str | None = None
    query_only: bool = False

    @classmethod
    def built(cls, children: list[Any]) -> KillUser:
        query_only, user, host = children
        return cls(user, None if host is None else host.lower(), query_only=bool(query_only))

    def answer(self, session: SqlSession) -> None:
        connections = session.server.connections
        found = [
            int(str(number))
            for number, _, address, *_ in connections.processlist(self.user)
            if self.host in (None, "%", str(address).rpartition(":")[0])
        ]
        if found and self.user != session.user and not session.may(*self.needs):
            raise KillDenied(found[0])
        for number in found:
            if not self.query_only:
                connections.kill(number)
            elif number != session.connection_id:
                connections.interrupt(number)


@dataclass(frozen=True, slots=True)
class KillQueryId(Statement):
    """KILL QUERY ID: refused, as no query here has a number."""

    syntax = '"KILL"i _hard? "QUERY"i "ID"i INTEGER'
    needs = ANYBODY
    com = "kill"

    query_id: int

    @classmethod
    def built(cls, children: list[Any]) -> KillQueryId:
        return cls(integer(children[0]))

    def answer(self, session: SqlSession) -> NoReturn:
        raise UnknownQueryId(self.query_id)


_RULES = """
_hard: "HARD"i | "SOFT"i
!kill_what: "CONNECTION"i | "QUERY"i
user_name: NAME | STRING | QUOTED_NAME
"""


class _Builder(Rules):
    def kill_what(self, children: list[Token]) -> bool:
        return children[0].upper() == "QUERY"

    def user_name(self, children: list[Token]) -> str:
        return as_written(children[0])


FAMILY = Family((Kill, KillUser, KillQueryId), _RULES, _Builder)


def _thread_id(value: Value) -> int:
    """A connection's number, from any value as MariaDB converts it; 0, which no connection has, if it is no number."""
    if isinstance(value, str):
        found = _NUMBER.match(value)
        return int(found[1]) if found else 0
    if isinstance(value, Decimal):
        value = int(value.to_integral_value(ROUND_HALF_UP))
    return (value or 0) & _U64_MASK
