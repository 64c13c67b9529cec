"""Statements about tables. There are none here, and no answer may look like that of an empty database.

`mariadb-dump` gets as far as the position of this server: `--all-databases` finds no database to dump.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.errors.sql_errors import NotSupportedYet, UnknownSchemaTable
from binlog_protocol.wire.results import Column
from lark import Token

from binlog_server.accounts.privileges import RELOAD
from binlog_server.sql.expressions import ColumnName
from binlog_server.sql.filter_builder import FilterBuilder
from binlog_server.sql.statement import ANYBODY, Family, Statement
from binlog_server.sql.tokens import NEAR_CHARS
from binlog_server.sql.view import ResultSet

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

# Tables of information_schema that are empty on an ordinary MariaDB server, too: tablespaces of NDB.
_EMPTY: Final = frozenset({"files"})
# Clauses behind the conditions of a SELECT that ask for other rows than the table's, or for another place for them.
_OTHER_RESULT: Final = re.compile(r"\b(?:UNION|EXCEPT|INTERSECT|INTO)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SelectSchema(Statement):
    """A SELECT of columns of an information_schema table, in lower case, under any conditions: of dump programs.

    Its answer has no rows for a table that may be empty, and is `UnknownSchemaTable` (1109) for any other.
    """

    syntax = '"SELECT"i "DISTINCT"i? item ("," item)* _FROM_SCHEMA NAME CONDITIONS?'
    needs = ANYBODY

    table: str
    columns: tuple[str, ...]

    @classmethod
    def built(cls, children: list[Any]) -> SelectSchema:
        conditions = children.pop() if children[-1].type == "CONDITIONS" else ""
        if _OTHER_RESULT.search(conditions):
            raise SqlSyntaxError(conditions[:NEAR_CHARS])
        *items, table = children
        for item in items:
            if not isinstance(item.expression, ColumnName):
                raise SqlSyntaxError(item.label[:NEAR_CHARS])
        return cls(table.lower(), tuple(item.label for item in items))

    def answer(self, session: SqlSession) -> ResultSet:
        if self.table not in _EMPTY:
            raise UnknownSchemaTable(self.table)
        return ResultSet([Column.text(name, null=True) for name in self.columns], [])


@dataclass(frozen=True, slots=True)
class ShowTables(Statement):
    """SHOW TABLES: `NotSupportedYet` (1235). An empty result would say that the upstream has no tables."""

    syntax = '"SHOW"i "FULL"i? "TABLES"i [("FROM"i | "IN"i) (NAME | QUOTED_NAME)] [filter]'
    needs = ANYBODY

    @classmethod
    def built(cls, _: list[Any]) -> ShowTables:
        return cls()

    def answer(self, session: SqlSession) -> NoReturn:
        raise NotSupportedYet("SHOW TABLES: a binlog server holds no tables; ask the upstream")


@dataclass(frozen=True, slots=True)
class FlushTables(Statement):
    """FLUSH TABLES: nothing to do. WITH READ LOCK gives a warning: here it does not stop the binlog from growing."""

    syntax = '"FLUSH"i _not_logged? ("TABLES"i | "TABLE"i) [read_lock]'
    needs = (RELOAD,)
    commits = True

    read_lock: bool

    @classmethod
    def built(cls, children: list[Any]) -> FlushTables:
        return cls(children[0] is not None)

    def answer(self, session: SqlSession) -> None:
        if self.read_lock:
            warning = NotSupportedYet("READ LOCK: commits and the upstream go on")
            session.warn(warning.errno, warning.message)


# Conditions are not looked into.
_RULES = r"""
read_lock: "WITH"i "READ"i "LOCK"i
_FROM_SCHEMA.1: /FROM\s+INFORMATION_SCHEMA\s*\.\s*/i
CONDITIONS: /(WHERE|GROUP|ORDER|LIMIT)\b.*/is
"""


class _Builder(FilterBuilder):
    def read_lock(self, _: list[Token]) -> bool:
        return True


FAMILY = Family((SelectSchema, ShowTables, FlushTables), _RULES, _Builder)
