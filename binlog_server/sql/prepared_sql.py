"""PREPARE, EXECUTE, DEALLOCATE PREPARE, EXECUTE IMMEDIATE: prepared statements by name, as text.

What they do is not the grammar's: the session (`sessions.prepared`) executes any statement, one that is committed, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NotPreparable, TooLongIdentifier

from binlog_server.sql.expressions import Expression, constant_named
from binlog_server.sql.statement import ANYBODY, Family, Rules, Statement
from binlog_server.sql.tokens import name_of

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession


class PreparedCount:
    """The number of prepared statements of all sessions."""

    def __init__(self) -> None:
        self.total = 0


class PreparedSql(Statement):
    """A statement about a prepared one. It needs what that one needs."""

    needs = ANYBODY

    def answer(self, session: SqlSession) -> NoReturn:
        """Only where it is a part of another statement: raises `NotPreparable` (1295)."""
        raise NotPreparable()


@dataclass(frozen=True, slots=True)
class Prepare(PreparedSql):
    """PREPARE; a statement of the same name is forgotten."""

    syntax = '"PREPARE"i statement_name "FROM"i expression'
    com = "prepare_sql"

    name: str
    source: Expression


@dataclass(frozen=True, slots=True)
class Execute(PreparedSql):
    """EXECUTE, with values for the parameters."""

    syntax = '"EXECUTE"i statement_name using?'
    com = "execute_sql"

    name: str
    values: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecuteImmediate(PreparedSql):
    """EXECUTE IMMEDIATE: a statement that is prepared, executed and forgotten."""

    syntax = '"EXECUTE"i "IMMEDIATE"i expression using?'
    com = "execute_immediate"

    source: Expression
    values: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Deallocate(PreparedSql):
    """DEALLOCATE PREPARE, DROP PREPARE."""

    syntax = '("DEALLOCATE"i | "DROP"i) "PREPARE"i statement_name'
    com = "dealloc_sql"

    name: str


_NAME_CHARS_MAX = 64
_RULES = """
statement_name: NAME | QUOTED_NAME
using: "USING"i _given ("," _given)*
_given: expression | bare
"""


class _Builder(Rules):
    def statement_name(self, children: list[Token]) -> str:
        name = name_of(children[0])
        if len(name) > _NAME_CHARS_MAX:
            raise TooLongIdentifier(name[:100])
        return name

    def using(self, children: list[Expression]) -> tuple[Expression, ...]:
        return tuple(constant_named(value, "EXECUTE") for value in children)


FAMILY = Family(
    (Prepare, Execute, ExecuteImmediate, Deallocate),
    _RULES,
    _Builder,
    beginnings=(("DROP", "PREPARE"),),
)
