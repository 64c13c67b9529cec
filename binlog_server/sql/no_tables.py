"""What is asked about tables: there are none here, and nobody is to take that for an empty database.

`mariadb-dump` gets as far as the position of this server: `--all-databases` finds no database to dump.
"""

from __future__ import annotations

from typing import Final, NoReturn

from binlog_protocol.errors.sql_errors import NotSupportedYet, UnknownSchemaTable
from binlog_protocol.wire.results import Column

from binlog_server.sql.statements import FlushTables, SelectSchema
from binlog_server.sql.view import Diagnostic, Level, ResultSet

# Tables of information_schema that are empty on a server that follows another one, too: tablespaces of NDB.
_EMPTY: Final = frozenset({"files"})


def select(statement: SelectSchema) -> ResultSet:
    """No rows. Raises `UnknownSchemaTable` (1109)."""
    if statement.table not in _EMPTY:
        raise UnknownSchemaTable(statement.table)
    return ResultSet([Column.text(name, null=True) for name in statement.columns], [])


def show() -> NoReturn:
    """Raises `NotSupportedYet` (1235): no rows would read as if the upstream had no tables."""
    raise NotSupportedYet("SHOW TABLES: a binlog server holds no tables; ask the upstream")


def flush(statement: FlushTables, diagnostics: list[Diagnostic]) -> None:
    """Nothing to do; but a read lock does not hold up what makes the binlog longer, and that is a warning."""
    if statement.read_lock:
        warning = NotSupportedYet("READ LOCK: commits and the upstream go on")
        diagnostics.append(Diagnostic(Level.WARNING, warning.errno, warning.message))
