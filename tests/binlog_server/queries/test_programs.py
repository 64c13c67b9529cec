"""What programs ask of tables, as it was recorded: answered in the columns in which a real 11.8 answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from binlog_protocol.errors import ServerError

from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.view import Computed, ResultSet
from tests.binlog_server.lab import Lab

# The program; the statement; the error here, which is a table's that is not here, or that of the real server; names and
# types of the columns of the real server.
RECORDED: Final = json.loads(Path(__file__).with_name("programs.json").read_text())


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.directory.close()


def shown(statement: str) -> str:
    return re.sub(r"\s+", " ", statement)[:60]


def answer(sql: SqlSession, statement: str) -> ResultSet:
    found = sql.execute(statement)
    if isinstance(found, Computed):
        return found.run()
    assert isinstance(found, ResultSet)
    return found


@pytest.mark.by_turns(3)
@pytest.mark.parametrize(
    ("program", "statement", "errno", "columns"),
    [
        pytest.param(*row, id=f"{row[0]}-{number}-{shown(row[1])}")
        for number, row in enumerate(RECORDED)
    ],
)
def test_as_of_a_real_server(
    lab: Lab,
    program: str,
    statement: str,
    errno: int | None,
    columns: list[list[str | int]] | None,
) -> None:
    grants = frozenset({"SUPER", "PROCESS", "CREATE USER"})
    sql = SqlSession(lab.server, 42, "root@localhost", grants=grants, database=b"app")
    if program.startswith("mariadb-dump"):
        sql.program = "mysqldump"  # as it calls itself
    if errno is not None:
        with pytest.raises(ServerError) as caught:
            answer(sql, statement)
        assert caught.value.errno == errno
        return
    found = answer(sql, statement)
    assert all(len(row) == len(found.columns) for row in found.rows)
    if columns is not None:
        assert [[column.name, column.type] for column in found.columns] == columns
