"""Statements of all kinds have the answer of a real 11.8: kind, columns, rows, warnings, errors.

`compared_statements.sql` has one a line; an empty line begins new sessions. What is there answers alike, and is to stay
so; where a text differs by design, docs/sql.md says why, and it is not in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pymysql
from pymysql.cursors import Cursor

from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.oracle import require_same

GROUPS: Final = [
    group.splitlines()
    for group in Path(__file__).with_name("compared_statements.sql").read_text().split("\n\n")
]
NAMES: Final = "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci"


def answer(connection: Any, statement: str) -> tuple[Any, ...]:
    """What a program may see of it."""
    cursor = connection.cursor(Cursor)
    try:
        cursor.execute(statement)
    except pymysql.MySQLError as error:
        return ("error", *error.args)
    result = cursor._result
    fields = result.fields if result.has_next is not None and result.description else ()
    shown = [(field.name, field.type_code) for field in fields]
    rows, affected = cursor.fetchall(), cursor.rowcount
    warnings: tuple[Any, ...] = ()
    if result.warning_count and not statement.upper().startswith("SHOW"):
        with connection.cursor(Cursor) as other:
            other.execute("SHOW WARNINGS")
            warnings = tuple(other.fetchall())
        connection._result = result  # what a caller looks at further
    return ("answer", affected if not fields else 0, shown, rows, warnings)


def different(there: Any, here: Any, group: list[str]) -> dict[str, tuple[Any, Any]]:
    """Statements of a group with two answers: the real one first."""
    found = {}
    for connection in (there, here):
        connection.decoders = {}  # texts as they come
        connection.cursor(Cursor).execute(NAMES)
    for statement in group:
        theirs, ours = answer(there, statement), answer(here, statement)
        if theirs != ours:
            found[statement] = theirs, ours
    return found


def test_answers_are_those_of_a_real_server(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    real = make_upstream("--max-allowed-packet=16M", version="11.8")
    ours = binlog_server(users={"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}})
    found: dict[str, tuple[Any, Any]] = {}
    for group in GROUPS:
        with real.connect() as there, ours.connect() as here:
            found |= different(there, here, group)
    require_same(real.value("SELECT VERSION()"), found)
