"""Statements about tables. There are none here, and no answer may look like that of an empty database.

`mariadb-dump` gets as far as the position of this server: `--all-databases` finds no database to dump.
"""

from __future__ import annotations

from typing import Final, NoReturn

from binlog_protocol.errors.sql_errors import NotSupportedYet, UnknownSchemaTable
from binlog_protocol.wire.results import Column

from binlog_server.sql.statements import FlushTables, SelectSchema
from binlog_server.sql.view import Diagnostic, Level, ResultSet

# Tables of information_schema that are empty on an ordinary MariaDB server, too: tablespaces of NDB.
_EMPTY: Final = frozenset({"files"})


def select(statement: SelectSchema) -> ResultSet:
    """A result without rows, for a table that may be empty. Raises `UnknownSchemaTable` (1109) for any other."""
    if statement.table not in _EMPTY:
        raise UnknownSchemaTable(statement.table)
    return ResultSet([Column.text(name, null=True) for name in statement.columns], [])


def show() -> NoReturn:
    """SHOW TABLES: raises `NotSupportedYet` (1235). An empty result would say that the upstream has no tables."""
    raise NotSupportedYet("SHOW TABLES: a binlog server holds no tables; ask the upstream")


def flush(statement: FlushTables, diagnostics: list[Diagnostic]) -> None:
    """FLUSH TABLES: nothing to do. WITH READ LOCK gives a warning: here it does not stop the binlog from growing."""
    if statement.read_lock:
        warning = NotSupportedYet("READ LOCK: commits and the upstream go on")
        diagnostics.append(Diagnostic(Level.WARNING, warning.errno, warning.message))
